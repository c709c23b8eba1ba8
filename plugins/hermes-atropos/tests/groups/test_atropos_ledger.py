"""The ledger: every rollout has one line and one end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_atropos.groups.ledger import End, Ledger
from hermes_core.contracts.errors import HermesError


def test_a_rollout_ends_in_exactly_one_way_with_its_reason():
    lines = []
    ledger = Ledger(lines.append)
    ledger.begin("r1", group_id="g")
    ledger.close("r1", End.REJECTED, "all scores are 1")
    assert lines == [
        {"rollout_id": "r1", "group_id": "g", "split": "train", "end": "rejected", "reason": "all scores are 1"}
    ]


def test_a_second_end_is_an_error_that_names_the_first():
    ledger = Ledger()
    ledger.begin("r1", group_id="g")
    ledger.close("r1", End.SENT)
    with pytest.raises(HermesError, match=r"cannot close rollout r1 as errored: it ended before: sent"):
        ledger.close("r1", End.ERRORED, "late")


def test_an_end_without_a_beginning_is_an_error():
    with pytest.raises(HermesError, match="was never opened"):
        Ledger().close("r1", End.SENT)


def test_a_second_beginning_is_an_error():
    ledger = Ledger()
    ledger.begin("r1", group_id="g")
    with pytest.raises(HermesError, match="already has a line for rollout r1"):
        ledger.begin("r1", group_id="g")


def test_what_is_open_of_a_group_is_closed_together():
    ledger = Ledger()
    for rollout, group in (("a", "g1"), ("b", "g1"), ("c", "g2")):
        ledger.begin(rollout, group_id=group)
    ledger.close("a", End.ERRORED, "boom")
    ledger.close_open("g1", End.CANCELLED, "stopped")
    assert [entry.rollout_id for entry in ledger.open] == ["c"]
    assert ledger.summary() == {"sent": 0, "rejected": 0, "errored": 1, "cancelled": 1, "open": 1}


@given(st.lists(st.sampled_from([None, *End])))
def test_the_counts_add_up_to_what_was_opened(ends):
    ledger = Ledger()
    for number, end in enumerate(ends):
        ledger.begin(str(number), group_id="g")
        if end is not None:
            ledger.close(str(number), end)
    assert sum(ledger.summary().values()) == len(ends) == len(ledger.entries)
