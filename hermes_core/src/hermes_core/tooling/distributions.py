"""Distributions: toolsets with the probability that a group of rollouts is offered each."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from hermes_core.contracts.errors import ConfigError
from hermes_core.nearest import did_you_mean

_SEVEN: Final = ("web", "vision", "image_gen", "terminal", "file", "moa", "browser")

DISTRIBUTIONS: Final[Mapping[str, Mapping[str, int]]] = {
    "default": dict.fromkeys(_SEVEN, 100),
    "image_gen": {"image_gen": 90, "vision": 90, "web": 55, "terminal": 45, "moa": 10},
    "research": {"web": 90, "browser": 70, "vision": 50, "moa": 40, "terminal": 10},
    "science": {"web": 94, "terminal": 94, "file": 94, "vision": 65, "browser": 50, "image_gen": 15, "moa": 10},
    "development": {"terminal": 80, "file": 80, "moa": 60, "web": 30, "vision": 10},
    "safe": {"web": 80, "browser": 70, "vision": 60, "image_gen": 60, "moa": 50},
    "balanced": dict.fromkeys(_SEVEN, 50),
    "minimal": {"web": 100},
    "terminal_only": {"terminal": 100, "file": 100},
    "terminal_web": {"terminal": 100, "file": 100, "web": 100},
    "creative": {"image_gen": 90, "vision": 90, "web": 30},
    "reasoning": {"moa": 90, "web": 30, "terminal": 20},
    "browser_use": {"browser": 100, "web": 80, "vision": 70},
    "browser_only": {"browser": 100},
    "browser_tasks": {"browser": 97, "vision": 12, "terminal": 15},
    "terminal_tasks": {"terminal": 97, "file": 97, "web": 97, "browser": 75, "vision": 50, "image_gen": 10},
    "mixed_tasks": {"browser": 92, "terminal": 92, "file": 92, "web": 35, "vision": 15, "image_gen": 15},
}
"""Percentages per toolset; the draws are independent of each other."""


def draw_toolsets(distribution: str, rng: random.Random) -> tuple[str, ...]:
    """Draw each toolset of a distribution on its own; when none is drawn, the most probable one is taken."""
    table = DISTRIBUTIONS.get(distribution)
    if table is None:
        known = ", ".join(sorted(DISTRIBUTIONS))
        hint = did_you_mean(distribution, DISTRIBUTIONS, otherwise=f"choose one of: {known}", most=3, cutoff=0.5)
        raise ConfigError(f"unknown distribution {distribution!r}; known are {known}", hint=hint)
    # One number per toolset in table order, drawn or not: a draw depends on the seed alone.
    drawn = tuple(name for name, percent in table.items() if rng.random() * 100 < percent)
    return drawn or (max(table, key=table.__getitem__),)
