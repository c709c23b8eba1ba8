"""What a run says and writes down of its settings: everything but the secrets; see `contracts.secrecy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_core.contracts.errors import HermesError
from hermes_core.contracts.secrecy import declared, hidden, texts, unknown
from hermes_core.discovery import Registry
from hermes_core.runner.config import RunConfig


def recorded(config: RunConfig, registry: Registry) -> dict[str, Any]:
    """Return the settings as JSON values, without secrets: a run goes on with another token.

    Of `backends` only the one that is used, which is all that the rollouts depend on.
    """
    values = displayed(config, registry)
    used = {name: options for name, options in values["backends"].items() if name == config.terminal_backend}
    return {**values, "backends": used}


def displayed(config: RunConfig, registry: Registry | None) -> dict[str, Any]:
    """Return all settings as JSON values, without secrets; without a registry no option of a component is shown."""
    shown: dict[str, Any] = hidden(_marked(config, registry))
    return shown


def secret_texts(config: RunConfig, registry: Registry) -> frozenset[str]:
    """Return the secrets of the settings themselves, for those to whom they come back within another text."""
    return texts(_marked(config, registry))


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


def marked(registry: Registry | None, kind: str, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a component's options with a `SecretStr` for each secret: for all, where it cannot be known which are."""
    model = _model(registry, kind, name) if options else None
    if registry is None or model is None:
        return unknown(options)
    # Options of a component that is made of others: `parts` gives those by the paths of their own options.
    try:
        parts = model.model_validate(dict(options)).parts() if hasattr(model, "parts") else {}
    except Exception:  # noqa: BLE001 - the plugin boundary: a validator is the author's code
        return unknown(options)
    found = declared(options, model)
    for path, part in parts.items():
        found = _replaced(found, path.split("."), marked(registry, part.kind, part.name, part.options))
    return found


def _model(registry: Registry | None, kind: str, name: str) -> Any:
    if registry is None:
        return None
    try:
        return getattr(registry.load(kind, name), "Options", None)
    except HermesError:
        return None


def _replaced(value: Any, path: list[str], new: Any) -> Any:
    if not path:
        return new
    step, *rest = path
    if isinstance(value, Mapping):
        return {name: _replaced(item, rest, new) if name == step else item for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(item, rest, new) if str(n) == step else item for n, item in enumerate(value)]
    return value
