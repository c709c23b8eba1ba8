"""What an environment prints, logs and sends away of its configuration: everything but the secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_core.contracts.errors import HermesError
from hermes_core.contracts.secrecy import hidden
from hermes_core.discovery import Registry, load_plugins
from hermes_core.discovery.option_secrets import marked

if TYPE_CHECKING:
    from hermes_core.atropos.config import HermesAgentEnvConfig


def displayed(config: HermesAgentEnvConfig) -> dict[str, Any]:
    """Return a configuration as JSON values, with `(withheld)` in the place of each secret."""
    values = config.model_dump(mode="json")
    backend, parser = config.backend_ref(), config.tool_call_parser
    registry: Registry | None = None
    if values["backend_options"] or values["tool_call_parser_options"]:
        try:
            registry = load_plugins(config.plugin_settings())
        except HermesError:
            registry = None  # then none of these options is shown
    values["backend_options"] = marked(registry, "backend", backend.name, values["backend_options"])
    if parser is not None:
        values["tool_call_parser_options"] = marked(registry, "parser", parser, values["tool_call_parser_options"])
    shown: dict[str, Any] = hidden(values)
    return shown
