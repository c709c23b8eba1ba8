"""Whose sandboxes they are, and where: from the options, the environment and the SDK's own file."""

from __future__ import annotations

import os
from typing import Any, Final

from modal.config import config, config_profiles

from hermes_backend_modal.failures import LOG_IN, ModalAuthError
from hermes_backend_modal.options import ModalOptions
from hermes_core.contracts.errors import ConfigError
from hermes_core.redaction import redact_address

_profiles: Final[Any] = config_profiles
"""Neither this nor the next has types."""
_config: Final[Any] = config


def place_of(options: ModalOptions) -> dict[str, str]:
    """Return the address of the service and the environment, as far as the options and the machine say it."""
    server = options.server_url or _config.get("server_url")
    return {
        "server": redact_address(str(server)),
        "environment": options.environment or _config.get("environment") or "",
    }


def find_credentials(options: ModalOptions) -> tuple[str, tuple[str, str]]:
    """Return the address of the service, and the id and the secret of a token.

    Raises:
        ModalAuthError: There is no token, or half of one.
        ConfigError: The SDK's file has no section of that name.
    """
    profile = options.config_profile
    if profile is not None and profile not in _profiles():
        raise ConfigError(
            f"the SDK's configuration has no profile {profile!r}; it has {', '.join(_profiles()) or 'none'}",
            hint=f"modal token new --profile {profile}",
        )
    # A section that is named goes before the environment; where none is, the environment goes before the file.
    own = {"profile": profile, "use_env": profile is None}
    url = options.server_url or _config.get("server_url")
    if options.token_id is not None:
        given = options.token_secret
        return url, (options.token_id, given.get_secret_value() if given else _secret_of(options.token_id))
    token_id, token_secret = _config.get("token_id", **own), _config.get("token_secret", **own)
    if not token_id or not token_secret:
        found = "there is none" if not token_id and not token_secret else "only half of one is there"
        half = "" if not token_id and not token_secret else ": its secret is missing" if token_id else ": no id"
        raise ModalAuthError(f"Modal needs a token, and {found}{half}", hint=LOG_IN)
    return url, (token_id, token_secret)


def _secret_of(token_id: str) -> str:
    """Find the secret of a token, as for what a killed process has left: its lease has no secret."""
    places: list[dict[str, Any]] = [{"profile": name, "use_env": False} for name in _profiles()]
    if "MODAL_TOKEN_ID" in os.environ:
        places.insert(0, {})
    for place in places:
        if _config.get("token_id", **place) == token_id and (found := _config.get("token_secret", **place)):
            return str(found)
    raise ModalAuthError(f"Modal needs a token, and the secret of {token_id} is not there", hint=LOG_IN)
