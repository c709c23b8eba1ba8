"""The README's table of token scenarios is that of the committed results, and our column is measured anew."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "plugins" / "hermes-tokens" / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def scenarios(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.tokens.scenarios")


@pytest.fixture
def committed_results(scenarios):
    return json.loads(scenarios.RESULTS.read_text(encoding="utf-8"))


def test_the_table_is_that_of_the_committed_results(scenarios, committed_results):
    assert scenarios.with_table(README, committed_results) == README


def test_our_column_measured_anew_trains_every_token_once_with_nothing_off(scenarios, committed_results):
    if not scenarios.conversations.templates():
        pytest.skip("the chat templates come with the distribution trl, which is not installed")
    wanted = {"trained": 1.0, "samples": 1, "doubled": 0, "missing": 0, "lost": 0, "foreign": 0}
    found = scenarios.measure_ours()
    assert found == dict.fromkeys(committed_results["sides"][scenarios.OURS], wanted)


def _job(**more):
    return {"opener": 1, "close": 2, "controls": [1, 2], "turns": [{"ids": [7, 2]}, {"ids": [8, 2]}], **more}


@pytest.mark.parametrize(
    ("second", "key", "count"),
    [
        ([1, 5, 2, 9, 1, 7, 2, 2, 9, 1], "doubled", 1),
        ([1, 5, 2, 9, 1, 7, 9, 1], "missing", 1),
        ([1, 5, 2, 9, 1, 7, 2, 1, 5, 2, 9, 1], "lost", 1),
    ],
)
def test_what_is_off_at_a_junction_is_counted(scenarios, second, key, count):
    result = {"exchanges": [[[1, 5, 2, 9, 1], [7, 2]], [second, [8, 2]]]}
    assert scenarios.score(_job(), result)[key] == count


def test_a_prompt_that_does_not_go_on_from_the_last_one_leaves_its_turn_untrained(scenarios):
    result = {"exchanges": [[[1, 5, 2, 9, 1], [7, 2]], [[1, 5, 2, 9, 1, 6, 2, 9, 1], [8, 2]]]}
    found = scenarios.score(_job(), result)
    assert (found["trained"], found["samples"]) == (0.5, 2)


def test_control_tokens_made_of_a_tools_text_are_counted(scenarios):
    harmless = {"exchanges": [[[1, 5, 2], [7, 2]]]}
    hostile = {"exchanges": [[[1, 2, 1, 2], [7, 2]]]}
    assert scenarios.score(_job(turns=[{"ids": [7, 2]}]), hostile, harmless)["foreign"] == 2
