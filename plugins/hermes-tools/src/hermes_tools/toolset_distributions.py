"""hermes-agent's toolset distributions, with its names and percentages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hermes_core.specs import ToolsetDistributionSpec

_SEVEN: Final = ("web", "vision", "image_gen", "terminal", "file", "moa", "browser")


def _of(name: str, summary: str, percentages: Mapping[str, int]) -> ToolsetDistributionSpec:
    return ToolsetDistributionSpec(name=name, summary=summary, percentages=percentages)


# A seed draws in the order of these tables: to swap two entries changes which toolsets a seed selects.
TOOLSET_DISTRIBUTIONS: Final[tuple[ToolsetDistributionSpec, ...]] = (
    _of("default", "All seven toolsets, always.", dict.fromkeys(_SEVEN, 100)),
    _of(
        "image_gen",
        "Creating and viewing images.",
        {"image_gen": 90, "vision": 90, "web": 55, "terminal": 45, "moa": 10},
    ),
    _of("research", "The web and the browser.", {"web": 90, "browser": 70, "vision": 50, "moa": 40, "terminal": 10}),
    _of(
        "science",
        "The web, a terminal and files.",
        {"web": 94, "terminal": 94, "file": 94, "vision": 65, "browser": 50, "image_gen": 15, "moa": 10},
    ),
    _of(
        "development",
        "A terminal, files and other models.",
        {"terminal": 80, "file": 80, "moa": 60, "web": 30, "vision": 10},
    ),
    _of(
        "safe",
        "Everything but terminal and files.",
        {"web": 80, "browser": 70, "vision": 60, "image_gen": 60, "moa": 50},
    ),
    _of("balanced", "All seven toolsets, each for half of the groups.", dict.fromkeys(_SEVEN, 50)),
    _of("minimal", "The web alone.", {"web": 100}),
    _of("terminal_only", "Terminal and files.", {"terminal": 100, "file": 100}),
    _of("terminal_web", "Terminal, files and the web.", {"terminal": 100, "file": 100, "web": 100}),
    _of("creative", "Images, with some web.", {"image_gen": 90, "vision": 90, "web": 30}),
    _of("reasoning", "Mostly other models.", {"moa": 90, "web": 30, "terminal": 20}),
    _of("browser_use", "The browser, mostly with the web and vision.", {"browser": 100, "web": 80, "vision": 70}),
    _of("browser_only", "The browser alone.", {"browser": 100}),
    _of("browser_tasks", "The browser, rarely more.", {"browser": 97, "vision": 12, "terminal": 15}),
    _of(
        "terminal_tasks",
        "Terminal, files and the web, often with a browser.",
        {"terminal": 97, "file": 97, "web": 97, "browser": 75, "vision": 50, "image_gen": 10},
    ),
    _of(
        "mixed_tasks",
        "Browser, terminal and files.",
        {"browser": 92, "terminal": 92, "file": 92, "web": 35, "vision": 15, "image_gen": 15},
    ),
)
