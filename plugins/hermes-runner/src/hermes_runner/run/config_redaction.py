"""Removes secrets from the settings that a run prints and writes; see `hermes_core.redaction`."""

from __future__ import annotations

from typing import Any, Final

from hermes_core.discovery import Registry, mark_secrets
from hermes_core.redaction import find_secrets, redact
from hermes_runner.config import RunConfig

_OPEN: Final = frozenset({"plugins", "policy", "tool_result_overrides", "system_prompt"})
"""Not redacted: settings whose keys name plugins, causes or tools, such as `get_token`, and what the model reads."""


def redact_used_settings(config: RunConfig, registry: Registry) -> dict[str, Any]:
    """Return the run's settings as JSON values, without secrets, so that it can continue with another token.

    `backends` contains only the run's backend, because the rollouts depend on no other.
    """
    values = redact_settings(config, registry)
    used = {name: options for name, options in values["backends"].items() if name == config.terminal_backend}
    return {**values, "backends": used}


def redact_settings(config: RunConfig, registry: Registry | None) -> dict[str, Any]:
    """Return all settings as JSON values, without secrets; without a registry, all options are withheld."""
    values = _mark_secrets(config, registry)
    return {name: item if name in _OPEN else redact(item, name) for name, item in values.items()}


def secret_texts(config: RunConfig, registry: Registry) -> frozenset[str]:
    """Return the secret texts of the settings, to remove them from other texts.

    No other text repeats the options of an unused backend. Therefore only those of its options that look like secrets
    are returned, even if it is not installed and any of them could be one.
    """
    values = _mark_secrets(config, registry)
    for name in values["backends"].keys() - {config.terminal_backend}:
        values["backends"][name] = config.backends[name]
    return find_secrets({name: item for name, item in values.items() if name not in _OPEN})


def _mark_secrets(config: RunConfig, registry: Registry | None) -> dict[str, Any]:
    """Return the settings with a `SecretStr` wherever a component declares a secret."""
    values = config.model_dump(mode="json")
    for kind, name, key in (
        ("backend", config.terminal_backend, "backend_options"),
        ("engine", config.engine, "engine_options"),
        ("parser", config.tool_call_parser, "tool_call_parser_options"),
    ):
        if name is not None:
            values[key] = mark_secrets(registry, kind, name, values[key])
    for name, options in values["backends"].items():
        values["backends"][name] = mark_secrets(registry, "backend", name, options)
    for kind, components in values["options"].items():
        values["options"][kind] = {name: mark_secrets(registry, kind, name, one) for name, one in components.items()}
    for sink in values["sinks"]:
        sink["options"] = mark_secrets(registry, "sink", sink["name"], sink["options"])
    return values
