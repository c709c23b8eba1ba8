"""A call with an invisible name is an attempt, not a call."""

from __future__ import annotations

import json

import pytest
from parser_reading import hermes, read, statuses

from hermes_parsers.engine.scanning.scan import Draft

BLANK = [
    "",
    " ",
    "\n\t",
    "\u200b",
    "\u2060\ufeff",
    "\u00ad",
    "\u3164",
    "\u115f\u1160",
    "\u2800",
    "\ufe0f",
    "\u0301",
    "\0",
]
BLANK += [
    "''",
    '""',
    "'",
    '"',
    "``",
    "`",
    "' '",
    "\u201c\u201d",
    "\u2018\u200b\u2019",
    "\u00ab\u00bb",
    "\u00a0\u3000",
    "\ud800",
]
NAMES = ["f", "_", "-", "'f'", "5", "->", "天気", "\U0001f324", "é", "e\u0301", "\u200bf", "+", "§", "ف"]


@pytest.mark.parametrize("name", BLANK, ids=ascii)
def test_quotes_and_what_is_invisible_are_no_name(name):
    draft = Draft(0, 1, name=name).check_name()
    assert (draft.status, draft.name, draft.reason) == ("missing_name", None, "the call has no name")


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_anything_that_can_be_seen_is_a_name(name):
    assert Draft(0, 1, name=name).check_name().name == name


@pytest.mark.parametrize("name", BLANK, ids=ascii)
def test_no_family_hands_on_a_call_with_such_a_name(name):
    call = json.dumps({"name": name, "arguments": {"a": 1}})
    for family, text in (
        ("hermes", hermes(call)),
        ("jamba", f"<tool_calls>[{call}]</tool_calls>"),
        ("cohere_command3", f"<|START_ACTION|>[{call.replace('name', 'tool_name')}]<|END_ACTION|>"),
    ):
        result = read(family, text)
        assert (result.calls, result.content, statuses(result)) == ((), None, ["missing_name"])


@pytest.mark.parametrize("name", ["''", '""', "\u200b", "\u3164"], ids=ascii)
@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("qwen3_coder", "<tool_call>\n<function={}>\n</function>\n</tool_call>"),
        ("glm45", "<tool_call>{}\n</tool_call>"),
        ("kimi_k2", "<|tool_call_begin|>{}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"),
        ("mistral", "[TOOL_CALLS]{}[ARGS]{{}}"),
    ],
)
def test_nor_does_one_whose_names_stand_outside_json(family, text, name):
    result = read(family, text.format(name))
    assert result.calls == ()
