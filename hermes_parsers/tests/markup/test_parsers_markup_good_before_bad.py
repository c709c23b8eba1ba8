"""A good call of a closed block stays `ok`, whatever unreadable text follows it."""

from __future__ import annotations

import pytest
from markup_families import FAMILIES, dialect_of, tag_of, write_calls
from parser_reading import function_tool, meaning, read, statuses

from hermes_parsers import get_parser

TOOLS = (function_tool("f", a={"type": "string"}), function_tool("g", x={"type": "string"}))
BLOCKS = [name for name in FAMILIES if dialect_of(name).blocks]
BAD = {
    "words": lambda name: "and then words",
    "a sign": lambda name: "<",
    "an object": lambda name: '{"name": "g", "arguments": {"x": 1}}',
    "half a mark": lambda name: dialect_of(name).call.opening[:-2],
    "a mark": lambda name: dialect_of(name).call.opening,
    "a damaged tag": lambda name: f"{dialect_of(name).call.opening[:-1]} g",
    "a tag alone": lambda name: tag_of(name, "g"),
    "a tag, words and its end": lambda name: f"{tag_of(name, 'g')} x: 1{dialect_of(name).call_close}",
    "a nameless call": lambda name: tag_of(name, "QQ").replace("QQ", "") + dialect_of(name).call_close,
    "a parameter": lambda name: dialect_of(name).parameter.opening,
    "a call's end": lambda name: f"x {dialect_of(name).call_close}",
}


def end_of_block(name, text):
    return max(text.rfind(closing) for closing in dialect_of(name).block_closes)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_good_call_before_what_cannot_be_read_is_ok_for_every_cut(name, bad):
    text = write_calls(name, ("f", {"a": "1"}))
    end = end_of_block(name, text)
    for space in ("", "\n"):
        whole = f"{text[:end]}{space}{bad(name)}{space}{text[end:]}"
        result = read(name, whole, *TOOLS)
        assert (meaning(result)[0], statuses(result)[0], result.content) == (("f", {"a": "1"}), "ok", None)
        assert len(result.attempts) > 1
        for cut in range(end, len(whole)):
            stream = get_parser(name).stream(TOOLS)
            stream.feed(whole[:cut])
            stream.feed(whole[cut:])
            stream.finish()
            assert stream.result() == result, cut


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("behind", ["", "\nDone.", " and then words"])
def test_a_good_call_of_a_block_that_never_ends_is_unclosed(name, behind):
    text = write_calls(name, ("f", {"a": "1"}))
    result = read(name, text[: end_of_block(name, text)] + behind, *TOOLS)
    assert (meaning(result), statuses(result)) == ([("f", {"a": "1"})], ["unclosed"])
    assert "is missing" in result.attempts[0].reason
