"""Find address, environment and token of the service in the options, the environment and the SDK's file."""

from __future__ import annotations

import os
from typing import Any, Final

from modal.config import config, config_profiles

from hermes_backend_modal.failures import LOG_IN, ModalAuthError
from hermes_backend_modal.options import ModalOptions
from hermes_core.contracts.errors import ConfigError
from hermes_core.redaction import redact_address

_profiles: Final[Any] = config_profiles
"""This and the next name have no types."""
_config: Final[Any] = config


def place_of(options: ModalOptions) -> dict[str, str]:
    """Return the service's address and environment, as far as options and machine define them."""
    server = options.server_url or _config.get("server_url")
    return {
        "server": redact_address(str(server)),
        "environment": options.environment or _config.get("environment") or "",
    }


def find_credentials(options: ModalOptions) -> tuple[str, tuple[str, str]]:
    """Return the service's address, and the id and secret of a token.

    Raises:
        ModalAuthError: The token is missing or incomplete.
        ConfigError: The SDK's file has no section of that name.
    """
    profile = options.config_profile
    if profile is not None and profile not in _profiles():
        raise ConfigError(
            f"the SDK's configuration has no profile {profile!r}; it has {', '.join(_profiles()) or 'none'}",
            hint=f"modal token new --profile {profile}",
        )
    # A configured section wins over the environment; otherwise the environment wins over the file.
    own = {"profile": profile, "use_env": profile is None}
    url = options.server_url or _config.get("server_url")
    if options.token_id is not None:
        given = options.token_secret
        return url, (options.token_id, given.get_secret_value() if given else _secret_of(options.token_id))
    token_id, token_secret = _config.get("token_id", **own), _config.get("token_secret", **own)
    if not token_id or not token_secret:
        found = "none" if not token_id and not token_secret else "half of one"
        half = "" if not token_id and not token_secret else ": its secret is missing" if token_id else ": no id"
        raise ModalAuthError(f"expected a token for Modal, got {found}{half}", hint=LOG_IN)
    return url, (token_id, token_secret)


def _secret_of(token_id: str) -> str:
    """Find the secret of a token, for example to reclaim a sandbox, because leases have no secrets."""
    places: list[dict[str, Any]] = [{"profile": name, "use_env": False} for name in _profiles()]
    if "MODAL_TOKEN_ID" in os.environ:
        places.insert(0, {})
    for place in places:
        if _config.get("token_id", **place) == token_id and (found := _config.get("token_secret", **place)):
            return str(found)
    raise ModalAuthError(f"expected the secret of Modal's token {token_id}, got none", hint=LOG_IN)
