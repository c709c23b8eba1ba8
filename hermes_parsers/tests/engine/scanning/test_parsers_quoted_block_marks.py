"""An answer that mentions a format's marks between quotes is neither a call nor an attempt."""

from __future__ import annotations

import pytest
from every_cut import read_at_every_cut
from parser_reading import function_tool, kimi, meaning, statuses, wide

from hermes_parsers import get_parser
from hermes_parsers.catalog import FAMILIES
from hermes_parsers.engine.scanning.parser import ScanningParser

TOOL = function_tool("bash", command={"type": "string"})
ARGUMENTS = '{"command": "ls"}'


def marks_of(family):
    parser = get_parser(family.names[0]) if family.names[0] != "response_template" else None
    return parser.block_marks() if isinstance(parser, ScanningParser) else ((), ())


MARKS = [
    (family.names[0], opener, closer)
    for family in FAMILIES
    for openers, closers in [marks_of(family)]
    for opener in openers
    for closer in closers
]


@pytest.mark.parametrize(("name", "opener", "closer"), MARKS)
def test_marks_between_quotes_are_text(name, opener, closer):
    for left, right in ("``", '""', "''", "“”"):
        quoted = f"{left}{opener}{right} and {left}{closer}{right}"
        for text in (quoted, f"Calls stand between {quoted}, I think.\nAre they clear?"):
            result = read_at_every_cut(name, text, TOOL)
            assert (result.content, result.attempts) == (text, ())


@pytest.mark.parametrize(("name", "opener", "closer"), MARKS)
def test_marks_with_a_quote_on_one_side_open_a_block(name, opener, closer):
    for text in (f"`{opener}say it{closer}`", f"`{opener}: ` x{closer}"):
        assert statuses(read_at_every_cut(name, text, TOOL)) == ["invalid_json"]


SECTIONS = {
    "kimi_k2": kimi(("functions.bash:0", ARGUMENTS)).partition("<|tool_call_begin|>"),
    "deepseek_v31": wide(
        f"<|tool▁calls▁begin|><|tool▁call▁begin|>bash<|tool▁sep|>{ARGUMENTS}<|tool▁call▁end|><|tool▁calls▁end|>"
    ).partition(wide("<|tool▁call▁begin|>")),
}


@pytest.mark.parametrize("name", SECTIONS)
@pytest.mark.parametrize("between", ["Sure:", "\nFirst this one.\n", "{}", '{"name": "bash"}'])
def test_what_stands_between_a_section_and_its_first_call_is_an_attempt_and_no_content(name, between):
    section, mark, rest = SECTIONS[name]
    result = read_at_every_cut(name, f"So.{section}{between}{mark}{rest}", TOOL)
    assert (meaning(result), result.content) == ([("bash", {"command": "ls"})], "So.")
    assert statuses(result) == ["invalid_json", "ok"]
    assert between.strip() in result.attempts[0].raw


@pytest.mark.parametrize(
    "written",
    [
        *("bash[ARGS]ls -la", "run bash[ARGS]{}", '"bash"[ARGS]{}', "bash()[ARGS]{}", "\u200b[ARGS]{}"),
        *("bash[CALL_ID][ARGS]{}", "bash[ARGS]```json\n{}\n```", "[TOOL_CALLS]x y[ARGS]{}"),
    ],
)
def test_what_follows_mistral_s_mark_and_is_no_call_is_an_attempt_up_to_the_next(written):
    broken = f"[TOOL_CALLS]{written}"
    result = read_at_every_cut("mistral", f"{broken}[TOOL_CALLS]bash[ARGS]{ARGUMENTS}", TOOL)
    assert (meaning(result), result.content) == ([("bash", {"command": "ls"})], None)
    assert statuses(result) == ["invalid_json", "ok"]
    assert (statuses(read_at_every_cut("mistral", broken, TOOL))) == ["invalid_json"]


@pytest.mark.parametrize("text", ["[TOOL_CALLS] begins a call.", "`[TOOL_CALLS]` and [ARGS] are marks", "[TOOL_CALLS]"])
def test_mistral_s_mark_in_prose_is_text(text):
    result = read_at_every_cut("mistral", text, TOOL)
    assert (result.content, result.attempts) == (text, ())


@pytest.mark.parametrize(
    ("body", "content"),
    [
        ('{"name": "f", "arguments": {"a": "</tool_call>"}', None),
        ('{"name": "f", "arguments": {"a": "x </tool_call> y</tool_call>",}', None),
        ('{"name": "f", "arguments": {"a": "x}}</tool_call> and "so" on', ' and "so" on'),
        ('{"name": "f", "arguments": {"a": "x}}</tool_call> <tool_call>{"name": "g"}', None),
    ],
)
def test_a_broken_call_ends_behind_its_fault_unless_a_quote_is_missing(body, content):
    text = f"<tool_call>{body}" + ("" if content else "</tool_call>")
    result = read_at_every_cut("hermes", text)
    assert (result.attempts[0].status, result.content) == ("invalid_json", content)
    assert [call.name for call in result.calls] == (["g"] if '"g"' in body else [])
