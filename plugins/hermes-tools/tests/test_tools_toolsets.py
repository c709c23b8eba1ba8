"""hermes-agent's toolsets and distributions: its names, its percentages, and the same draws for a seed."""

from __future__ import annotations

import pytest

from hermes_core.discovery import PluginSettings, known_names, load_plugins, package_for
from hermes_core.tooling import resolve_toolset, select_tools, validate_toolset

REGISTRY = load_plugins(PluginSettings(allow=("hermes-tools",), strict=True), environ={})
PERCENTAGES = {spec.name: spec.to_json()["percentages"] for spec in REGISTRY.specs("toolset_distribution")}
OLDER_NAMES = {
    "web_tools": "web", "terminal_tools": "terminal", "vision_tools": "vision", "moa_tools": "moa",
    "image_tools": "image_gen", "skills_tools": "skills", "browser_tools": "browser", "cronjob_tools": "cronjob",
    "rl_tools": "rl", "file_tools": "file", "tts_tools": "tts",
}  # fmt: skip


def test_hermes_agents_percentages_are_kept():
    assert PERCENTAGES["science"] == {
        "web": 94, "terminal": 94, "file": 94, "vision": 65, "browser": 50, "image_gen": 15, "moa": 10
    }  # fmt: skip
    assert set(PERCENTAGES["default"].values()) == {100}
    assert set(PERCENTAGES["balanced"].values()) == {50}
    assert len(PERCENTAGES["balanced"]) == 7
    assert len(PERCENTAGES) == 17
    assert PERCENTAGES["browser_tasks"] == {"browser": 97, "vision": 12, "terminal": 15}


@pytest.mark.parametrize(
    ("distribution", "seed", "drawn"),
    [
        ("balanced", 2, "vision file browser"),
        ("balanced", 3, "web file moa browser"),
        ("balanced", 4, "vision image_gen terminal browser"),
        ("science", 0, "web terminal file browser image_gen"),
        ("science", 1, "web terminal file image_gen"),
        ("science", 2, "web terminal file vision browser"),
        ("development", 0, "file moa web"),
        ("development", 1, "terminal file moa vision"),
        ("development", 2, "file"),
        ("terminal_tasks", 0, "terminal file web vision"),
        ("terminal_tasks", 1, "terminal file web browser"),
        ("terminal_tasks", 2, "terminal file web browser"),
        ("mixed_tasks", 0, "browser terminal file"),
        ("mixed_tasks", 1, "browser terminal file image_gen"),
        ("mixed_tasks", 2, "browser terminal vision"),
    ],
)
def test_a_seed_draws_the_same_toolsets_in_every_version(distribution, seed, drawn):
    assert select_tools(REGISTRY, distribution=distribution, seed=seed).drawn == tuple(drawn.split())


@pytest.mark.parametrize("distribution", PERCENTAGES)
def test_a_distribution_draws_from_declared_toolsets_only(distribution):
    assert [name for name in PERCENTAGES[distribution] if name not in REGISTRY.names("toolset")] == []


@pytest.mark.parametrize(("older", "name"), sorted(OLDER_NAMES.items()))
def test_an_older_name_means_its_toolset(older, name):
    assert validate_toolset(REGISTRY, older)
    assert resolve_toolset(REGISTRY, older) == resolve_toolset(REGISTRY, name)


@pytest.mark.parametrize("kind", ["toolset", "toolset_distribution"])
def test_the_core_knows_which_package_brings_each_name(kind):
    assert sorted(known_names(kind)) == list(REGISTRY.names(kind))
    assert {package_for(kind, name) for name in REGISTRY.names(kind)} == {"hermes-tools"}
