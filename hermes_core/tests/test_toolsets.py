"""Toolsets, distributions and the selection of a group's tools."""

from __future__ import annotations

import dataclasses
import json
import random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.contracts.errors import AmbiguousComponentError, ConfigError
from hermes_core.discovery import Component, PluginSettings, load_plugins
from hermes_core.specs import ToolsetSpec, ToolSpec
from hermes_core.tooling.distributions import DISTRIBUTIONS, draw_toolsets
from hermes_core.tooling.selection import select_tools
from hermes_core.tooling.toolset_table import LEGACY_NAMES, TOOLSETS
from hermes_core.tooling.toolsets import resolve_toolset, validate_toolset
from hermes_tools import TOOLS

STATEFUL = ("terminal_stateful", "tmux")
CORE = ("terminal", "process", "read_file", "write_file", "patch", "search_files")


def tool(name, toolset, **more):
    return ToolSpec(
        name=name, summary="s", target="a.b:C", toolset=toolset, description="d", parameters={"type": "object"}, **more
    )


def registry_of(tools=TOOLS, toolsets=TOOLSETS):
    """The part of the registry's interface that selection relies on."""
    held = {"tool": tuple(tools), "toolset": tuple(toolsets)}
    return SimpleNamespace(
        names=lambda kind: tuple(spec.name for spec in held[kind]),
        spec=lambda kind, name: next(spec for spec in held[kind] if spec.name == name),
        component=lambda kind, name: Component(
            kind=kind, spec=next(spec for spec in held[kind] if spec.name == name), plugin=None
        ),
    )


def selected(registry, **arguments):
    return select_tools(registry, **arguments).names


def test_naming_nothing_offers_terminal_and_file_only():
    """Predecessor 2.1 #13: no toolset named exposed every tool there was."""
    registry = registry_of([*TOOLS, tool("send_mail", "mail", side_effects="external")])
    assert selected(registry) == CORE


def test_all_must_be_asked_for_and_leaves_out_external_tools():
    """Predecessor 2.1 #13: messaging and scheduling tools were offered to models in training."""
    registry = registry_of([*TOOLS, tool("send_mail", "mail", side_effects="external")])
    chosen = select_tools(registry, enabled_toolsets=["all"])
    assert set(chosen.names) == {*CORE, "todo", *STATEFUL}
    assert any("send_mail" in reason for reason in chosen.skipped)
    assert set(selected(registry, enabled_toolsets=["*"])) == {*CORE, "todo", *STATEFUL}


@pytest.mark.parametrize("names", [["mail"], ["send_mail"], ["all", "mail"], ["mail", "all"], ["all", "send_mail"]])
def test_an_external_tool_is_offered_when_it_or_its_toolset_is_named(names):
    registry = registry_of([*TOOLS, tool("send_mail", "mail", side_effects="external")])
    assert "send_mail" in selected(registry, enabled_toolsets=names)


def test_a_group_has_one_immutable_selection():
    """Predecessor 2.1 #1: groups that ran at the same time all got the tools of the last one."""
    registry = registry_of()
    first = select_tools(registry, enabled_toolsets=["terminal"])
    second = select_tools(registry, enabled_toolsets=["file"])
    assert (first.names, second.names) == (CORE[:2], CORE[2:])
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.specs = ()
    assert [entry["function"]["name"] for entry in json.loads(second.schemas.encoded)] == list(CORE[2:])


def test_a_draw_depends_on_the_seed_alone():
    """Predecessor 2.1 #1: the draw came from the global random generator and was not recorded."""
    registry = registry_of()
    random.seed(1)
    before = random.getstate()
    draws = [select_tools(registry, distribution="terminal_tasks", seed=seed).drawn for seed in range(40)]
    assert random.getstate() == before
    assert draws == [select_tools(registry, distribution="terminal_tasks", seed=seed).drawn for seed in range(40)]
    assert len(set(draws)) > 3


def test_the_predecessors_percentages_are_kept():
    assert DISTRIBUTIONS["science"] == {
        "web": 94, "terminal": 94, "file": 94, "vision": 65, "browser": 50, "image_gen": 15, "moa": 10
    }  # fmt: skip
    assert set(DISTRIBUTIONS["default"].values()) == {100}
    assert set(DISTRIBUTIONS["balanced"].values()) == {50}
    assert len(DISTRIBUTIONS["balanced"]) == 7
    assert len(DISTRIBUTIONS) == 17
    assert DISTRIBUTIONS["browser_tasks"] == {"browser": 97, "vision": 12, "terminal": 15}


@pytest.mark.parametrize("name", sorted(DISTRIBUTIONS))
def test_every_toolset_of_a_distribution_is_drawn_with_its_percentage(name):
    rng = random.Random(7)
    draws = [draw_toolsets(name, rng) for _ in range(3000)]
    table = DISTRIBUTIONS[name]
    nobody = 1.0
    for percent in table.values():
        nobody *= 1 - percent / 100
    for toolset, percent in table.items():
        share = 100 * sum(toolset in draw for draw in draws) / len(draws)
        extra = 100 * nobody if toolset == max(table, key=table.get) else 0
        assert abs(share - percent - extra) < 4


def test_when_nothing_is_drawn_the_most_probable_toolset_is_taken():
    never = SimpleNamespace(random=lambda: 0.9999)
    assert draw_toolsets("balanced", never) == ("web",)
    assert draw_toolsets("browser_tasks", never) == ("browser",)


def test_an_unknown_distribution_names_near_ones():
    with pytest.raises(ConfigError, match="terminal_tasks"):
        select_tools(registry_of(), distribution="terminal_task")


def test_toolsets_and_a_distribution_exclude_each_other():
    with pytest.raises(ConfigError, match="exclude each other"):
        select_tools(registry_of(), enabled_toolsets=["file"], distribution="minimal")


def test_a_drawn_toolset_that_is_not_installed_is_skipped_and_recorded():
    chosen = select_tools(registry_of(), distribution="terminal_web")
    assert chosen.names == CORE
    assert chosen.drawn == ("terminal", "file", "web")
    assert any(reason.startswith("web:") and "hermes-tools-web" in reason for reason in chosen.skipped)
    assert any("web_extract" in reason for reason in chosen.skipped)


@pytest.mark.parametrize("distribution", ["browser_only", "minimal"])
def test_nothing_left_is_an_error_that_names_the_package(distribution):
    with pytest.raises(ConfigError, match="pip install hermes-tools-"):
        select_tools(registry_of(), distribution=distribution)
    with pytest.raises(ConfigError, match="vision_analyze"):
        select_tools(registry_of(), enabled_toolsets=["vision"])


def test_an_empty_list_offers_no_tools_on_purpose():
    chosen = select_tools(registry_of(), enabled_toolsets=[])
    assert chosen.specs == ()
    assert chosen.schemas.encoded == b""


def test_an_unknown_toolset_names_near_ones():
    for arguments in ({"enabled_toolsets": ["terminl"]}, {"disabled_toolsets": ["terminl"]}):
        with pytest.raises(ConfigError, match="did you mean 'terminal'"):
            select_tools(registry_of(), **arguments)
    for key in ("enabled_toolsets", "disabled_toolsets"):
        with pytest.raises(ConfigError, match=f"{key} is a list"):
            select_tools(registry_of(), **{key: "terminal"})
    assert selected(registry_of(), disabled_toolsets=None) == CORE


def test_disabled_toolsets_are_taken_away_at_the_end():
    assert selected(registry_of(), enabled_toolsets=["all"], disabled_toolsets=["file_tools"]) == (
        "terminal",
        "process",
        "todo",
        *STATEFUL,
    )
    assert selected(registry_of(), disabled_toolsets=["patch"]) == (
        "terminal",
        "process",
        "read_file",
        "write_file",
        "search_files",
    )
    with pytest.raises(ConfigError, match="removes every tool"):
        select_tools(registry_of(), disabled_toolsets=["all"])


@pytest.mark.parametrize(("legacy", "name"), sorted(LEGACY_NAMES.items()))
def test_legacy_names_mean_their_toolset(legacy, name):
    assert validate_toolset(registry_of(), legacy)
    assert resolve_toolset(registry_of(), legacy) == resolve_toolset(registry_of(), name)


def test_legacy_names_are_recorded_under_the_current_one():
    assert select_tools(registry_of(), enabled_toolsets=["terminal_tools", "terminal"]).drawn == ("terminal",)


def test_includes_are_followed():
    registry = registry_of()
    assert resolve_toolset(registry, "default") == ("terminal", "process", "read_file", "write_file")
    assert set(resolve_toolset(registry, "debugging")) >= {"terminal", "web_search", "patch"}
    assert set(resolve_toolset(registry, "full")) >= {*CORE, "todo", "tmux"}


@given(st.dictionaries(st.sampled_from("abcd"), st.lists(st.sampled_from("abcd"), max_size=4), min_size=4))
@settings(max_examples=60, deadline=None)
def test_toolsets_that_include_each_other_in_circles_resolve(graph):
    toolsets = [ToolsetSpec(name=n, summary="s", tools=(f"t{n}",), includes=tuple(i)) for n, i in graph.items()]
    registry = registry_of([], toolsets)
    reachable, queue = set(), ["a"]
    while queue:
        name = queue.pop()
        if name not in reachable:
            reachable.add(name)
            queue += graph[name]
    assert set(resolve_toolset(registry, "a")) == {f"t{name}" for name in reachable}


def test_a_plugin_does_not_join_a_declared_toolset_silently():
    chosen = select_tools(registry_of([*TOOLS, tool("shred", "file")]))
    assert chosen.names == CORE
    assert any(reason.startswith("shred:") for reason in chosen.skipped)


def test_tools_of_a_toolset_nobody_declared_are_reached_by_its_name():
    registry = registry_of([*TOOLS, tool("one", "acme"), tool("two", "acme")])
    assert selected(registry, enabled_toolsets=["acme"]) == ("one", "two")
    assert resolve_toolset(registry, "acme") == ("one", "two")


def test_the_declared_tools_are_what_the_model_reads():
    assert [spec.name for spec in TOOLS] == [*CORE, "todo", *STATEFUL]
    for spec in TOOLS:
        assert spec.parameters["additionalProperties"] is False
        assert all(schema.get("description") for schema in spec.parameters["properties"].values())
    # Predecessor 2.1 #14: calls of one turn ran one after another, whatever they did.
    assert {spec.name for spec in TOOLS if spec.parallel_safe} == {"read_file", "search_files"}
    assert next(spec for spec in TOOLS if spec.name == "read_file").max_result_size_chars == -1


def test_the_installed_plugins_give_the_default_selection():
    assert selected(load_plugins()) == CORE


PLUGIN = """
from hermes_core import hookimpl
from hermes_core.specs import ToolSpec

@hookimpl
def hermes_tools():
    def tool(name, **more):
        return ToolSpec(
            name=name, summary="s", target="a.b:C", toolset="acme", description="d",
            parameters={"type": "object"}, **more
        )
    return [tool("one"), tool("needy", requires=("env:ACME_KEY",)), tool("mail", side_effects="external")]
"""


async def test_a_tool_whose_requirement_is_missing_is_skipped_with_the_reason(tmp_path):
    plugin = tmp_path / "acme_tools.py"
    plugin.write_text(PLUGIN)
    registry = load_plugins(
        PluginSettings(allow=("hermes-agent-core", "hermes-sandbox", "hermes-tools"), extra=(str(plugin),)), environ={}
    )
    chosen = select_tools(registry, enabled_toolsets=["acme"])
    assert chosen.names == ("mail", "one")
    assert any(reason.startswith("needy: ") and "ACME_KEY" in reason for reason in chosen.skipped)
    assert set(select_tools(registry, enabled_toolsets=["all"]).names) >= {*CORE, "todo", "one"}
    assert "mail" not in select_tools(registry, enabled_toolsets=["all"]).names
    available = load_plugins(
        PluginSettings(allow=("hermes-agent-core", "hermes-sandbox", "hermes-tools"), extra=(str(plugin),)),
        environ={"ACME_KEY": "x"},
    )
    assert "needy" in select_tools(available, enabled_toolsets=["acme"]).names


async def test_a_tool_that_two_plugins_declare_fails_only_when_it_is_meant(tmp_path):
    for name in ("acme_first", "acme_second"):
        (tmp_path / f"{name}.py").write_text(PLUGIN)
    extra = tuple(str(tmp_path / f"{name}.py") for name in ("acme_first", "acme_second"))
    registry = load_plugins(
        PluginSettings(allow=("hermes-agent-core", "hermes-sandbox", "hermes-tools"), extra=extra), environ={}
    )
    assert select_tools(registry).names == CORE
    with pytest.raises(AmbiguousComponentError):
        select_tools(registry, enabled_toolsets=["all"])
