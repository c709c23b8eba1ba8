"""What may be imported from the package, and under which other name."""

from __future__ import annotations

import importlib

import pytest

import hermes_atropos


@pytest.mark.parametrize("name", hermes_atropos.__all__)
def test_a_name_of_the_front_is_found_under_the_core_s_alias_as_well(name):
    alias = importlib.import_module("hermes_core.atropos")
    assert getattr(alias, name) is getattr(hermes_atropos, name)


def test_a_name_that_the_front_lacks_is_not_found_under_the_alias():
    with pytest.raises(ImportError, match="NoSuchEnv"):
        exec("from hermes_core.atropos import NoSuchEnv")
