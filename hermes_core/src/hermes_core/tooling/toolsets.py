"""Toolsets resolved against what is installed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hermes_core.contracts.errors import AmbiguousComponentError, ConfigError
from hermes_core.discovery import Registry
from hermes_core.nearest import did_you_mean
from hermes_core.specs import ToolsetSpec, ToolSpec
from hermes_core.tooling.toolset_table import ALL_NAMES, LEGACY_NAMES


def validate_toolset(registry: Registry, name: str) -> bool:
    """Tell whether a name, current or legacy, is a toolset."""
    name = LEGACY_NAMES.get(name, name)
    return name in ALL_NAMES or name in registry.names("toolset") or name in _group_by_toolset(registry)


def toolset(registry: Registry, name: str) -> ToolsetSpec:
    """Return a toolset by its current or legacy name; an unknown one is a `ConfigError` with near names.

    A declared list is exact: a further plugin whose tool names the same toolset does not join it, so that installing a
    package never changes what a run offers. A toolset that is only named by tools consists of those.
    """
    name = LEGACY_NAMES.get(name, name)
    if name in registry.names("toolset"):
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
    for name in registry.names("tool"):
        with contextlib.suppress(AmbiguousComponentError):
            spec = registry.spec("tool", name)
            assert isinstance(spec, ToolSpec)
            yield spec


def _group_by_toolset(registry: Registry) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for spec in tool_specs(registry):
        groups.setdefault(spec.toolset, []).append(spec.name)
    return groups


def _unknown(registry: Registry, name: str) -> ConfigError:
    known = sorted({*registry.names("toolset"), *_group_by_toolset(registry), "all"})
    near = [*known, *LEGACY_NAMES, *registry.names("tool")]
    hint = did_you_mean(name, near, otherwise="run: hermes-core plugins list", most=3, cutoff=0.5)
    return ConfigError(f"unknown toolset {name!r}; known are {', '.join(known)}", hint=hint)
