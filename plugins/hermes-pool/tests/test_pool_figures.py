"""The README's figures are those of the committed measurement, which reached its targets."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def bench(monkeypatch):
    if not (ROOT / "benchmarks").is_dir():
        pytest.skip("not in the repository")
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.pool")


def test_the_figures_are_those_of_the_committed_measurement(bench):
    readme = bench.README.read_text(encoding="utf-8")
    assert bench.with_table(readme) == readme


def test_the_targets_were_reached(bench):
    found = json.loads(bench.RESULTS.read_text(encoding="utf-8"))
    assert bench.missed(found) == []


async def test_a_free_slot_is_taken_within_a_millisecond(bench, tmp_path):
    """The usual time is far below the limit, so that a busy machine does not decide the verdict."""
    found = await bench.acquiring(tmp_path, 200, 50)
    assert found["median_ms"] < 1.0
