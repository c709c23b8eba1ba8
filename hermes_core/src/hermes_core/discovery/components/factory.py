"""Import a declared component's class, check it, and build an object from options."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from inspect import getattr_static
from typing import Any, Never

from hermes_core.contracts.errors import BrokenComponentError, ConfigError, HermesError
from hermes_core.discovery.components.component import Component, ComponentState
from hermes_core.discovery.components.conformance import contract_violations, import_target, resolve
from hermes_core.discovery.components.option_schema import OptionSchema
from hermes_core.nearest import did_you_mean
from hermes_core.redaction.scrubber import SecretScrubber
from hermes_core.redaction.secrets import find_secrets, redact, redact_text, validation_message
from hermes_core.specs import ComponentSpec

Build = Callable[[str, str, Mapping[str, Any]], Any]
"""Makes another component from kind, name and options, like `Registry.create` and with the same errors."""


def load(component: Component, protocol: str | None) -> Any:
    """Import the component's target, unless that is done, and check it; its state becomes ready or broken."""
    spec = component.spec
    if not isinstance(spec, ComponentSpec):
        raise ConfigError(f"{component.kind} {spec.name!r} is a declaration only, and has nothing to load")
    # The plugin boundary: importing runs the author's code, which may raise anything, sys.exit included.
    try:
        target = _import(component, spec.target)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - wrapped with its cause, see above
        _break(component, _import_reason(component, spec.target, error), error)
    if component.kind in {"cli_command", "service"} and hasattr(target, "Options"):
        _break(component, "it declares Options, which nothing sets: a command has arguments, a service none", None)
    # A factory function says nothing about what it builds; its product is checked when it is created.
    if isinstance(target, type) or not callable(target):
        check(component, target, protocol)
    component.state, component.reason, component.target = ComponentState.READY, "", target
    return target


def check(component: Component, target: Any, protocol: str | None) -> None:
    """Raise `BrokenComponentError` unless the target has the methods its kind's protocol asks for."""
    if protocol is not None and (lacks := contract_violations(target, import_target(protocol))):
        _break(component, f"it does not satisfy {protocol.rpartition(':')[2]}: {'; '.join(lacks)}", None)


def create(component: Component, options: Mapping[str, Any], protocol: str | None, build: Build, place: str) -> Any:
    """Validate the options and build the object; a class with `takes_build` gets `build`, to make its parts.

    The component is loaded; `place` is where its options are set. No error contains one that is declared as a secret.
    """
    model = getattr(component.target, "Options", None)
    _refuse_unknown(component, model, options)
    try:
        return _create(component, _arguments(component, model, options, place), protocol, build)
    except HermesError as error:
        if model is not None:
            secrets = SecretScrubber(find_secrets(OptionSchema(model).mark(options)))
            component.reason = secrets.text(component.reason)
            secrets.error(error)
        raise


def _create(component: Component, arguments: tuple[Any, ...], protocol: str | None, build: Build) -> Any:
    target = component.target
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
    if component.target is not None:
        return component.target
    found = component.plugin.found
    module, _, attribute = target.partition(":")
    if found.path is not None and module == found.name:
        # A file named by its path is in no package; its stem means the module that was loaded from it.
        return resolve(component.plugin.module, attribute)
    return import_target(target)


def _arguments(component: Component, model: Any, options: Mapping[str, Any], place: str) -> tuple[Any, ...]:
    if model is None:
        return ()
    from pydantic import ValidationError

    try:
        return (model.model_validate(dict(options)),)
    except ValidationError as error:
        # Without its cause, whose text repeats the options.
        raise _explain(component, error, model, options, place) from None
    except Exception as error:  # noqa: BLE001 - the plugin boundary: a validator is the author's code
        _break(component, f"validating its options failed: {redact_text(_text(error))}", error)


def _refuse_unknown(component: Component, model: Any, options: Mapping[str, Any]) -> None:
    if model is None and options:
        raise ConfigError(f"{component.label} takes no options, got: {', '.join(map(str, options))}")
    if model is None or model.model_config.get("extra") == "allow":
        return
    # pydantic ignores unknown keys by default: a misspelt option would have no effect and no message.
    names = _option_names(model)
    unknown = [str(key) for key in options if key not in names]
    if unknown:
        hint = did_you_mean(unknown[0], names, also=_known_options(list(model.model_fields)))
        raise ConfigError(f"{component.label} has no option {', '.join(map(repr, unknown))}", hint=hint)


def _option_names(model: Any) -> list[str]:
    fields = model.model_fields
    others = (alias for field in fields.values() for alias in (field.alias, field.validation_alias))
    return [*fields, *(alias for alias in others if isinstance(alias, str))]


def _known_options(names: Sequence[str], where: str = "") -> str:
    return f"known options{where and f' of {where}'}: {', '.join(names) or 'none'}"


def _explain(component: Component, error: Any, model: Any, options: Mapping[str, Any], place: str) -> ConfigError:
    """Return an error about options, with a hint for the level of an unknown one, or of the first problem."""
    schema = OptionSchema(model)
    found = redact(schema.mark(options))
    items = error.errors(include_url=False, include_context=False)
    problems = "; ".join(redact_text(_problem(item, found)) for item in items)
    unknown = [item for item in items if item["type"] == "extra_forbidden"]
    *level, name = [*unknown, *items][0]["loc"] or ("",)
    while level and not schema.names_at(level):
        level.pop()
    names = schema.names_at(level)
    every = _known_options(names, ".".join(map(str, level)))
    hint = did_you_mean(str(name), names, also=every) if unknown else every
    missing = [str(item["loc"][0]) for item in items if item["type"] == "missing" and len(item["loc"]) == 1]
    if place and not unknown and missing:
        place = place.replace("KIND", component.kind).replace("NAME", component.spec.name)
        hint = f"in a run: {place.replace('KEY: …', ', '.join(f'{key}: …' for key in missing))}; {every}"
    return ConfigError(f"the options of {component.label} are wrong: {problems}", hint=hint)


def _problem(item: Mapping[str, Any], found: Any) -> str:
    where = ".".join(map(str, item["loc"])) or "the options together"
    if item["type"] == "missing":
        return f"{where} is missing"
    if item["type"] == "extra_forbidden":
        return f"unknown option {where!r}"
    for step in item["loc"]:
        # A step that is not in the options is pydantic's name for a union's member, or was made by a validator.
        if (isinstance(found, Mapping) and step in found) or (
            isinstance(found, list) and isinstance(step, int) and step < len(found)
        ):
            found = found[step]
    return f"{where}: {validation_message(item, f'{found!r:.100}')}"


def _import_reason(component: Component, target: str, error: BaseException) -> str:
    module = target.partition(":")[0]
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
        return f"its target {target} does not exist (no module {error.name!r})"
    if isinstance(error, ModuleNotFoundError):
        return f"importing {target} failed: the module {error.name!r}, which it needs, is not installed"
    if isinstance(error, AttributeError) and error.obj is not None and _is_of_target(error, component, target):
        near = did_you_mean(str(error.name), dir(error.obj))
        return f"its target {target} does not exist (no attribute {error.name!r}{near and f'; {near}'})"
    return f"importing {target} failed: {_text(error)}"


def _is_of_target(error: AttributeError, component: Component, target: str) -> bool:
    """Tell whether the attribute is missing in the target's module or a part of the target, not in what they use."""
    module, _, attribute = target.partition(":")
    owners = [component.plugin.module, sys.modules.get(module)]
    for part in attribute.split("."):
        if any(error.obj is owner for owner in owners):
            return error.name == part
        owners = [getattr_static(owner, part, None) for owner in owners]
    return False


def _break(component: Component, reason: str, error: BaseException | None) -> Never:
    component.state, component.reason = ComponentState.BROKEN, reason
    found = component.plugin.found
    hint = f"--debug prints the cause; repair or upgrade {found.value if found.is_local else found.distribution}"
    if not component.plugin.declared:
        hint = f"repair the object of {found.name} that was passed to with_component"
    raise BrokenComponentError(f"{component.label} of {component.plugin.id} is broken: {reason}", hint=hint) from error


def _text(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r})"
    return f"{type(error).__name__}: {error}"
