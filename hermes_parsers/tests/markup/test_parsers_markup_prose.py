"""Text about tagged parameters stays an answer; text between the calls of a block is reported."""

from __future__ import annotations

import pytest
from every_cut import read_at_every_cut
from markup_families import FAMILIES, dialect_of, dialects_of, pairs_of, tag_of, write_calls
from parser_reading import function_tool, meaning, read, reasoning_tags, statuses

from hermes_parsers.engine.scanning.scan import Scan

TEXT = {"type": "string"}
NOW, BASH = function_tool("now"), function_tool("bash", command=TEXT)
COMMON = [name for name in FAMILIES if dialect_of(name).is_common]
IN_BLOCKS = [name for name in FAMILIES if dialect_of(name).blocks]
each_family = pytest.mark.parametrize("name", FAMILIES)
each_common = pytest.mark.parametrize("name", COMMON)
each_in_blocks = pytest.mark.parametrize("name", IN_BLOCKS)
each_tools = pytest.mark.parametrize("tools", [(), (NOW, BASH)])

NAMED = [
    "It wraps calls in `OPEN` and `CLOSE` tags.",
    'print("OPEN")\nprint("CLOSE")',
    "```python\nprint('OPEN')\nprint('CLOSE')\n```",
    "The marks are “OPEN” and “CLOSE”.",
    "Between „OPEN“ and CLOSE stands the call.",
    "`OPEN`, then JSON, then `CLOSE`. `OPEN` comes first, `CLOSE` last.",
]
"""Answers that name the marks of a block."""
SHOWN = [
    "In XML: `TAG` calls it.",
    "Use 'TAG' for it.",
    'Use "TAG".',
    "```\nTAG\n```",
    "```xml\n<a/>\nTAG\nTAG\n```\nThat is all.",
    "~~~\nx = 1\n  TAG\n~~~",
    "See:\n````md\n```\nTAG\n```\nTAG\n````\n",
]
"""Answers that show a call's self-closing tag."""


def self_closed(name, tool):
    return f"{tag_of(name, tool).removesuffix('>')}/>"


def whole_pairs(name):
    """Return the pairs of marks whose opening one is a complete mark or tag."""
    tags = {dialect_of(name).call.opening: tag_of(name, "now")}
    pairs = [(tags.get(opening, opening), closing) for opening, closing in pairs_of(name)]
    return [(opening, closing) for opening, closing in pairs if opening.endswith(">")]


@each_family
@each_tools
@pytest.mark.parametrize("answer", NAMED)
def test_an_answer_that_names_the_marks_is_text(name, answer, tools):
    for opening, closing in whole_pairs(name):
        text = answer.replace("OPEN", opening).replace("CLOSE", closing)
        result = read(name, text, *tools)
        assert (result.content, result.calls, result.attempts) == (text, (), ())


@each_family
@pytest.mark.parametrize("before", ["", "Look: ", "` ", "A quote: ' "])
def test_a_block_whose_mark_is_not_quoted_is_an_attempt(name, before):
    for opening, closing in whole_pairs(name):
        result = read(name, f"{before}{opening} and `{closing}`")
        assert len(result.attempts) == 1
        assert opening not in (result.content or "")


@each_family
def test_a_call_between_quotes_is_one(name):
    call = write_calls(name, ("bash", {"command": "ls"})).strip()
    result = read(name, f"`{call}`", BASH)
    assert meaning(result) == [("bash", {"command": "ls"})]


@each_common
@each_tools
@pytest.mark.parametrize("answer", SHOWN)
def test_a_tag_that_closes_itself_in_quotes_or_code_is_text(name, answer, tools):
    text = answer.replace("TAG", self_closed(name, "now"))
    result = read(name, text, *tools)
    assert (result.content, result.calls, result.attempts) == (text, (), ())


@each_common
@pytest.mark.parametrize(
    "before", ["```\nx = 1\n```\n", "`x` is it: ", "~~~\n~~~\n", "a``b ", "```\n````\n", "<think>\n```\n</think>\n\n"]
)
def test_a_tag_that_closes_itself_outside_of_quotes_and_code_is_a_call(name, before):
    opening, closing = reasoning_tags(name)
    before = before.replace("<think>", opening).replace("</think>", closing)
    result = read(name, f"{before}{self_closed(name, 'now')}", NOW, BASH)
    assert (meaning(result), statuses(result)) == ([("now", {})], ["repaired"])


@each_common
def test_a_fence_in_a_call_opens_none_behind_it(name):
    call = write_calls(name, ("bash", {"command": "echo '\n```\n'"}))
    text = f"{call} And {self_closed(name, 'now')}"
    assert [tool for tool, _ in meaning(read(name, text, NOW, BASH))] == ["bash", "now"]


@each_common
def test_quotes_and_fences_are_seen_however_the_text_is_cut(name):
    tag = self_closed(name, "now")
    read_at_every_cut(name, f"a\n```x\n{tag}\n``` `{tag}` {tag} ~~~\n ~~~~\n{tag}\n~~~~\n{tag}", NOW, BASH)
    for opening, closing in whole_pairs(name):
        read_at_every_cut(name, f"See `{opening}` or '{opening}'\n or {opening}` {closing}.")


def blocks(name):
    """Return two calls in a block as four parts: the text before the first, the first, the second, and the text after
    them.
    """
    text = write_calls(name, ("bash", {"command": "ls"}), ("now", {})).strip()
    dialect = dialect_of(name)
    begins, ends = dialect.call_openers[0], dialect.suffix or dialect.call_close
    first = text.index(begins)
    second = text.index(begins, text.index(ends))
    return text[:first], text[first:second], text[second:]


def is_one_block(name):
    """Whether two calls share a block; otherwise each has its own."""
    opening = dialect_of(name).blocks[0][0]
    return opening != "" and "".join(blocks(name)).count(opening) == 1


@each_in_blocks
@each_tools
@pytest.mark.parametrize("junk", ["Sure:", "\nHere it is.\n\n", "```\n", "1. ", "null", "`"])
def test_text_before_the_first_call_of_a_block_is_an_attempt_and_no_frame_stays(name, junk, tools):
    opening, first, second = blocks(name)
    result = read(name, f"Hi. {opening.rstrip()}{junk}{first}{second} Bye.", *tools)
    assert meaning(result) == [("bash", {"command": "ls"}), ("now", {})]
    assert (statuses(result), result.content.split()) == (["invalid_json", "ok", "ok"], ["Hi.", "Bye."])
    assert junk.strip() in result.attempts[0].reason


@pytest.mark.parametrize("name", [name for name in IN_BLOCKS if is_one_block(name)])
def test_text_between_two_calls_of_a_block_is_an_attempt(name):
    opening, first, second = blocks(name)
    result = read(name, f"{opening}{first}and then {second}")
    assert meaning(result) == [("bash", {"command": "ls"}), ("now", {})]
    assert (statuses(result), result.content) == (["ok", "invalid_json", "ok"], None)


@each_in_blocks
def test_text_before_a_call_is_seen_however_it_is_cut(name):
    opening, first, second = blocks(name)
    read_at_every_cut(name, f"Hi. {opening.rstrip()}Sure: {first}and {second}")


@each_in_blocks
def test_a_block_s_mark_in_prose_takes_no_tag_in_prose_for_a_call(name):
    for dialect in dialects_of(name):
        for opening, _ in dialect.blocks:
            text = f"Use {opening} with {tag_of(name, 'x')} in it, as the manual says."
            result = read(name, text)
            assert (result.content, result.calls) == (text, ()), result


def test_a_scan_knows_what_stands_before_its_text():
    scan = Scan()
    scan.text, scan.last_told = "<m>` ", "`"
    assert scan.is_quoted(0, 3)
    scan.last_told = ""
    assert not scan.is_quoted(0, 3)
