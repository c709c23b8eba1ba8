"""The command line of the example: which seeds it runs, and that the committed figures are those of its defaults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tiny_rl.run import options

FOLDER = Path(__file__).parents[1]


@pytest.mark.parametrize("seeds", [[3], [3, 4, 5], [9, 0]])
def test_a_run_takes_the_seeds_that_it_is_given(seeds):
    assert options(["--seeds", *map(str, seeds)])["seeds"] == seeds


def test_the_committed_results_are_of_a_run_without_options():
    plan = options([])
    results = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
    assert [result["seed"] for result in results] == plan["seeds"]
    assert {result["steps"] for result in results} == {plan["steps"]}
