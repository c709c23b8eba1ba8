"""Tagged parameters with a slip in the call's own tag: an attempt with a reason, and a call if that is certain."""

from __future__ import annotations

import json

import pytest
from parser_reading import dsml, function_tool, glm45, meaning, minimax_m2, qwen3_coder, read, statuses

from hermes_parsers import get_parser

SLIPS = ["<function=f", "function=f>", "<function f>", '<function name="f">']
BODY = "<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
OBJECT = '{"name": "f", "arguments": {"a": 1}}'


def lenient(name, text, *tools):
    return get_parser(name).parse(text, tools or None, "lenient")


@pytest.mark.parametrize("slip", SLIPS)
def test_a_call_with_a_slip_in_its_tag_is_an_attempt(slip):
    text = f"Look.\n\n<tool_call>\n{slip}\n{BODY}"
    result = read("qwen3_coder", text)
    assert (result.calls, statuses(result), result.content) == ((), ["invalid_json"], "Look.")
    assert slip in result.attempts[0].reason
    assert (result.attempts[0].name, result.attempts[0].value) == ("f", {"a": "1"})


@pytest.mark.parametrize("slip", SLIPS)
def test_a_call_with_a_slip_in_its_tag_is_repaired_where_that_is_allowed(slip):
    result = lenient("qwen3_coder", f"<tool_call>\n{slip}\n{BODY}")
    assert (meaning(result), statuses(result)) == ([("f", {"a": "1"})], ["repaired"])
    assert slip in result.attempts[0].reason


@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_a_slip_that_leaves_no_name_is_no_call(mode):
    result = get_parser("qwen3_coder").parse(f"<tool_call>\n<function = >\n{BODY}", mode=mode)
    assert (result.calls, statuses(result)) == ((), ["invalid_json"])


def test_a_call_of_a_slip_does_not_cost_the_calls_beside_it():
    text = "\n".join([qwen3_coder("g", x="2"), f"<tool_call>\n<function=f\n{BODY}", qwen3_coder("h", y="3")])
    result = read("qwen3_coder", text)
    assert (meaning(result), statuses(result)) == ([("g", {"x": "2"}), ("h", {"y": "3"})], ["ok", "invalid_json", "ok"])


def test_a_damaged_tag_before_a_whole_one_does_not_cost_its_call():
    text = minimax_m2("f", a="1").replace("<invoke", '<invoke name="g"\n<invoke')
    assert meaning(read("minimax_m2", text)) == [("f", {"a": "1"})]


@pytest.mark.parametrize("slip", ["<fun", "<function=f", "<function=f\n<param", OBJECT[:20]])
def test_a_slip_that_is_never_closed_is_no_call(slip):
    assert read("qwen3_coder", f"<tool_call>\n{slip}").calls == ()


@pytest.mark.parametrize("name", ["qwen3_coder", "mimo", "glm45", "glm47"])
def test_json_in_a_block_of_tags_is_an_attempt_that_says_so(name):
    result = read(name, f"Look.\n\n<tool_call>\n{OBJECT}\n</tool_call>")
    assert (result.calls, statuses(result), (result.content or "").rstrip()) == ((), ["invalid_json"], "Look.")
    assert "a JSON object" in result.attempts[0].reason
    assert (result.attempts[0].name, result.attempts[0].value) == ("f", {"a": 1})


@pytest.mark.parametrize("name", ["qwen3_coder", "glm45"])
def test_json_in_a_block_of_tags_is_a_call_where_repairs_are_allowed(name):
    result = lenient(name, f"<tool_call>\n{OBJECT}\n</tool_call>")
    assert (meaning(result), statuses(result)) == ([("f", {"a": 1})], ["repaired"])


@pytest.mark.parametrize(
    "body", ['{"name": "f"', '{"name": "f"}', '["f"]', '[{"name": "f", "arguments": {}}]', '{"a": NaN}']
)
def test_json_without_a_name_and_arguments_is_never_a_call(body):
    assert lenient("qwen3_coder", f"<tool_call>\n{body}\n</tool_call>").calls == ()


@pytest.mark.parametrize("body", ["<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n", ""])
@pytest.mark.parametrize("line", ["", "\n"])
@pytest.mark.parametrize("name", ["glm45", "glm47", "hy_v3", "hy_v4"])
def test_a_glm_call_without_a_name_is_reported(name, body, line):
    result = read(name, f"<tool_call>{line}{body}</tool_call>")
    assert (result.calls, statuses(result), result.content) == ((), ["missing_name"], None)
    assert "name" in result.attempts[0].reason
    assert result.attempts[0].value == ({"a": "1"} if body else {})


def test_a_glm_call_without_a_name_does_not_cost_the_next():
    result = read("glm45", "<tool_call>\n<arg_key>a</arg_key>\n</tool_call>\n" + glm45("f", a="1"))
    assert meaning(result) == [("f", {"a": "1"})]


def test_a_block_of_parameters_without_a_call_s_tag_has_no_name():
    result = read("qwen3_coder", f"<tool_call>\n{BODY}")
    assert (statuses(result), result.attempts[0].value) == (["missing_name"], {"a": "1"})


def in_marks_of(name, prose):
    return prose.replace("tool_call>", "minimax:tool_call>") if name == "minimax_m2" else prose


@pytest.mark.parametrize("name", ["qwen3_coder", "glm45", "minimax_m2"])
@pytest.mark.parametrize(
    "prose",
    ["Open it with <tool_call>", "A <tool_call> holds function calls.", "It ends with </tool_call>, not <tool_call>."],
)
def test_prose_about_a_mark_is_text(name, prose):
    text = in_marks_of(name, prose)
    result = read(name, text)
    assert (result.attempts, result.content) == ((), text)


@pytest.mark.parametrize("name", ["qwen3_coder", "glm45", "minimax_m2"])
@pytest.mark.parametrize(
    "prose",
    [
        "Put it between <tool_call> and </tool_call>, please.",
        "The marks are <tool_call>, <function=NAME> and </tool_call>.",
        "A <tool_call> holds function calls </tool_call> only.",
    ],
)
def test_prose_between_two_marks_is_an_attempt_and_the_text_around_it_stays(name, prose):
    result = read(name, in_marks_of(name, prose))
    assert (result.calls, statuses(result)) == ((), ["invalid_json"])
    assert result.content.startswith(prose.split(" <")[0])
    assert result.content.endswith(prose.rpartition(">")[2])


@pytest.mark.parametrize("quote", ["'", ""])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("minimax_m2", minimax_m2("f", a="1")),
        ("muse", minimax_m2("f", a="1").replace("minimax:tool_call", "atem:function_calls")),
        ("minicpm5", '<function name="f"><param name="a">1</param></function>'),
        ("step3", '<steptml:invoke name="f"><steptml:parameter name="a">1</steptml:parameter></steptml:invoke>'),
    ],
)
def test_a_name_may_be_in_other_quotes_or_in_none(name, text, quote):
    if name == "muse":
        for tag in ("invoke", "parameter"):
            text = text.replace(f"<{tag}", f"<atem:{tag}").replace(f"</{tag}", f"</atem:{tag}")
    result = read(name, text.replace('"', quote), function_tool("f", a={"type": "integer"}))
    assert (meaning(result), statuses(result)) == ([("f", {"a": 1})], ["ok"])


def test_a_quoted_name_may_hold_the_other_quote_and_spaces():
    text = minimax_m2("f", key="1").replace('name="key"', 'name="it\'s mine"')
    assert meaning(read("minimax_m2", text)) == [("f", {"it's mine": "1"})]


def test_a_minicpm_call_may_have_lost_the_spaces_in_its_tags():
    """vLLM's and SGLang's parsers of MiniCPM5 know these from decoders that drop the space."""
    text = 'Look. <functionname="f"><paramname="a">1</param><paramname="b">x</param></function>'
    assert json.loads(read("minicpm5", text).calls[0].arguments) == {"a": "1", "b": "x"}


@pytest.mark.parametrize(("is_text", "value"), [(False, "[1]"), (True, "x"), (False, "1.5")])
def test_a_value_that_says_its_type_is_kept_and_noted_where_the_schema_wants_another(is_text, value):
    result = read("deepseek_v32", dsml("f", ("a", is_text, value)), function_tool("f", a={"type": "integer"}))
    assert meaning(result) == [("f", {"a": value if is_text else json.loads(value)})]
    assert "a: " in result.attempts[0].reason
    assert "is not of type integer" in result.attempts[0].reason


def test_a_value_that_says_its_type_and_fits_is_not_noted():
    tool = function_tool("f", a={"type": "number"}, b={"type": "string"})
    result = read("deepseek_v32", dsml("f", ("a", False, "1"), ("b", True, "1")), tool)
    assert (meaning(result), result.attempts[0].reason) == ([("f", {"a": 1, "b": "1"})], "")


def test_a_member_of_kimi_k3_s_json_is_noted_where_the_schema_wants_another_type():
    block = '<|open|>json type="object"<|sep|>{"a": "x", "b": 2}<|close|>json<|sep|>'
    call = f'<|open|>call tool="f" index="1"<|sep|>{block}<|close|>call<|sep|>'
    tool = function_tool("f", a={"type": "integer"}, b={"type": "integer"})
    result = read("kimi_k3", f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>", tool)
    assert meaning(result) == [("f", {"a": "x", "b": 2})]
    assert "a: 'x' is not of type integer" in result.attempts[0].reason
    assert "b:" not in result.attempts[0].reason


@pytest.mark.parametrize("block", ["<tool_call>", "<tool_call>\n"])
def test_a_block_that_begins_inside_a_value_is_seen_however_its_tag_is_cut(block):
    given_up = "<function=g>\n<parameter=city>\nZ <function=f> <function=f>\n"
    result = read("qwen3_coder", f"{given_up}{block}<function=f>\n</function>\n</tool_call>")
    assert [(attempt.name, attempt.status.value) for attempt in result.attempts] == [("g", "invalid_json"), ("f", "ok")]
