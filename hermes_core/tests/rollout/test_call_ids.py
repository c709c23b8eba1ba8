"""Ids of calls that a parser read: each of a rollout's is its own, whatever the model counts."""

from __future__ import annotations

import pytest

from hermes_core.contracts.model import ModelReply
from hermes_core.contracts.parsing import ParsedCall, ParseResult
from hermes_core.rollout.interpretation import parse_reply


class Parser:
    """Reads one call for each line of a reply, with the line as its id."""

    def parse(self, text, tools=()):
        return ParseResult(
            content=None, calls=tuple(ParsedCall(id=one, name="f", arguments="{}") for one in text.split())
        )


def ids_of(turns):
    used = {}
    return [[call.id for call in parse_reply(ModelReply(content=turn), Parser(), (), used).calls] for turn in turns]


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        (["functions.f:0 functions.f:1", "functions.f:0"], [["functions.f:0", "functions.f:1"], ["functions.f:2"]]),
        (["f:0", "g:0", "f:0", "g:0"], [["f:0"], ["g:0"], ["f:1"], ["g:1"]]),
        (["f:7", "f:0", "f:7"], [["f:7"], ["f:0"], ["f:8"]]),
        (["call", "call call"], [["call"], ["call_1", "call_2"]]),
        (["f: f:", "f:1"], [["f:", "f:_1"], ["f:1"]]),
        (["call_1", "call", "call"], [["call_1"], ["call"], ["call_2"]]),
    ],
)
def test_a_repeated_id_becomes_one_of_the_same_shape(turns, expected):
    assert ids_of(turns) == expected


def test_nine_characters_stay_nine():
    found = [one for turn in ids_of(["abcdefghi"] * 20) for one in turn]
    assert len(set(found)) == 20
    assert all(len(one) == 9 and one.isalnum() for one in found)


@pytest.mark.parametrize("shape", ["functions.f:{}", "abcdefgh{0:.1}", "call{}"])
def test_very_many_calls_with_ids_that_begin_anew_cost_one_pass(shape):
    """Each was counted from its own number again: minutes on the event loop."""
    turn = " ".join(shape.format(str(number)) for number in range(5000))
    found = [one for turn in ids_of([turn] * 10) for one in turn]
    assert len(set(found)) == len(found) == 50_000
