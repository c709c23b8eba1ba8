"""Toolsets resolved against what is installed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from hermes_core.contracts.errors import AmbiguousComponentError, ConfigError
from hermes_core.discovery import Registry, package_for
from hermes_core.discovery.components.lookup_errors import how_to_get
from hermes_core.nearest import did_you_mean
from hermes_core.specs import ToolsetSpec, ToolSpec

ALL_NAMES: Final = frozenset({"all", "*"})
"""Asks for every installed tool without external side effects; never a default."""


def validate_toolset(registry: Registry, name: str) -> bool:
    """Tell whether a name is a toolset's, its aliases included."""
    name = toolset_name(registry, name)
    return name in ALL_NAMES or is_declared(registry, name) or name in _group_by_toolset(registry)


def is_declared(registry: Registry, name: str) -> bool:
    """Tell whether a plugin declares a toolset of this name, which may have a plugin in front."""
    return name.rpartition(":")[2] in registry.names("toolset")


def toolset_name(registry: Registry, name: str) -> str:
    """Return the name of the toolset that an alias means, and any other name as it is.

    An alias of several toolsets, or one that is a toolset's own name too, is an `AmbiguousComponentError`.
    """
    owners: list[str] = [spec.name for spec in _unambiguous(registry, "toolset") if name in spec.aliases]
    if not owners:
        return name
    if is_declared(registry, name) or name in _group_by_toolset(registry):
        owners.append(name)
    meant = sorted(set(owners))
    if len(meant) > 1:
        raise AmbiguousComponentError(
            f"{name!r} is a name of {len(meant)} toolsets: {', '.join(meant)}",
            hint="name the toolset itself, as PLUGIN:TOOLSET where needed, or leave a plugin out: -p no:PLUGIN",
        )
    return meant[0]


def toolset(registry: Registry, name: str) -> ToolsetSpec:
    """Return a toolset by its name or an alias; an unknown one is a `ConfigError` with near names.

    A declared list is exact: a further plugin whose tool names the same toolset does not join it, so that installing a
    package never changes what a run offers. A toolset that is only named by tools consists of those.
    """
    name = toolset_name(registry, name)
    if is_declared(registry, name):
        spec = registry.spec("toolset", name)
        assert isinstance(spec, ToolsetSpec)
        return spec
    members = _group_by_toolset(registry).get(name)
    if members is None:
        raise _unknown(registry, name)
    return ToolsetSpec(name=name, summary=f"The tools that name the toolset {name}.", tools=tuple(members))


def resolve_toolset(registry: Registry, name: str) -> tuple[str, ...]:
    """List the tools of a toolset, installed or not, following its includes; `all` lists every installed tool."""
    return tuple(dict.fromkeys(tool for tool, _ in walk(registry, name)))


def walk(registry: Registry, name: str, seen: frozenset[str] = frozenset()) -> Iterator[tuple[str, bool]]:
    """Yield each tool with whether a list names it; a toolset that includes itself, at any depth, is met once."""
    if name in ALL_NAMES:
        yield from ((tool, False) for tool in registry.names("tool"))
        return
    spec = toolset(registry, name)
    yield from ((tool, True) for tool in spec.tools)
    for included in spec.includes:
        if included not in seen | {name}:
            yield from walk(registry, included, seen | {name})


def tool_specs(registry: Registry) -> Iterator[ToolSpec]:
    """Yield the tools that have a name of their own; one that two plugins declare fails when it is asked for."""
    return _unambiguous(registry, "tool")


def _unambiguous(registry: Registry, kind: str) -> Iterator[Any]:
    for name in registry.names(kind):
        with contextlib.suppress(AmbiguousComponentError):
            yield registry.spec(kind, name)


def _group_by_toolset(registry: Registry) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for spec in tool_specs(registry):
        groups.setdefault(spec.toolset, []).append(spec.name)
    return groups


def _unknown(registry: Registry, name: str) -> ConfigError:
    known = sorted({*registry.names("toolset"), *_group_by_toolset(registry), "all"})
    package = package_for("toolset", name)
    aliases = [alias for spec in _unambiguous(registry, "toolset") for alias in spec.aliases]
    near = [*known, *aliases, *registry.names("tool")]
    hint = (
        did_you_mean(name, near, otherwise="add the plugin that has it: -p ./FILE.py or -p NAME", most=3, cutoff=0.5)
        if package is None
        else how_to_get(package, registry.plugins)
    )
    return ConfigError(f"unknown toolset {name!r}; known are {', '.join(known)}", hint=hint)
