"""Toolsets, distributions and the selection of a group's tools."""

from __future__ import annotations

import dataclasses
import json
import random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.contracts.errors import AmbiguousComponentError, ConfigError, UnknownComponentError
from hermes_core.discovery import Component, PluginSettings, load_plugins
from hermes_core.specs import ToolsetSpec, ToolSpec
from hermes_core.tooling import resolve_toolset, select_tools, validate_toolset
from hermes_core.tooling.selection import draw_toolsets
from hermes_tools import TOOLS

INSTALLED = load_plugins(PluginSettings(allow=("hermes-tools",), strict=True), environ={})
TOOLSETS = INSTALLED.specs("toolset")
DISTRIBUTIONS = INSTALLED.specs("toolset_distribution")

STATEFUL = ("terminal_stateful", "tmux")
CORE = ("terminal", "process", "read_file", "write_file", "patch", "search_files")


def tool(name, toolset, **more):
    return ToolSpec(
        name=name, summary="s", target="a.b:C", toolset=toolset, description="d", parameters={"type": "object"}, **more
    )


def registry_of(tools=TOOLS, toolsets=TOOLSETS):
    """The part of the registry's interface that selection relies on."""
    held = {"tool": tuple(tools), "toolset": tuple(toolsets), "toolset_distribution": DISTRIBUTIONS}
    return SimpleNamespace(
        names=lambda kind: tuple(spec.name for spec in held[kind]),
        spec=lambda kind, name: next(spec for spec in held[kind] if spec.name == name),
        component=lambda kind, name: Component(
            kind=kind, spec=next(spec for spec in held[kind] if spec.name == name), plugin=None
        ),
    )


def names_of_tools(registry, **arguments):
    return select_tools(registry, **arguments).names


def test_naming_nothing_offers_terminal_and_file_only():
    """hermes-agent's defect: no toolset named exposed every tool there was."""
    registry = registry_of([*TOOLS, tool("send_mail", "mail", side_effects="external")])
    assert names_of_tools(registry) == CORE


def test_all_must_be_asked_for_and_leaves_out_external_tools():
    """hermes-agent's defect: messaging and scheduling tools were offered to models in training."""
    registry = registry_of([*TOOLS, tool("send_mail", "mail", side_effects="external")])
    chosen = select_tools(registry, enabled_toolsets=["all"])
    assert set(chosen.names) == {*CORE, "todo", *STATEFUL}
    assert any("send_mail" in reason for reason in chosen.skipped)
    assert set(names_of_tools(registry, enabled_toolsets=["*"])) == {*CORE, "todo", *STATEFUL}


@pytest.mark.parametrize("names", [["mail"], ["send_mail"], ["all", "mail"], ["mail", "all"], ["all", "send_mail"]])
def test_an_external_tool_is_offered_when_it_or_its_toolset_is_named(names):
    registry = registry_of([*TOOLS, tool("send_mail", "mail", side_effects="external")])
    assert "send_mail" in names_of_tools(registry, enabled_toolsets=names)


def test_a_group_has_one_immutable_selection():
    """hermes-agent's defect: groups that ran at the same time all got the tools of the last one."""
    registry = registry_of()
    first = select_tools(registry, enabled_toolsets=["terminal"])
    second = select_tools(registry, enabled_toolsets=["file"])
    assert (first.names, second.names) == (CORE[:2], CORE[2:])
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.specs = ()
    assert [entry["function"]["name"] for entry in json.loads(second.schemas.encoded)] == list(CORE[2:])


def test_a_draw_depends_on_the_seed_alone():
    """hermes-agent's defect: the draw came from the global random generator and was not recorded."""
    registry = registry_of()
    random.seed(1)
    before = random.getstate()
    draws = [select_tools(registry, distribution="terminal_tasks", seed=seed).drawn for seed in range(40)]
    assert random.getstate() == before
    assert draws == [select_tools(registry, distribution="terminal_tasks", seed=seed).drawn for seed in range(40)]
    assert len(set(draws)) > 3


MIX = """
@hookimpl
def hermes_tools():
    return [
        ToolSpec(
            name=name, summary="s", target="a.b:C", toolset=name, description="d", parameters={"type": "object"}
        )
        for name in ("often", "seldom", "never", "always")
    ]

@hookimpl
def hermes_toolset_distributions():
    percentages = {"often": 80, "seldom": 10, "never": 0}
    return [
        ToolsetDistributionSpec(name="mix", summary="s", percentages=percentages),
        ToolsetDistributionSpec(name="mixed", summary="s", percentages={**percentages, "always": 100}),
    ]
"""


def test_every_toolset_of_a_strangers_distribution_is_drawn_with_its_percentage(site, load):
    registry = load(site.install("acme-mix", MIX))
    rng = random.Random(7)
    draws = [draw_toolsets(registry, "mixed", rng) for _ in range(3000)]
    for toolset, percent in {"often": 80, "seldom": 10, "never": 0, "always": 100}.items():
        assert abs(100 * sum(toolset in draw for draw in draws) / len(draws) - percent) < 4
    chosen = select_tools(registry, distribution="mixed", seed=1)
    assert chosen.names == chosen.drawn
    assert chosen.names[-1] == "always"


def test_when_nothing_is_drawn_the_most_probable_toolset_is_taken(site, load):
    never = SimpleNamespace(random=lambda: 0.9999)
    assert draw_toolsets(load(site.install("acme-mix", MIX)), "mix", never) == ("often",)


def test_one_number_is_drawn_for_each_toolset_in_the_order_of_the_table(site, load):
    numbers = iter([0.9, 0.05, 0.0, 0.0])
    ordered = SimpleNamespace(random=lambda: next(numbers))
    assert draw_toolsets(load(site.install("acme-mix", MIX)), "mixed", ordered) == ("seldom", "always")
    assert list(numbers) == []


def test_a_distribution_that_two_plugins_declare_is_an_error_that_names_both(site, load):
    plugins = [site.install(name, MIX) for name in ("acme-mix", "other-mix")]
    with pytest.raises(AmbiguousComponentError) as caught:
        select_tools(load(*plugins), distribution="mix")
    assert "is declared by 2 plugins: acme-mix:mix, other-mix:mix" in str(caught.value)
    assert 'prefer: {"toolset_distribution:mix": "acme-mix"}' in str(caught.value)
    settled = load(*plugins, prefer={"toolset_distribution:mix": "acme-mix"})
    never = SimpleNamespace(random=lambda: 0.9999)
    assert draw_toolsets(settled, "mix", never) == ("often",)
    assert draw_toolsets(load(*plugins), "other-mix:mix", never) == ("often",)


def test_what_no_loaded_plugin_declares_names_the_package_that_does(load):
    with pytest.raises(UnknownComponentError, match="hermes-tools has it, and is not in the allow-list"):
        select_tools(load(), distribution="science")
    with pytest.raises(ConfigError, match="hermes-tools has it, and is not in the allow-list"):
        select_tools(load())


def test_an_unknown_distribution_names_near_ones():
    for name in ("terminal_task", "hermes-tools:terminal_task"):
        with pytest.raises(UnknownComponentError, match="did you mean 'terminal_tasks'") as caught:
            select_tools(INSTALLED, distribution=name)
        assert str(caught.value).count("terminal_web") <= 1


def test_a_distribution_draws_the_same_with_its_plugin_in_front():
    for seed in range(20):
        short, long = (
            select_tools(INSTALLED, distribution=name, seed=seed).drawn
            for name in ("terminal_tasks", "hermes-tools:terminal_tasks")
        )
        assert short == long


def test_toolsets_and_a_distribution_exclude_each_other():
    with pytest.raises(ConfigError, match="exclude each other"):
        select_tools(registry_of(), enabled_toolsets=["file"], distribution="minimal")


def test_a_drawn_toolset_that_is_not_installed_is_skipped_and_recorded():
    chosen = select_tools(registry_of(), distribution="terminal_web")
    assert chosen.names == CORE
    assert chosen.drawn == ("terminal", "file", "web")
    assert any(reason.startswith("web:") and "web_extract" in reason for reason in chosen.skipped)


@pytest.mark.parametrize("distribution", ["browser_only", "minimal"])
def test_nothing_left_is_an_error_that_names_the_tools(distribution):
    with pytest.raises(ConfigError, match=r"none of its tools is installed: [a-z_, ]*web_search"):
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
        with pytest.raises(ConfigError, match=f"{key}: expected a list"):
            select_tools(registry_of(), **{key: "terminal"})
    assert names_of_tools(registry_of(), disabled_toolsets=None) == CORE


def test_disabled_toolsets_are_taken_away_at_the_end():
    assert names_of_tools(registry_of(), enabled_toolsets=["all"], disabled_toolsets=["file_tools"]) == (
        "terminal",
        "process",
        "todo",
        *STATEFUL,
    )
    assert names_of_tools(registry_of(), disabled_toolsets=["patch"]) == (
        "terminal",
        "process",
        "read_file",
        "write_file",
        "search_files",
    )
    with pytest.raises(ConfigError, match="removes every tool"):
        select_tools(registry_of(), disabled_toolsets=["all"])


def registry_with_aliases(*toolsets):
    """A registry of two tools and of toolsets, given as name, tool and aliases."""
    specs = [ToolsetSpec(name=name, summary="s", tools=(one,), aliases=aliases) for name, one, *aliases in toolsets]
    return registry_of([tool("one", "own"), tool("two", "own")], specs)


def test_an_alias_means_its_toolset_wherever_a_toolset_is_named():
    registry = registry_with_aliases(("first", "one", "1st"), ("second", "two", "2nd", "other"))
    assert validate_toolset(registry, "1st")
    assert resolve_toolset(registry, "other") == resolve_toolset(registry, "second") == ("two",)
    assert names_of_tools(registry, enabled_toolsets=["first", "2nd"], disabled_toolsets=["other"]) == ("one",)


def test_an_alias_is_recorded_under_the_name_of_its_toolset():
    registry = registry_with_aliases(("first", "one", "1st"))
    assert select_tools(registry, enabled_toolsets=["1st", "first"]).drawn == ("first",)


@pytest.mark.parametrize(
    ("toolsets", "name"),
    [
        ((("first", "one", "both"), ("second", "two", "both")), "both"),
        ((("first", "one", "second"), ("second", "two")), "second"),
        ((("first", "one", "own"),), "own"),
    ],
)
def test_a_name_of_two_toolsets_is_an_error_that_names_both(toolsets, name):
    with pytest.raises(AmbiguousComponentError, match=f"'{name}' is a name of 2 toolsets: first, (second|own)"):
        select_tools(registry_with_aliases(*toolsets), enabled_toolsets=[name])


def test_an_alias_that_is_another_toolsets_name_leaves_that_one_its_qualified_name(site, load):
    declare = (
        "@hookimpl\ndef hermes_toolsets():\n    return [ToolsetSpec(name='web_tools', summary='', tools=('mine',))]"
    )
    plugin = site.install("acme-web", declare)
    registry = load(plugin, "hermes-tools")
    with pytest.raises(AmbiguousComponentError, match="'web_tools' is a name of 2 toolsets: web, web_tools"):
        resolve_toolset(registry, "web_tools")
    assert resolve_toolset(registry, "acme-web:web_tools") == ("mine",)
    assert resolve_toolset(registry, "web") == ("web_search", "web_extract")


def test_a_toolset_that_two_plugins_declare_is_reached_by_its_qualified_name(site, load):
    declare = "@hookimpl\ndef hermes_toolsets():\n    return [ToolsetSpec(name='web', summary='', tools=('mine',))]"
    registry = load(site.install("acme-web", declare), "hermes-tools")
    with pytest.raises(AmbiguousComponentError, match="write acme-web:web in place of web"):
        select_tools(registry, enabled_toolsets=["web"])
    assert resolve_toolset(registry, "acme-web:web") == ("mine",)


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
    assert names_of_tools(registry, enabled_toolsets=["acme"]) == ("one", "two")
    assert resolve_toolset(registry, "acme") == ("one", "two")


def test_the_declared_tools_are_what_the_model_reads():
    assert [spec.name for spec in TOOLS] == [*CORE, "todo", *STATEFUL]
    for spec in TOOLS:
        assert spec.parameters["additionalProperties"] is False
        assert all(schema.get("description") for schema in spec.parameters["properties"].values())
    # hermes-agent's defect: calls of one turn ran one after another, whatever they did.
    assert {spec.name for spec in TOOLS if spec.parallel_safe} == {"read_file", "search_files"}
    assert next(spec for spec in TOOLS if spec.name == "read_file").max_result_size_chars == -1


def test_the_installed_plugins_give_the_default_selection():
    assert names_of_tools(load_plugins()) == CORE


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
    registry = load_plugins(PluginSettings(allow=("hermes-sandbox", "hermes-tools"), extra=(str(plugin),)), environ={})
    chosen = select_tools(registry, enabled_toolsets=["acme"])
    assert chosen.names == ("mail", "one")
    assert any(reason.startswith("needy: ") and "ACME_KEY" in reason for reason in chosen.skipped)
    assert set(select_tools(registry, enabled_toolsets=["all"]).names) >= {*CORE, "todo", "one"}
    assert "mail" not in select_tools(registry, enabled_toolsets=["all"]).names
    available = load_plugins(
        PluginSettings(allow=("hermes-sandbox", "hermes-tools"), extra=(str(plugin),)),
        environ={"ACME_KEY": "x"},
    )
    assert "needy" in select_tools(available, enabled_toolsets=["acme"]).names


async def test_a_tool_that_two_plugins_declare_fails_only_when_it_is_meant(tmp_path):
    for name in ("acme_first", "acme_second"):
        (tmp_path / f"{name}.py").write_text(PLUGIN)
    extra = tuple(str(tmp_path / f"{name}.py") for name in ("acme_first", "acme_second"))
    registry = load_plugins(PluginSettings(allow=("hermes-sandbox", "hermes-tools"), extra=extra), environ={})
    assert select_tools(registry).names == CORE
    with pytest.raises(AmbiguousComponentError):
        select_tools(registry, enabled_toolsets=["all"])
