"""The README's figures at token level are those of the committed measurement."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

pytest.importorskip("tokenizers", reason="hermes-tokens is not installed")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tokens(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.tokens.framework_cost")


@pytest.fixture
def committed_figures(tokens):
    return json.loads(tokens.RESULTS.read_text(encoding="utf-8"))


def test_the_table_is_that_of_the_committed_results(tokens, committed_figures):
    readme = (ROOT / "plugins" / "hermes-tokens" / "README.md").read_text(encoding="utf-8")
    assert tokens.with_table(readme, committed_figures) == readme


def test_every_target_was_measured_and_met(tokens, committed_figures):
    assert committed_figures["targets"] == tokens.TARGETS
    assert committed_figures["met"]
    assert set(tokens.TARGETS) <= set(committed_figures["ratios"])
