"""The costs of trying a backend. Nothing is spent on a backend that was not named, and other costs are announced."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from hermes_core.discovery import Registry
    from hermes_core.specs import BackendSpec


def costs_of(registry: Registry, name: str, options: Mapping[str, Any]) -> str:
    """Return the costs of trying a backend with these options as text, or "" if there are none.

    They include those of the backends that this backend consists of.
    """
    from hermes_core.contracts.errors import HermesError

    with contextlib.suppress(HermesError):  # the same error is reported when the backend is tried
        own = cast("BackendSpec", registry.spec("backend", name)).trying_costs
        parts = (part for part in _parts(registry, name, options) if part.kind == "backend")
        theirs = [costs_of(registry, part.name, part.options) for part in parts]
        return "; it ".join(dict.fromkeys(filter(None, [own, *theirs])))
    return ""


def tell_costs(registry: Registry, name: str, options: Mapping[str, Any]) -> None:
    """Announce on standard error the costs of trying a backend, if there are any."""
    if costs := costs_of(registry, name, options):
        sys.stderr.write(f"trying {name}: it {costs}\n")


def not_tried(name: str, costs: str, command: str) -> tuple[str, str]:
    """Return why a backend that was not named is not tried, and the command that tries it."""
    return f"trying it costs something: it {costs}", f"{command} {name} tries it"


def options_that_fetch_nothing(registry: Registry, name: str) -> Mapping[str, Any]:
    """Return options that prevent pulling an image: images are large, and the one of a future run is not known."""
    model = _options_model(registry, name)
    return {"pull": "never"} if "pull" in getattr(model, "model_fields", {}) else {}


def _parts(registry: Registry, name: str, options: Mapping[str, Any]) -> list[Any]:
    model = _options_model(registry, name)
    if not hasattr(model, "parts"):
        return []
    try:
        return list(model.model_validate(dict(options)).parts().values())
    except Exception:  # noqa: BLE001 - the plugin boundary: a validator is the plugin author's code
        return []


def _options_model(registry: Registry, name: str) -> Any:
    from hermes_core.contracts.errors import HermesError

    try:
        return getattr(registry.load("backend", name), "Options", None)
    except HermesError:  # the same error is reported when the backend is created
        return None
