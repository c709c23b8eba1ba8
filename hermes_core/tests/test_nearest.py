"""Asking back for a misspelt name."""

from __future__ import annotations

import pytest

from hermes_core.nearest import did_you_mean, nearest_names


@pytest.mark.parametrize(
    ("name", "most", "said"),
    [
        ("dokcer", 1, "did you mean 'docker'?"),
        ("dock", 2, "did you mean 'docker'?"),
        ("moda", 3, "did you mean 'modal' or 'modem'?"),
        ("zzzzzz", 1, "known: all"),
    ],
)
def test_the_nearest_names_are_offered_or_all_of_them(name, most, said):
    assert did_you_mean(name, ["docker", "modal", "modem"], otherwise="known: all", most=most) == said


@pytest.mark.parametrize(
    ("name", "otherwise", "said"),
    [
        ("dokcer", "", "did you mean 'docker'? Known names: docker, modal"),
        ("zzzzzz", "", "known names: docker, modal"),
        ("zzzzzz", "see the docs", "see the docs"),
    ],
)
def test_a_sentence_after_the_question_begins_with_a_capital(name, otherwise, said):
    known = ["docker", "modal"]
    assert did_you_mean(name, known, also="known names: docker, modal", otherwise=otherwise) == said


def test_nothing_is_near_to_nothing():
    assert nearest_names("docker", []) == []


def test_a_name_that_is_known_twice_is_suggested_once():
    assert did_you_mean("termnal", ["terminal", "terminal", "terminal_tools"], most=3).count("'terminal'") == 1
