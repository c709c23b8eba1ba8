"""Redact an environment's configuration for display, logs and reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from hermes_core.contracts.errors import HermesError
from hermes_core.discovery import Registry, load_plugins, mark_secrets
from hermes_core.redaction import SecretScrubber, find_secrets, redact

if TYPE_CHECKING:
    from pydantic import BaseModel

    from hermes_atropos.config import HermesAgentEnvConfig

_READ_BY_MODEL: Final = frozenset({"system_prompt", "custom_thinking_prompt"})


def redact_config(config: HermesAgentEnvConfig) -> dict[str, Any]:
    """Return a configuration as JSON values, with `(withheld)` in the place of each secret."""
    registry: Registry | None = None
    if config.backend_options or config.tool_call_parser_options:
        try:
            registry = load_plugins(config.plugin_settings())
        except HermesError:
            registry = None  # then all these options are withheld
    return {
        name: item if name in _READ_BY_MODEL else redact(item, name)
        for name, item in _mark_secrets(config, registry).items()
    }


def scrubber_of(config: HermesAgentEnvConfig, servers: Sequence[BaseModel], registry: Registry) -> SecretScrubber:
    """Return the scrubber for the secrets of a configuration and its model servers in an engine's messages."""
    said = [server.model_dump(mode="json") for server in servers]
    values = {name: item for name, item in _mark_secrets(config, registry).items() if name not in _READ_BY_MODEL}
    return SecretScrubber(find_secrets(values) | find_secrets(said))


def _mark_secrets(config: HermesAgentEnvConfig, registry: Registry | None) -> dict[str, Any]:
    values: dict[str, Any] = config.model_dump(mode="json")
    backend, parser = config.backend_ref(), config.tool_call_parser
    values["backend_options"] = mark_secrets(registry, "backend", backend.name, values["backend_options"])
    if parser is not None:
        values["tool_call_parser_options"] = mark_secrets(
            registry, "parser", parser, values["tool_call_parser_options"]
        )
    return values
