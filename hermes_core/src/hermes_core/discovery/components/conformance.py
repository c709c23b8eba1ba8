"""Check that an imported target can be called as its kind's protocol says."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

_ASYNC_WORDS = ("Awaitable", "Coroutine", "Future", "Task")


def import_target(path: str) -> Any:
    """Import "package.module:attribute", or "package.module"."""
    module_name, _, attribute = path.partition(":")
    return resolve(importlib.import_module(module_name), attribute)


def resolve(owner: Any, attribute: str) -> Any:
    """Follow a dotted attribute; an empty one leads to the owner itself."""
    for part in filter(None, attribute.split(".")):
        owner = getattr(owner, part)
    return owner


def contract_violations(target: Any, protocol: type) -> list[str]:
    """Return what a class or an object lacks to satisfy a protocol; empty if nothing.

    `isinstance` with a runtime protocol compares names only; a wrong signature would show up in the middle of a run.
    """
    found = []
    for name, wanted in vars(protocol).items():
        if name.startswith("_") or not inspect.isfunction(wanted):
            continue
        method = getattr(target, name, None)
        if not callable(method):
            found.append(f"it has no method {name}({', '.join([*inspect.signature(wanted).parameters][1:])})")
        else:
            found += _method_complaints(target, name, method, wanted)
    return found


def _method_complaints(target: Any, name: str, method: Callable[..., Any], wanted: Callable[..., Any]) -> list[str]:
    try:
        signature = inspect.signature(method)
    except ValueError:  # a builtin without a signature cannot be checked
        return []
    given = list(signature.parameters.values())
    is_unbound = inspect.isclass(target) and inspect.isfunction(inspect.getattr_static(target, name))
    given = given[1:] if is_unbound else given
    found = [f"{name} {text}" for text in _parameter_complaints(given, wanted)]
    if inspect.iscoroutinefunction(wanted) and _is_surely_synchronous(method):
        found.append(f"{name} must be 'async def'")
    elif _is_surely_synchronous(wanted) and inspect.iscoroutinefunction(inspect.unwrap(method)):
        found.append(f"{name} must be 'def', not 'async def'")
    return found


def _parameter_complaints(given: list[inspect.Parameter], wanted: Callable[..., Any]) -> list[str]:
    kinds = {parameter.kind for parameter in given}
    names = {parameter.name: parameter for parameter in given}
    expected = list(inspect.signature(wanted).parameters.values())[1:]
    expected_names = {parameter.name for parameter in expected}
    found = [
        f"does not take {parameter.name!r}"
        for parameter in expected
        if parameter.name not in names and not _is_caught(parameter, kinds)
    ]
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return found + [
        f"requires {name!r}, which no caller passes"
        for name, parameter in names.items()
        if name not in expected_names and parameter.default is parameter.empty and parameter.kind not in variadic
    ]


def _is_caught(parameter: inspect.Parameter, kinds: set[Any]) -> bool:
    is_keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter.VAR_KEYWORD in kinds and (is_keyword or inspect.Parameter.VAR_POSITIONAL in kinds)


def _is_surely_synchronous(method: Callable[..., Any]) -> bool:
    function = inspect.unwrap(method)
    if inspect.iscoroutinefunction(function) or not (inspect.isfunction(function) or inspect.ismethod(function)):
        return False
    answer = str(inspect.signature(function).return_annotation)
    # A plain function may return another function's awaitable, if its annotation says so.
    return not any(word in answer for word in _ASYNC_WORDS)
