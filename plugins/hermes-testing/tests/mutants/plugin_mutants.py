"""Plugins with one thing wrong; `caught_by` names the tests that must fail, all others must pass."""

from __future__ import annotations

from hermes_testing import PluginSuite

LOADING = frozenset({"test_it_loads", "test_it_loads_in_strict_mode_beside_the_core"})


class TestReference(PluginSuite):
    plugin = "reference.plugin"
    caught_by: frozenset[str] = frozenset()


class TestMisspeltHook(PluginSuite):
    plugin = "bad.misspelt"
    caught_by = LOADING


class TestUnmarkedHook(PluginSuite):
    plugin = "bad.unmarked"
    caught_by = LOADING


class TestArgumentNobodyPasses(PluginSuite):
    plugin = "bad.wrong_argument"
    caught_by = LOADING


class TestImportsAsyncio(PluginSuite):
    plugin = "bad.heavy"
    caught_by = frozenset({"test_loading_it_imports_nothing_heavy"})


class TestImportsItsTargets(PluginSuite):
    plugin = "bad.eager"
    caught_by = frozenset({"test_declaring_is_not_importing"})


class TestTargetIsNotThere(PluginSuite):
    plugin = "bad.dangling"
    caught_by = frozenset({"test_every_target_satisfies_its_contract"})


class TestTargetIsNoTool(PluginSuite):
    plugin = "bad.no_tool"
    caught_by = frozenset({"test_every_target_satisfies_its_contract"})


class TestDeclaresANameTwice(PluginSuite):
    plugin = "bad.twice"
    caught_by = frozenset({*LOADING, "test_every_name_is_declared_once"})


class TestRequirementNobodyCanRead(PluginSuite):
    plugin = "bad.unreadable"
    caught_by = frozenset({*LOADING, "test_every_requirement_can_be_read"})


class TestTakesACoreName(PluginSuite):
    plugin = "bad.thief"
    caught_by = frozenset({"test_it_loads_in_strict_mode_beside_the_core"})


class TestDeclaresSomethingElseEachTime(PluginSuite):
    plugin = "bad.random_names"
    caught_by = frozenset({"test_declaring_twice_gives_the_same"})


class TestDeclaresNothing(PluginSuite):
    plugin = "bad.empty"
    caught_by = frozenset({"test_it_declares_something", "test_it_loads"})


class TestDeclarationIsNoData(PluginSuite):
    plugin = "bad.unpicklable"
    caught_by = frozenset({"test_declarations_are_data"})


class TestShipsNoTypes(PluginSuite):
    plugin = "untyped.plugin"
    caught_by = frozenset({"test_it_is_typed"})


class TestNamesADistributionThatIsNotInstalled(PluginSuite):
    plugin = "reference.plugin"
    distribution = "no-such-distribution"
    caught_by = frozenset({"test_plugins_list_shows_it", "test_the_entry_point_resolves_to_the_module"})
