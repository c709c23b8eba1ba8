"""What trying a backend costs: nothing may be spent on one that nobody has named, and of others it is said first."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from hermes_core.discovery import Registry
    from hermes_core.specs import BackendSpec


def costs_of(registry: Registry, name: str, options: Mapping[str, Any]) -> str:
    """Return what trying a backend with these options does that costs something, "" for nothing.

    A backend that is made of others costs what these do.
    """
    from hermes_core.contracts.errors import HermesError

    with contextlib.suppress(HermesError):  # which tells of itself when the backend is tried
        own = cast("BackendSpec", registry.spec("backend", name)).trying_costs
        parts = (part for part in _parts(registry, name, options) if part.kind == "backend")
        theirs = [costs_of(registry, part.name, part.options) for part in parts]
        return "; it ".join(dict.fromkeys(filter(None, [own, *theirs])))
    return ""


def tell_costs(registry: Registry, name: str, options: Mapping[str, Any]) -> None:
    """Say on standard error what is about to be done, where that costs something."""
    if costs := costs_of(registry, name, options):
        sys.stderr.write(f"trying {name}: it {costs}\n")


def not_tried(name: str, costs: str, command: str) -> tuple[str, str]:
    """Return why a backend that nobody has named is not tried, and what to type."""
    return f"trying it costs something: it {costs}", f"{command} {name} tries it"


def options_that_fetch_nothing(registry: Registry, name: str) -> Mapping[str, Any]:
    """Return options with which no image is pulled: nobody has said which one a run would use, and they are large."""
    model = _options_model(registry, name)
    return {"pull": "never"} if "pull" in getattr(model, "model_fields", {}) else {}


def _parts(registry: Registry, name: str, options: Mapping[str, Any]) -> list[Any]:
    model = _options_model(registry, name)
    if not hasattr(model, "parts"):
        return []
    try:
        return list(model.model_validate(dict(options)).parts().values())
    except Exception:  # noqa: BLE001 - the plugin boundary: a validator is the author's code; nothing is made of these
        return []


def _options_model(registry: Registry, name: str) -> Any:
    from hermes_core.contracts.errors import HermesError

    try:
        return getattr(registry.load("backend", name), "Options", None)
    except HermesError:  # which tells of itself when the backend is made
        return None
