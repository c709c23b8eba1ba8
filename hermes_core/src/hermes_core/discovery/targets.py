"""From a declared component to the imported and checked class, and to an object built from options."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Never

from hermes_core.contracts.errors import BrokenComponentError, ConfigError, HermesError
from hermes_core.contracts.secrecy import WITHHELD, declared, hidden, shown
from hermes_core.discovery.components import Component, ComponentState
from hermes_core.discovery.conformance import complaints, import_target, resolve
from hermes_core.specs import ComponentSpec

Build = Callable[[str, str, Mapping[str, Any]], Any]
"""Makes another component: kind, name, options. As `Registry.create`, with the same errors."""


def load(component: Component, protocol: str | None) -> Any:
    """Import the component's target and check it; its state becomes ready or broken."""
    spec = component.spec
    if not isinstance(spec, ComponentSpec):
        raise ConfigError(f"a {component.kind} is a declaration only; {spec.name!r} has nothing to load")
    # The plugin boundary: importing runs the author's code, which may raise anything, sys.exit included.
    try:
        target = _import(component, spec.target)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - wrapped with its cause, see above
        _break(component, _import_reason(spec.target, error), error)
    # A factory function says nothing about what it builds; its product is checked when it is created.
    if isinstance(target, type) or not callable(target):
        check(component, target, protocol)
    component.state, component.reason, component.target = ComponentState.READY, "", target
    return target


def check(component: Component, target: Any, protocol: str | None) -> None:
    """Raise `BrokenComponentError` unless the target has the methods its kind's protocol asks for."""
    if protocol is not None and (lacks := complaints(target, import_target(protocol))):
        _break(component, f"it does not satisfy {protocol.rpartition(':')[2]}: {'; '.join(lacks)}", None)


def create(
    component: Component, target: Any, options: Mapping[str, Any], protocol: str | None, build: Build | None = None
) -> Any:
    """Validate the options and build the object; one that says `takes_build` is given `build`, for its own parts."""
    arguments = _arguments(component, getattr(target, "Options", None), options)
    if not callable(target):
        return target
    try:
        built = target(*arguments, build=build) if getattr(target, "takes_build", False) else target(*arguments)
    except HermesError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the plugin boundary: a constructor is the author's code
        _break(component, f"building it failed: {_text(error)}", error)
    if not isinstance(target, type):
        check(component, built, protocol)
    return built


def _import(component: Component, target: str) -> Any:
    found = component.plugin.found
    module, _, attribute = target.partition(":")
    if found.path is not None and module == found.name:
        # A file that was named by its path is in no package; its own stem means the module that was loaded from it.
        return resolve(component.plugin.module, attribute)
    return import_target(target)


def _arguments(component: Component, model: Any, options: Mapping[str, Any]) -> tuple[Any, ...]:
    if model is None:
        if options:
            raise ConfigError(f"{component.label} takes no options, found: {', '.join(map(str, options))}")
        return ()
    _refuse_unknown(component, model, options)
    from pydantic import ValidationError

    try:
        return (model.model_validate(dict(options)),)
    except ValidationError as error:
        # Without its cause, whose text repeats the options.
        raise ConfigError(
            f"the options of {component.label} are wrong: {_explain(error, declared(options, model))}",
            hint=_known_options(model),
        ) from None
    except Exception as error:  # noqa: BLE001 - the plugin boundary: a validator is the author's code
        _break(component, f"validating its options failed: {shown(_text(error))}", error)


def _refuse_unknown(component: Component, model: Any, options: Mapping[str, Any]) -> None:
    # pydantic ignores unknown keys unless told otherwise: a misspelt option would have no effect and no message.
    names = _option_names(model)
    unknown = [str(key) for key in options if key not in names]
    if not unknown or model.model_config.get("extra") == "allow":
        return
    import difflib

    near = difflib.get_close_matches(unknown[0], names, 1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    raise ConfigError(
        f"{component.label} has no option {', '.join(map(repr, unknown))}", hint=guess + _known_options(model)
    )


def _option_names(model: Any) -> list[str]:
    fields = model.model_fields.items()
    aliases = [
        alias for _, field in fields for alias in (field.alias, field.validation_alias) if isinstance(alias, str)
    ]
    return [*(name for name, _ in fields), *aliases]


def _known_options(model: Any) -> str:
    return f"known options: {', '.join(model.model_fields) or 'none'}"


def _explain(error: Any, options: Mapping[str, Any]) -> str:
    problems = []
    for item in error.errors(include_url=False, include_context=False):
        where = ".".join(str(part) for part in item["loc"]) or "the options together"
        is_missing = item["type"] == "missing"
        found = _found(item["input"], item["loc"], options)
        # A validator may repeat what it was given.
        message = item["msg"].replace(str(item["input"]), WITHHELD) if found == repr(WITHHELD) else shown(item["msg"])
        said = f"{where}: {message}, found {found}"
        problems.append(f"{where} is missing" if is_missing else said)
    return "; ".join(problems)


def _found(value: Any, place: Sequence[Any], options: Mapping[str, Any]) -> str:
    """Show a wrong value, unless it is a secret by its place among the options, or holds some."""
    at: Any = hidden(options)
    for step in place:
        if (isinstance(at, Mapping) and step in at) or (
            isinstance(at, list) and isinstance(step, int) and step < len(at)
        ):
            at = at[step]
        elif at != WITHHELD:
            # What a validator has made of the options, or one of a union's kinds.
            return f"{hidden(value, str(step))!r:.100}"
    return f"{at!r:.100}"


def _import_reason(target: str, error: BaseException) -> str:
    module = target.partition(":")[0]
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
        return f"its target {target} does not exist (no module {error.name!r})"
    if isinstance(error, ModuleNotFoundError):
        return f"importing {target} failed: the module {error.name!r}, which it needs, is not installed"
    if isinstance(error, AttributeError) and module in sys.modules:
        return f"its target {target} does not exist ({error})"
    return f"importing {target} failed: {_text(error)}"


def _break(component: Component, reason: str, error: BaseException | None) -> Never:
    component.state, component.reason = ComponentState.BROKEN, reason
    raise BrokenComponentError(
        f"{component.label} of {component.plugin.id} is broken: {reason}",
        hint=f"the cause in full: hermes-core plugins doctor; repair or upgrade {component.plugin.found.distribution}",
    ) from error


def _text(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r})"
    return f"{type(error).__name__}: {error}"
