"""Which options of a component are secret: those its `Options` declare, and those of the components inside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes_core.contracts.errors import HermesError
from hermes_core.discovery.components.option_schema import OptionSchema, mark_all
from hermes_core.redaction.scrubber import SecretScrubber
from hermes_core.redaction.secrets import find_secrets

if TYPE_CHECKING:
    from hermes_core.discovery.registry import Registry


def mark_secrets(registry: Registry | None, kind: str, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a component's options with a `SecretStr` for each secret; for all of them if it is unknown which are."""
    if registry is None or not options or (model := _model(registry, kind, name)) is None:
        return {name: mark_all(item) for name, item in options.items()}
    # A component may contain others: `parts` gives these by the paths of their options.
    try:
        parts = model.model_validate(dict(options)).parts() if hasattr(model, "parts") else {}
    except Exception:  # noqa: BLE001 - the plugin boundary: a validator is the author's code
        return {name: mark_all(item) for name, item in options.items()}
    found = OptionSchema(model).mark(options)
    for path, part in parts.items():
        found = _replace_at(found, path.split("."), mark_secrets(registry, part.kind, part.name, part.options))
    return found


def scrubber_for(registry: Registry, kind: str, name: str, options: Mapping[str, Any]) -> SecretScrubber:
    """Return a scrubber that removes the secrets of a component's options from its messages."""
    return SecretScrubber(find_secrets(mark_secrets(registry, kind, name, options)))


def _model(registry: Registry, kind: str, name: str) -> Any:
    try:
        return getattr(registry.load(kind, name), "Options", None)
    except HermesError:
        return None


def _replace_at(value: Any, path: list[str], new: Any) -> Any:
    if not path:
        return new
    step, *rest = path
    if isinstance(value, Mapping):
        return {name: _replace_at(item, rest, new) if name == step else item for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_at(item, rest, new) if str(n) == step else item for n, item in enumerate(value)]
    return value
