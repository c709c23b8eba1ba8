"""Choosing the tools that one group of rollouts is offered."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.model import ToolSchemas
from hermes_core.discovery import Registry
from hermes_core.discovery.components.suggestions import package_for
from hermes_core.specs import ToolsetDistributionSpec, ToolSpec
from hermes_core.tooling import toolsets

DEFAULT_TOOLSETS = ("terminal", "file")
"""Offered when a run names nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSelection:
    """What a group is offered: resolved once, immutable, handed to every rollout of the group.

    `drawn` are the toolsets asked for or drawn; `skipped` says which tools or toolsets were left out and why.
    """

    specs: tuple[ToolSpec, ...]
    schemas: ToolSchemas
    drawn: tuple[str, ...]
    skipped: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The tools' names, in the order the model sees them."""
        return self.schemas.names


def select_tools(
    registry: Registry,
    *,
    enabled_toolsets: Sequence[str] | None = None,
    disabled_toolsets: Sequence[str] | None = (),
    distribution: str | None = None,
    seed: int = 0,
) -> ToolSelection:
    """Resolve a group's tools; the same arguments and the same plugins always give the same selection.

    `enabled_toolsets` may also name single tools; an empty sequence offers none. `all` never includes a tool with
    external side effects. `seed` is the group's, used for the draw alone.
    """
    drawn = _draw(registry, enabled_toolsets, distribution, seed)
    chosen, skipped = _find_installed(registry, drawn)
    if drawn and not chosen:
        raise _nothing_left(registry, drawn, skipped)
    removed = {tool for name in _names("disabled_toolsets", disabled_toolsets) for tool, _ in _members(registry, name)}
    kept = tuple(spec for spec in chosen if spec.name not in removed)
    if chosen and not kept:
        raise ConfigError(
            f"disabled_toolsets removes every tool of {', '.join(drawn)}",
            hint="set enabled_toolsets: [] to offer no tools on purpose",
        )
    schemas = ToolSchemas.of([spec.openai_schema() for spec in kept])
    return ToolSelection(specs=kept, schemas=schemas, drawn=drawn, skipped=tuple(skipped))


def _draw(registry: Registry, enabled: Sequence[str] | None, distribution: str | None, seed: int) -> tuple[str, ...]:
    if enabled is not None and distribution is not None:
        raise ConfigError(
            f"enabled_toolsets ({', '.join(enabled)}) and distribution ({distribution!r}) exclude each other",
            hint="remove one of the two",
        )
    if distribution is not None:
        # Seeded by text: neighbouring group seeds give independent draws, on every Python version the same. A plugin in
        # front of the name changes no draw.
        rng = random.Random(f"{distribution.rpartition(':')[2]}/{seed}")  # noqa: S311 - a draw, not a secret
        return draw_toolsets(registry, distribution, rng)
    names = DEFAULT_TOOLSETS if enabled is None else _names("enabled_toolsets", enabled)
    return tuple(dict.fromkeys(toolsets.toolset_name(registry, name) for name in names))


def draw_toolsets(registry: Registry, distribution: str, rng: random.Random) -> tuple[str, ...]:
    """Draw each toolset of a distribution on its own; when none is drawn, the most probable one is taken."""
    spec = registry.spec("toolset_distribution", distribution)
    assert isinstance(spec, ToolsetDistributionSpec)
    table = spec.percentages
    # One number per toolset in table order, drawn or not: a draw depends on the seed alone.
    drawn = tuple(name for name, percent in table.items() if rng.random() * 100 < percent)
    return drawn or (max(table, key=table.__getitem__),)


def _names(key: str, names: Sequence[str] | None) -> Sequence[str]:
    if isinstance(names, str):
        raise ConfigError(f"{key}: expected a list of names, got the text {names!r}", hint=f"{key}: [{names}]")
    return names or ()


def _members(registry: Registry, name: str) -> list[tuple[str, bool]]:
    if not toolsets.validate_toolset(registry, name) and name in registry.names("tool"):
        return [(name, True)]
    return list(toolsets.walk(registry, name))


def _find_installed(registry: Registry, drawn: tuple[str, ...]) -> tuple[list[ToolSpec], list[str]]:
    members = {name: _members(registry, name) for name in drawn}
    # A tool is named when any of the toolsets lists it, wherever `all` may have met it before.
    named = {tool for pairs in members.values() for tool, listed in pairs if listed}
    installed = frozenset(registry.names("tool"))
    chosen: dict[str, ToolSpec] = {}
    skipped: list[str] = []
    for name, pairs in members.items():
        tools = list(dict.fromkeys(tool for tool, _ in pairs))
        skipped += _absent(name, tools, installed) + _outside(registry, name, tools)
        for tool in tools:
            if tool not in installed or tool in chosen:
                continue
            component = registry.component("tool", tool)
            spec = component.spec
            assert isinstance(spec, ToolSpec)
            if component.state == "unavailable":
                skipped.append(f"{tool}: cannot be used here: {component.reason}")
            elif spec.side_effects == "external" and tool not in named:
                skipped.append(f"{tool}: acts outside the sandbox; name it or its toolset to offer it")
            else:
                chosen[tool] = spec
    return list(chosen.values()), list(dict.fromkeys(skipped))


def _absent(name: str, tools: list[str], installed: frozenset[str]) -> list[str]:
    absent = [tool for tool in tools if tool not in installed]
    if not absent:
        return []
    which = "none of its tools is installed" if len(absent) == len(tools) else "not installed"
    packages = _packages_of(absent)
    hint = f" (pip install {' '.join(packages)})" if packages else ""
    return [f"{name}: {which}: {', '.join(absent)}{hint}"]


def _outside(registry: Registry, name: str, tools: list[str]) -> list[str]:
    if name in toolsets.ALL_NAMES or not toolsets.is_declared(registry, name):
        return []
    bare = name.rpartition(":")[2]
    strangers = [spec.name for spec in toolsets.tool_specs(registry) if spec.toolset == bare and spec.name not in tools]
    return [f"{tool}: says it is of toolset {name}, which does not list it; name the tool" for tool in strangers]


def _packages_of(tools: Iterable[str]) -> list[str]:
    return sorted({package for tool in tools if (package := package_for("tool", tool))})


def _nothing_left(registry: Registry, drawn: tuple[str, ...], skipped: list[str]) -> ConfigError:
    sets = [name for name in drawn if toolsets.validate_toolset(registry, name)]
    wanted = [tool for name in sets for tool in toolsets.resolve_toolset(registry, name)]
    packages = _packages_of(wanted)
    hint = (
        f"pip install {' '.join(packages)}, or admit it in HERMES_PLUGINS or 'plugins.allow' if it is installed"
        if packages
        else "install a plugin that declares one of these tools, or choose other toolsets"
    )
    reasons = "; ".join(skipped) or "they are empty"
    return ConfigError(f"no tool of {', '.join(drawn)} can be offered: {reasons}", hint=hint)
