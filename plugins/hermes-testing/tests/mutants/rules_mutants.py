"""Suites that break the rules of inheritance, and one that follows them."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from hermes_testing import PluginSuite

GUARD = frozenset({"test_inherited_tests_are_kept"})


class TestDeletesATest(PluginSuite):
    plugin = "reference.plugin"
    test_it_loads = None
    caught_by = GUARD


class TestReplacesATest(PluginSuite):
    plugin = "reference.plugin"
    caught_by = GUARD

    def test_it_is_typed(self):
        pass


class TestSkipsATest(PluginSuite):
    plugin = "reference.plugin"
    caught_by = GUARD

    @pytest.mark.skip(reason="inconvenient")
    def test_it_is_typed(self):
        pass


class TestExpectsAFailureWithoutStrictness(PluginSuite):
    plugin = "reference.plugin"
    caught_by = GUARD

    @pytest.mark.xfail(reason="sometimes")
    def test_it_is_typed(self):
        raise AssertionError


class TestExpectsAFailureWithReason(PluginSuite):
    plugin = "untyped.plugin"
    caught_by: frozenset[str] = frozenset()

    @pytest.mark.xfail(strict=True, reason="types come with the next release")
    def test_it_is_typed(self):
        super().test_it_is_typed()


class TestLacksWhatNobodyKnows(PluginSuite):
    plugin = "reference.plugin"
    lacks = MappingProxyType({"telepathy": "no antenna"})
    caught_by = GUARD
