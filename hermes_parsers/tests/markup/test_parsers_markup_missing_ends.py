"""A parameter without its closing mark ends at the next one's opening, and the status says so."""

from __future__ import annotations

import re

import pytest
from parser_reading import function_tool, meaning, read, statuses

from hermes_parsers import get_parser
from hermes_parsers.markup.parser import MarkupParser

FAMILIES = [
    "qwen3_coder",
    "step5",
    "mimo",
    "seed_oss",
    "glm45",
    "glm47",
    "hy_v3",
    "hy_v4",
    "minimax_m2",
    "minimax_m3",
    "muse",
    "minicpm5",
    "deepseek_v32",
    "deepseek_v4",
    "deepseek_v41",
    "step3",
    "dots",
    "gigachat35",
    "kimi_k3",
    "k2_horizon",
    "solar_open2",
]
ARGUMENTS = {"a": "one two", "b": "three", "c": "four"}
TOOL = function_tool("f", **{key: {"type": "string"} for key in ARGUMENTS})


def write_call(name, **arguments):
    call = {"id": "call00000", "function": {"name": "f", "arguments": arguments}}
    return get_parser(name).render({"role": "assistant", "content": "", "tool_calls": [call]})


def dialect_of(name):
    """Return the dialect that a family writes."""
    text = write_call(name, a="1")
    parser = get_parser(name)
    assert isinstance(parser, MarkupParser)
    return next(one for one in parser.dialects if one.parameter_close in text)


def ends_of(name, text):
    """Return the places of the parameters' closing marks."""
    mark = r"\]<\]minimax\[>\[</[abc]>" if name == "minimax_m3" else re.escape(dialect_of(name).parameter_close)
    return [found.span() for found in re.finditer(mark, text)]


def without(text, spans, *, lines):
    """Cut spans out of a text, with or without the line breaks around them."""
    for start, end in reversed(spans):
        before, after = text[:start], text[end:]
        text = before.rstrip("\n") + after.lstrip("\n") if lines else before + after
    return text


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("tools", [(), (TOOL,)])
def test_a_parameter_ends_at_the_next_one_s_opening(name, tools):
    text = write_call(name, **ARGUMENTS)
    ends = ends_of(name, text)
    assert len(ends) == len(ARGUMENTS)
    for missing in (ends[:1], ends[1:2], ends[:2], ends[2:], ends):
        for lines in (True, False):
            cut = without(text, missing, lines=lines)
            result = read(name, cut, *tools)
            found = [(call, {key: value.strip() for key, value in values.items()}) for call, values in meaning(result)]
            assert (found, statuses(result)) == ([("f", ARGUMENTS)], ["unclosed"]), cut
            assert "its closing mark is missing" in result.attempts[0].reason


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "minimax_m3"])
def test_everything_on_one_line_is_read_so_as_well(name):
    text = re.sub(r"\s*\n\s*", "", write_call(name, **ARGUMENTS))
    if name.startswith("glm45"):
        text = text.replace("<tool_call>f", "<tool_call>f\n")
    for missing in (ends_of(name, text)[:1], ends_of(name, text)[:2]):
        result = read(name, without(text, missing, lines=False))
        assert (meaning(result), statuses(result)) == ([("f", ARGUMENTS)], ["unclosed"])


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "minimax_m3"])
def test_an_opening_that_a_closed_value_quotes_with_its_end_is_text(name):
    parameter = dialect_of(name).parameter
    inner = write_call(name, x="1")
    inner = inner[inner.index(parameter.opening) : ends_of(name, inner)[0][1]]
    for value in (f"see {inner} here", f"{inner}", f"a\n{inner}\nb"):
        text = write_call(name, a=value, b="2")
        for tools in ((), (function_tool("f", a={"type": "string"}, b={"type": "string"}),), (TOOL,)):
            result = read(name, text, *tools)
            # Two closing marks in a row may belong to one parameter if its name could be any text.
            is_doubtful = value == inner and not tools
            assert meaning(result) == [("f", {"a": value, "b": "2"})], text
            assert statuses(result) == ["unclosed" if is_doubtful else "ok"], text


@pytest.mark.parametrize("name", ["qwen3_coder", "seed_oss", "glm45", "minimax_m2", "muse", "deepseek_v32"])
def test_an_opening_that_is_quoted_alone_in_a_line_is_text(name):
    parameter = dialect_of(name).parameter
    whole = write_call(name, x="1")
    opening = parameter.match(whole, whole.index(parameter.opening))[0]
    for value in (f"the mark {opening} begins one", f"`{opening}`", f'"{opening}"'):
        text = write_call(name, a=value, b="2")
        result = read(name, text, function_tool("f", a={"type": "string"}, b={"type": "string"}))
        assert (meaning(result), statuses(result)) == ([("f", {"a": value, "b": "2"})], ["ok"]), text
        assert meaning(read(name, text)) == [("f", {"a": value, "b": "2"})]
