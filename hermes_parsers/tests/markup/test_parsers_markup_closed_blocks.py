"""Text between a family's opening and closing mark is a call or an attempt, never silent prose."""

from __future__ import annotations

import random
from re import escape, finditer

import pytest
from markup_families import FAMILIES, OF_GLM, dialect_of, dialects_of, pairs_of, tag_of, write_calls
from parser_reading import function_tool, meaning, read, statuses

from hermes_parsers import get_parser
from hermes_parsers.engine.scanning.quoted_marks import is_between_quotes

TEXT = {"type": "string"}
BASH = function_tool("bash", command=TEXT, description=TEXT)
TOOLS = (BASH, function_tool("now"), function_tool("f", a=TEXT, b=TEXT))
each_family = pytest.mark.parametrize("name", FAMILIES)
TEXTS = [
    "",
    "\n",
    " and ",
    "Let me see.\nls -la | grep 'x' > out",
    "{}",
    '{"name": "f"',
    "[1, 2]",
    "f",
    "f\na: 1\n",
    "f(a=1)",
    "<x>1</x>",
    "=\"'>< /",
    "word " * 200,
]


@each_family
@pytest.mark.parametrize("inner", TEXTS)
def test_any_text_between_two_marks_is_an_attempt_with_a_reason(name, inner):
    for opening, closing in pairs_of(name):
        result = read(name, f"Look. {opening}{inner}{closing} Done.")
        assert result.calls or result.attempts, (opening, closing)
        assert all(attempt.reason for attempt in result.attempts if attempt.status != "ok"), (opening, closing)
        assert (result.content or "").startswith("Look.")
        assert (result.content or "").endswith("Done.")


@each_family
def test_any_mixture_of_marks_and_words_between_two_marks_is_an_attempt(name):
    chance = random.Random(f"closed {name}")
    words = ["f", "bash", "command", "a", " ", "\n", "1", "x y", "<", ">", '"', "/", "{", "}", "`", '{"name": "f"}']
    for dialect in dialects_of(name):
        marks = [dialect.call.opening, dialect.parameter.opening, *dialect.openers, *dialect.block_closes]
        words += [*marks, dialect.call_close, dialect.parameter_close, dialect.prefix, dialect.suffix]
    words += [tag_of(name, "bash"), write_calls(name, ("f", {"a": "1"})), "<think>", "</think>"]
    pairs = pairs_of(name)
    for _ in range(80):
        opening, closing = chance.choice(pairs)
        inner = "".join(chance.choice(words) for _ in range(chance.randint(0, 9)))
        text = f"{opening}{inner}{closing}"
        result = read(name, text, *chance.choice([(), TOOLS]))
        assert result.calls or result.attempts or names_a_mark(name, text), text


def names_a_mark(name, text):
    """Whether an opening mark is between quotes, where it is text."""
    found = [one for dialect in dialects_of(name) for mark in dialect.openers for one in finditer(escape(mark), text)]
    return any(is_between_quotes(text, one.start(), one.end()) for one in found)


@each_family
@pytest.mark.parametrize("before", ["", "It begins with `", "The mark is "])
def test_a_mark_without_its_closing_one_is_prose(name, before):
    for opening, _ in pairs_of(name):
        if opening.endswith(">"):
            for text in (f"{before}{opening}", f"{before}{opening}` and then the call, I think. " + "More. " * 99):
                result = read(name, text)
                assert (result.content, result.attempts) == (text, ())


@each_family
def test_prose_between_two_marks_costs_no_call_behind_it(name):
    for opening, closing in pairs_of(name):
        text = f"{opening} no call {closing}\n" + write_calls(name, ("f", {"a": "1"}))
        result = read(name, text)
        assert (meaning(result), statuses(result)) == ([("f", {"a": "1"})], ["invalid_json", "ok"])


def break_parameter(name, text):
    """Damage the first call's parameter so that it is unreadable."""
    start = text.index(tag_of(name, "f")) + len(tag_of(name, "f"))
    end = text.index(dialect_of(name).call_close)
    return f"{text[:start]} a: 1{text[end:]}"


@each_family
@pytest.mark.parametrize("is_first", [True, False])
def test_a_call_that_cannot_be_read_is_reported_beside_a_good_one_of_its_block(name, is_first):
    bad = break_parameter(name, write_calls(name, ("f", {"a": "1"}), ("g", {"x": "2"})))
    text = bad if is_first else swap_calls(name, bad)
    result = read(name, text)
    assert meaning(result) == [("g", {"x": "2"})]
    assert sorted(statuses(result)) == ["invalid_json", "ok"]
    assert "a: 1" in "".join(attempt.reason for attempt in result.attempts)


def swap_calls(name, text):
    """Put the second call of a message before the first."""
    dialect = dialect_of(name)
    first, second = dialect.call_openers[0], dialect.suffix or dialect.call_close
    starts = [text.index(first), text.index(first, text.index(second))]
    middle = text.index(second) + len(second)
    end = text.rindex(second) + len(second)
    return text[: starts[0]] + text[starts[1] : end] + text[middle : starts[1]] + text[starts[0] : middle] + text[end:]


@pytest.mark.parametrize(
    "name", ["minimax_m2", "muse", "deepseek_v4", "dots", "kimi_k3", "minimax_m3", "step3", "hy_v3"]
)
def test_text_behind_the_last_call_of_a_block_is_reported(name):
    text = write_calls(name, ("f", {"a": "1"}))
    closing = dialect_of(name).block_closes
    mark = next(one for one in closing if one in text)
    result = read(name, text.replace(mark, f"and more {mark}") + " Done.")
    assert meaning(result) == [("f", {"a": "1"})]
    assert statuses(result)[-1] == "invalid_json"
    assert "and more" in result.attempts[-1].reason
    assert result.content.strip() == "Done."


def test_the_reason_names_what_was_wanted_and_what_was_found():
    result = read("minimax_m2", '<minimax:tool_call>\n<invoke name="bash">\nls -la\n</invoke>\n</minimax:tool_call>')
    assert (result.attempts[0].name, result.attempts[0].reason[:41]) == (
        "bash",
        "expected a parameter after the call's tag",
    )
    result = read("qwen3_coder", "<tool_call>\nls -la\n</tool_call>")
    assert result.attempts[0].reason == "expected <function=…, got 'ls -la'"
    assert read("qwen3_coder", "<tool_call>\n</tool_call>").attempts[0].reason == "expected <function=…, got nothing"


SELF_CLOSED = [name for name in FAMILIES if name not in OF_GLM]


def self_closed(name, tool):
    tag = tag_of(name, tool)
    return tag[:-1] + "/>" if tag.endswith(">") and name != "kimi_k3" else tag.replace("<|sep|>", "/<|sep|>")


def without_body(name, tool, replacement):
    """Write a call without parameters, with other text in place of its tag, body and closing mark."""
    text = write_calls(name, (tool, {}))
    dialect = dialect_of(name)
    start, end = text.index(dialect.call.opening), text.index(dialect.call_close) + len(dialect.call_close)
    return text[:start] + replacement + text[end:]


@pytest.mark.parametrize("name", SELF_CLOSED)
@pytest.mark.parametrize("tools", [(), TOOLS])
@pytest.mark.parametrize("space", ["", " "])
def test_a_self_closed_call_is_one_without_parameters(name, tools, space):
    before, slash, behind = self_closed(name, "now").rpartition("/")
    tag = before + space + slash + behind
    # If XML has such a tag too, it needs a block around it, or must name a tool.
    needs_more = dialect_of(name).is_common and not tools
    for text in (without_body(name, "now", tag), tag):
        if text == tag and needs_more:
            continue
        result = read(name, text, *tools)
        assert (meaning(result), statuses(result), result.content) == ([("now", {})], ["repaired"], None), text
        assert "closes itself" in result.attempts[0].reason


@pytest.mark.parametrize("name", SELF_CLOSED)
@pytest.mark.parametrize("line", ["", "\n"])
def test_a_self_closed_call_costs_none_before_or_behind_it(name, line):
    other = write_calls(name, ("bash", {"command": "ls"}), ("now", {}), ("bash", {"command": "pwd"}))
    dialect = dialect_of(name)
    middle = other.rindex(dialect.call.opening, 0, other.index("now"))
    end = other.index(dialect.call_close, middle) + len(dialect.call_close)
    text = other[:middle] + self_closed(name, "now") + line + other[end:].lstrip("\n" if not line else "")
    result = read(name, text)
    expected = [("bash", {"command": "ls"}), ("now", {}), ("bash", {"command": "pwd"})]
    assert (meaning(result), statuses(result), result.content) == (expected, ["ok", "repaired", "ok"], None)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "step3"])
@pytest.mark.parametrize("tools", [(), TOOLS])
def test_a_call_without_parameters_or_end_before_another_one_is_unclosed(name, tools):
    text = write_calls(name, ("now", {}), ("bash", {"command": "ls"}))
    closing = dialect_of(name).call_close
    at = text.index(closing)
    result = read(name, text[:at] + text[at + len(closing) :].lstrip("\n"), *tools)
    assert meaning(result) == [("now", {}), ("bash", {"command": "ls"})]
    assert (statuses(result), result.content) == (["unclosed", "ok"], None)
    assert "is missing" in result.attempts[0].reason


def test_a_self_closed_tag_that_parameters_follow_is_not_without_them():
    text = '<minimax:tool_call>\n<invoke name="bash"/>\n<parameter name="command">ls</parameter>\n</invoke>'
    result = read("minimax_m2", text + "\n</minimax:tool_call>")
    assert (meaning(result), statuses(result)) == ([("bash", {"command": "ls"})], ["repaired"])
    cut = read("minimax_m2", text[: text.index("meter")])
    assert (cut.calls, statuses(cut)) == ((), ["truncated"])


def call_without_openings(name, tool, *keys):
    """Write a call in which these parameters lack their opening marks."""
    values = {"command": "echo hi", "description": "x"}
    text = write_calls(name, (tool, values))
    opening = dialect_of(name).parameter.opening
    for key in keys:
        text = text.replace(f"{opening}{key}", key, 1)
    return text, values


@pytest.mark.parametrize("name", OF_GLM)
@pytest.mark.parametrize("keys", [("command",), ("description",), ("command", "description")])
@pytest.mark.parametrize("is_on_one_line", [True, False])
def test_a_parameter_without_its_opening_mark_is_read_where_only_one_tool_can_be_meant(name, keys, is_on_one_line):
    text, values = call_without_openings(name, "bash", *keys)
    result = read(name, text.replace("\n", "") if is_on_one_line else text, *TOOLS)
    assert (meaning(result), statuses(result), result.content) == ([("bash", values)], ["repaired"], None)
    assert f"{dialect_of(name).parameter.opening} is missing" in result.attempts[0].reason


@pytest.mark.parametrize("name", OF_GLM)
@pytest.mark.parametrize(
    "tools",
    [
        (),
        (function_tool("ba", shcommand=TEXT, description=TEXT), BASH),
        (function_tool("bash", cmd=TEXT),),
        (function_tool("python", command=TEXT),),
    ],
)
def test_a_parameter_without_its_opening_mark_is_an_attempt_where_there_is_doubt(name, tools):
    text, _ = call_without_openings(name, "bash", "command")
    result = read(name, text.replace("\n", "").replace("<tool_sep>", ""), *tools)
    assert (result.calls, statuses(result), result.content) == ((), ["invalid_json"], None)


def test_a_value_that_quotes_the_end_of_another_parameter_is_not_split():
    text, values = call_without_openings("glm47", "bash", "description")
    tool = function_tool("bash", command=TEXT)
    [call] = read("glm47", text, tool).calls
    assert values["command"] in call.arguments
    assert "</arg_value>description</arg_key>" in call.arguments


@each_family
def test_a_block_s_closing_mark_written_twice_is_no_content(name):
    text = write_calls(name, ("f", {"a": "1"}))
    for closing in (*dialect_of(name).block_closes, dialect_of(name).call_close):
        if text.endswith(closing):
            for line in ("", "\n"):
                result = read(name, f"{text}{line}{closing}{line}Done.")
                assert (meaning(result), result.content.strip()) == ([("f", {"a": "1"})], "Done.")


@pytest.mark.parametrize("name", [name for name in FAMILIES if dialect_of(name).blocks])
def test_a_call_s_closing_mark_written_twice_is_seen_in_the_status(name):
    text = write_calls(name, ("f", {"a": "1"}), ("g", {}))
    closing = dialect_of(name).call_close
    for line in ("", "\n"):
        result = read(name, text.replace(closing, f"{closing}{line}{closing}", 1))
        assert (meaning(result), statuses(result)) == ([("f", {"a": "1"}), ("g", {})], ["repaired", "ok"])
        assert result.content is None


@each_family
@pytest.mark.parametrize("blank", ["", " ", "\n", "\t "])
def test_a_nameless_call_in_a_closed_block_is_an_attempt(name, blank):
    tag = tag_of(name, "QQ")
    text = write_calls(name, ("QQ", {})).replace(tag, tag.replace("QQ", blank))
    result = read(name, text)
    assert (result.calls, len(result.attempts)) == ((), 1)
    assert get_parser(name).parse(text, None, "lenient").calls == ()


@pytest.mark.parametrize("text", ["<tool_call><function=></tool_call>", "<tool_call><function=/></tool_call>"])
@pytest.mark.parametrize("name", ["qwen3_coder", "qwen3_6", "step5", "mimo"])
def test_a_self_closed_call_without_a_name_is_none(name, text):
    assert statuses(read(name, text)) == ["missing_name"]


@each_family
def test_a_block_that_never_ends_is_one_attempt_up_to_its_first_call_s_end(name):
    dialect = dialect_of(name)
    opening = dialect.openers[0]
    text = f"{opening}no call " + f"{dialect.call_close} and\n" * 300
    result = read(name, text)
    assert (result.calls, len(result.attempts)) == ((), 1)


def test_a_damaged_tag_of_minimax_m3_is_reported():
    token = "]<]minimax[>["
    body = f"{token}<a>1{token}</a>{token}</invoke>\n{token}</tool_call>"
    result = read("minimax_m3", f"{token}<tool_call>\n{token}<invoke name=f>{body}")
    assert (result.calls, statuses(result), result.content) == ((), ["invalid_json"], None)
