"""Spoilt messages against all parsers, the same in every run; `make fuzz` tries fifty times as many, always others."""

from __future__ import annotations

import fuzz_parsers
import pytest

from hermes_parsers.catalog import FAMILIES

TEXTS = 20_000
SEED = 20261126


# Ten seconds of a whole core, on machines that may be busy.
@pytest.mark.timeout(600)
def test_thousands_of_spoilt_messages_raise_nothing_and_break_no_promise():
    some = fuzz_parsers.targets()
    counts, failures = fuzz_parsers.run_texts(TEXTS, SEED, streamed=0.1, some=some)
    assert failures[:5] == [], f"scripts/fuzz_parsers.py --texts {TEXTS} --seed {SEED} repeats it"
    assert counts.total() == TEXTS
    assert min(counts.values()) >= TEXTS // len(some)


def test_every_format_is_tried_with_every_option():
    names = {target.name for target in fuzz_parsers.targets()}
    for family in FAMILIES:
        name = family.names[0]
        assert {name, f"{name} (reasoning_opened)", f"{name} (promote_drafts)"} <= names
    opened = {target.name: target.parser for target in fuzz_parsers.targets()}["hermes (reasoning_opened)"]
    assert opened.parse("hm</think>so").reasoning == "hm"


def test_a_seed_repeats_the_same_run():
    some = [target for target in fuzz_parsers.targets() if target.name in {"hermes", "lfm2"}]
    assert fuzz_parsers.run_texts(200, 7, streamed=0.5, some=some) == fuzz_parsers.run_texts(
        200, 7, streamed=0.5, some=some
    )


def test_a_parser_that_raises_or_breaks_a_promise_is_found(capsys, monkeypatch):
    class Raises:
        def parse(self, text, tools=None, mode="strict"):
            raise KeyError(text)

    broken = [fuzz_parsers.Target("broken", Raises(), ["<call>f</call>"])]
    _, failures = fuzz_parsers.run_texts(3, 1, streamed=0, some=broken)
    assert [failure.problem.partition(":")[0] for failure in failures] == ["raised KeyError"] * 3
    monkeypatch.setattr(fuzz_parsers, "targets", lambda: broken)
    assert fuzz_parsers.main(["--texts", "3", "--seed", "1"]) == 1
    shown = capsys.readouterr().out
    assert "seed 1" in shown
    assert "3 exceptions" in shown


def test_every_format_is_a_target():
    some = fuzz_parsers.targets()
    assert {target.name.partition(" ")[0] for target in some} == {family.names[0] for family in FAMILIES}
    assert all(target.messages for target in some)
