"""What a run writes down of its settings: everything but the secrets among its backend's options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from hermes_core.contracts.errors import HermesError
from hermes_core.discovery import Registry
from hermes_core.runner.config import RunConfig
from hermes_core.sandbox.leases import public_options
from hermes_core.specs import Ref

_WITHHELD: Final = "(withheld)"


def recorded(config: RunConfig, registry: Registry) -> dict[str, Any]:
    """Return the settings as JSON values, without secrets: a run goes on with another token.

    Of `backends` only the one that is used: what is secret among the options of others, only those know.
    """
    values = config.model_dump(mode="json")
    secrets = _secrets(config.backend_ref(), registry)
    used = {name: options for name, options in values["backends"].items() if name == config.terminal_backend}
    values["backend_options"] = _without(values["backend_options"], secrets)
    values["backends"] = {name: _without(options, secrets) for name, options in used.items()}
    return values


def _secrets(ref: Ref, registry: Registry) -> tuple[str, ...]:
    """Return the paths of the secret options, as "jump.0.password"; all of them, where that cannot be known."""
    if not ref.options:
        return ()
    try:
        model = getattr(registry.load(ref.kind, ref.name), "Options", None)
        if model is None:
            return ()
        options = model.model_validate(dict(ref.options))
    except (HermesError, ValueError):
        return tuple(map(str, ref.options))
    # Options of a component that is made of others: `parts` gives those by the paths of their own options.
    parts: Mapping[str, Ref] = options.parts() if hasattr(options, "parts") else {}
    inner = (f"{path}.{name}" for path, part in parts.items() for name in _secrets(part, registry))
    return (*public_options(options)[1], *inner)


def _without(options: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    kept = dict(options)
    for path in paths:
        name, _, rest = path.partition(".")
        if name in kept:
            kept[name] = _masked(kept[name], rest)
    return kept


def _masked(value: Any, path: str) -> Any:
    name, _, rest = path.partition(".")
    if isinstance(value, Mapping) and name in value:
        return {**value, name: _masked(value[name], rest)}
    if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        return [_masked(item, rest) if index == int(name) else item for index, item in enumerate(value)]
    # Also where the option was written in another form than its own.
    return _WITHHELD
