"""A parameter after one without a closing mark is not swallowed silently."""

from __future__ import annotations

import pytest
from markup_families import FAMILIES, dialect_of, end_of, write_calls
from parser_reading import function_tool, meaning, read, statuses

TEXT, INTEGER = {"type": "string"}, {"type": "integer"}
TOOL = function_tool("f", a=TEXT, b=TEXT, c=TEXT, n=INTEGER)
TAGGED = [name for name in FAMILIES if name != "minimax_m3"]
each_family = pytest.mark.parametrize("name", TAGGED)
each_tools = pytest.mark.parametrize("tools", [(), (TOOL,)])
BEFORE = ["x ", "x\n", "x) ", "x: `y` ", 'say "hi"\t', "f(x, ", "x\n\n  ", "- x = "]
"""Text that may precede the tag after a value without a closing mark."""


def tag_of(name, key):
    text = write_calls(name, ("f", {key: "1"}))
    tag = dialect_of(name).parameter.match(text, text.index(dialect_of(name).parameter.opening))
    assert tag is not None
    return tag[0]


def parameter(name, key, value):
    """Write a parameter as the family does."""
    text = write_calls(name, ("f", {key: value}))
    return text[text.index(dialect_of(name).parameter.opening) : text.index(end_of(name, key))] + end_of(name, key)


def holding(name, body, **others):
    """Write a call whose parameter `a` holds a text up to its own closing mark, which is there or missing."""
    text = write_calls(name, ("f", {"a": "QQ", **others}))
    at = text.index("QQ")
    return text[:at] + body + text[text.index(end_of(name, "a"), at) + len(end_of(name, "a")) :]


def strip_values(result):
    return [(name, {key: str(value).strip() for key, value in values.items()}) for name, values in meaning(result)]


@each_family
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("line", ["", "\n"])
def test_a_declared_parameter_begins_behind_one_without_its_closing_mark(name, before, line):
    text = holding(name, f"{before}{tag_of(name, 'n')}{line}3{line}{end_of(name, 'n')}", b="y z")
    result = read(name, text, TOOL)
    assert (strip_values(result), statuses(result)) == (
        [("f", {"a": before.strip(), "n": "3", "b": "y z"})],
        ["unclosed"],
    )
    assert "a: its closing mark is missing" in result.attempts[0].reason


@each_family
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("line", ["", "\n"])
def test_without_schemas_it_begins_so_too_or_the_status_tells_the_doubt(name, before, line):
    text = holding(name, f"{before}{tag_of(name, 'n')}{line}3{line}{end_of(name, 'n')}")
    result = read(name, text)
    assert (len(result.calls), statuses(result)) == (1, ["unclosed"])
    assert "closing mark" in result.attempts[0].reason
    assert "missing" in result.attempts[0].reason


@each_family
@pytest.mark.parametrize("gap", [" ", "\n"])
def test_several_may_lack_their_closing_marks(name, gap):
    body = f"x{gap}{tag_of(name, 'b')}y{gap}{tag_of(name, 'c')}z{gap}{parameter(name, 'n', 3)}"
    result = read(name, holding(name, body), TOOL)
    assert (strip_values(result), statuses(result)) == ([("f", {"a": "x", "b": "y", "c": "z", "n": "3"})], ["unclosed"])


@each_family
@pytest.mark.parametrize("gap", ["", " ", "\n"])
@pytest.mark.parametrize("doubled", ["b", "c", "n"])
@each_tools
def test_one_closing_mark_may_be_missing_and_a_later_one_be_there_twice_which_the_status_tells(
    name, gap, doubled, tools
):
    inner, body = {"b": "y", "c": "z", "n": 3}, f"x{gap}"
    for key, value in inner.items():
        body += parameter(name, key, value) + (gap + end_of(name, key) if key == doubled else "") + gap
    result = read(name, holding(name, body), *tools)
    # The tags are balanced, so this is most likely a value that contains whole parameters.
    assert statuses(result) == ["unclosed"]
    assert (
        "inside the value was read as text, unless the closing mark before it is missing" in result.attempts[0].reason
    )
    [(_, values)] = meaning(result)
    assert list(values) == ["a", *list(inner)[list(inner).index(doubled) + 1 :]]


@each_family
@each_tools
@pytest.mark.parametrize("around", ["Example:\nQQ", "QQ\nis one", "A:\nQQ\nB\nQQ", "QQ\nQQ", "QQ"])
def test_a_value_that_holds_whole_parameters_is_text_and_can_be_written(name, tools, around):
    whole = parameter(name, "n", "3")
    value = around.replace("QQ", whole)
    text = write_calls(name, ("f", {"b": "p", "a": value}))
    result = read(name, text, *tools)
    assert meaning(result) == [("f", {"b": "p", "a": value})]
    assert statuses(result) == ["unclosed" if value.endswith(whole) else "ok"]


@each_family
@pytest.mark.parametrize("before", ["x\n", "x"])
def test_a_tag_of_no_declared_parameter_is_text_of_the_value_and_told(name, before):
    text = holding(name, f"{before}{parameter(name, 'zz', 'y')}", b="2")
    result = read(name, text, TOOL)
    assert statuses(result) == ["unclosed"]
    assert repr(tag_of(name, "zz")) in result.attempts[0].reason
    assert meaning(result)[0][1]["b"] == "2"


@each_family
@each_tools
@pytest.mark.parametrize("quotes", ["``", '""', "''", "()", "[]"])
def test_a_tag_between_quotes_is_text(name, tools, quotes):
    value = f"the mark {quotes[0]}{tag_of(name, 'n')}{quotes[1]} begins one"
    text = holding(name, f"{value}{end_of(name, 'a')}", b="2")
    result = read(name, text, *tools)
    assert (strip_values(result), statuses(result)) == ([("f", {"a": value, "b": "2"})], ["ok"])


@each_family
@each_tools
def test_a_whole_parameter_with_text_around_it_is_text(name, tools):
    value = f"see {parameter(name, 'n', 3)} here"
    result = read(name, holding(name, f"{value}{end_of(name, 'a')}", b="2"), *tools)
    assert (strip_values(result), statuses(result)) == ([("f", {"a": value, "b": "2"})], ["ok"])


@each_family
@each_tools
def test_a_tag_whose_parameter_is_given_besides_is_text(name, tools):
    for value in (f"the {tag_of(name, 'b')} begins", f"x\n{parameter(name, 'b', '1')}"):
        result = read(name, holding(name, f"{value}{end_of(name, 'a')}", b="2"), *tools)
        assert (strip_values(result), statuses(result)) == ([("f", {"a": value, "b": "2"})], ["ok"]), value


@each_family
def test_text_between_two_parameters_is_left_out_and_told_where_a_later_mark_is_missing(name):
    body = f"x{end_of(name, 'a')} and {tag_of(name, 'b')}y "
    result = read(name, holding(name, body, n=3), TOOL)
    assert (strip_values(result), statuses(result)) == ([("f", {"a": "x", "b": "y", "n": "3"})], ["unclosed"])
    assert "left out text between the parameters: 'and'" in result.attempts[0].reason


@each_family
@each_tools
def test_a_tag_among_words_stays_text_where_it_would_have_a_line_of_its_own_and_the_status_tells_the_doubt(name, tools):
    value = f"the mark {tag_of(name, 'b')} begins one"
    result = read(name, holding(name, f"{value}{end_of(name, 'a')}", n=3), *tools)
    assert statuses(result) == ["unclosed"]
    if dialect_of(name).own_lines:
        assert strip_values(result) == [("f", {"a": value, "n": "3"})]


@each_family
@each_tools
def test_a_value_that_is_a_whole_parameter_stays_text_and_the_status_tells_the_doubt(name, tools):
    value = parameter(name, "b", "y")
    result = read(name, holding(name, f"{value}{end_of(name, 'a')}", n=3), *tools)
    assert (strip_values(result), statuses(result)) == ([("f", {"a": value, "n": "3"})], ["unclosed"])


M3 = "]<]minimax[>["


@pytest.mark.parametrize("gap", ["", " ", "\n"])
@each_tools
def test_minimax_m3_takes_no_element_for_a_part_of_one_that_lacks_its_mark(gap, tools):
    for n in ("<n>3</n>", f"<n>3</n>{gap}</n>"):
        body = f"<a>x{gap}{n}{gap}<b>y</b>".replace("<", f"{M3}<")
        text = f'{M3}<tool_call>\n{M3}<invoke name="f">{body}{M3}</invoke>\n{M3}</tool_call>'
        result = read("minimax_m3", text, *tools)
        assert (strip_values(result), statuses(result)) == ([("f", {"a": "x", "n": "3", "b": "y"})], ["unclosed"])
