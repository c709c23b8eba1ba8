"""What a run says and writes down of its settings: everything but the secrets; see `contracts.secrecy`."""

from __future__ import annotations

from typing import Any, Final

from hermes_core.contracts.secrecy import hidden, texts
from hermes_core.discovery import Registry
from hermes_core.discovery.option_secrets import marked
from hermes_runner.config import RunConfig

_OPEN: Final = frozenset({"plugins", "policy", "tool_result_overrides", "system_prompt"})
"""Settings whose keys are names of plugins, causes and tools, as a tool `get_token`; and what the model reads."""


def recorded(config: RunConfig, registry: Registry) -> dict[str, Any]:
    """Return the settings as JSON values, without secrets: a run goes on with another token.

    Of `backends` only the one that is used, which is all that the rollouts depend on.
    """
    values = displayed(config, registry)
    used = {name: options for name, options in values["backends"].items() if name == config.terminal_backend}
    return {**values, "backends": used}


def displayed(config: RunConfig, registry: Registry | None) -> dict[str, Any]:
    """Return all settings as JSON values, without secrets; without a registry no option of a component is shown."""
    values = _marked(config, registry)
    return {name: item if name in _OPEN else hidden(item, name) for name, item in values.items()}


def secret_texts(config: RunConfig, registry: Registry) -> frozenset[str]:
    """Return the secrets of the settings themselves, for those to whom they come back within another text.

    Options of backends that are not used come back to nobody: of those of which nothing is known, none is looked for.
    """
    values = _marked(config, registry)
    for name in values["backends"].keys() - {config.terminal_backend}:
        values["backends"][name] = config.backends[name]
    return texts({name: item for name, item in values.items() if name not in _OPEN})


def _marked(config: RunConfig, registry: Registry | None) -> dict[str, Any]:
    """Return the settings with a `SecretStr` wherever a component declares a secret."""
    values = config.model_dump(mode="json")

    values["backend_options"] = marked(registry, "backend", config.terminal_backend, values["backend_options"])
    values["backends"] = {name: marked(registry, "backend", name, given) for name, given in values["backends"].items()}
    values["engine_options"] = marked(registry, "engine", config.engine, values["engine_options"])
    parser = config.tool_call_parser
    if parser is not None:
        values["tool_call_parser_options"] = marked(registry, "parser", parser, values["tool_call_parser_options"])
    for sink in values["sinks"]:
        sink["options"] = marked(registry, "sink", sink["name"], sink["options"])
    return values
