"""Draws from toolset distributions: which toolsets a group of rollouts is offered."""

from __future__ import annotations

import random

from hermes_core.contracts.errors import ConfigError
from hermes_core.discovery import Registry
from hermes_core.nearest import did_you_mean
from hermes_core.specs import ToolsetDistributionSpec

_KIND = "toolset_distribution"


def draw_toolsets(registry: Registry, distribution: str, rng: random.Random) -> tuple[str, ...]:
    """Draw each toolset of a distribution on its own; when none is drawn, the most probable one is taken."""
    table = _find(registry, distribution).percentages
    # One number per toolset in table order, drawn or not: a draw depends on the seed alone.
    drawn = tuple(name for name, percent in table.items() if rng.random() * 100 < percent)
    return drawn or (max(table, key=table.__getitem__),)


def _find(registry: Registry, distribution: str) -> ToolsetDistributionSpec:
    names = registry.names(_KIND)
    # Where nothing is declared, the registry's own error says which package has it, or why that is not loaded.
    if names and distribution.rpartition(":")[2] not in names:
        known = ", ".join(names)
        hint = did_you_mean(distribution, names, otherwise=f"choose one of: {known}", most=3, cutoff=0.5)
        raise ConfigError(f"unknown distribution {distribution!r}; known are {known}", hint=hint)
    spec = registry.spec(_KIND, distribution)
    assert isinstance(spec, ToolsetDistributionSpec)
    return spec
