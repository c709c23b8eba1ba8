"""Reasoning that is never closed ends at the first call, if the mark of the call means nothing else."""

from __future__ import annotations

import pytest
from parser_reading import (
    deepseek_v31,
    dsml,
    function_tool,
    hermes,
    kimi,
    meaning,
    read,
    scanning_parser,
    statuses,
    wide,
)

from hermes_parsers import get_parser
from hermes_parsers.catalog import FAMILIES

NOW = '{"name": "now", "arguments": {}}'
BASH = '{"name": "bash", "arguments": {"command": "rm -rf /"}}'
NEVER = "the reasoning before it is never closed"
ANALYSIS = "<|channel|>analysis<|message|>"
M3 = "]<]minimax[>["
STEP3 = wide("<|tool_calls_begin|><|tool_call_begin|>function<|tool_sep|>"), wide("<|tool_call_end|><|tool_calls_end|>")
CALL = {"id": "call00000", "function": {"name": "bash", "arguments": {"command": "ls"}}}
OTHER = {"id": "call00001", "function": {"name": "now", "arguments": {}}}
MESSAGES = {"inkling", "gpt-oss"}
"""Formats in which each part is a separate message, so the next message ends reasoning."""
BARE = {
    "phi4_mini_json": "`functools` is a word of programs",
    "minicpm5": "`<function name=` is how XML looks",
    "pythonic": "a Python list is how code looks",
    "response_template": "the metadata does not say which marks are special tokens",
}
"""Formats whose reasoning does not end at a call, each with the reason."""
MARKED = sorted({family.names[0] for family in FAMILIES} - BARE.keys() - MESSAGES)
BLOCKS = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "longcat": ("<longcat_tool_call>", "</longcat_tool_call>"),
    "jamba": ("<tool_calls>", "</tool_calls>"),
    "internlm": ("<|action_start|><|plugin|>", "<|action_end|>"),
    "lfm2": ("<|tool_call_start|>", "<|tool_call_end|>"),
    "gemma4": ("<|tool_call>", "<tool_call|>"),
    "cohere_command3": ("<|START_ACTION|>", "<|END_ACTION|>"),
    "apertus": ("<|tools_prefix|>", "<|tools_suffix|>"),
    "kimi_k2": ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    "deepseek_v31": (wide("<|tool▁call▁begin|>"), wide("<|tool▁call▁end|>")),
    "plamo3": ("<|plamo:begin_tool_requests:plamo|>", "<|plamo:end_tool_requests:plamo|>"),
    "llama3_json": ("<|python_tag|>", "<|eom_id|>"),
}
# Text that also occurs in prose ends reasoning only after a mark.
BEHIND = {"xlam": "<tool_call>", "llama3_json": "<|python_tag|>", "llama4_pythonic": "<|python_start|>"}


def marks_of_reasoning(name: str) -> tuple[str, str]:
    """Return the marks that open and close the reasoning in a format."""
    own = next(iter(scanning_parser(name).thinking.values()))
    return own.opening, own.closing


def write_calls(name: str, *calls: dict) -> str:
    """Write calls as the family's template does, after a mark."""
    return BEHIND.get(name, "") + get_parser(name).render(
        {"role": "assistant", "content": None, "tool_calls": list(calls)}
    )


@pytest.mark.parametrize("name", MARKED)
def test_a_call_ends_reasoning_that_is_never_closed_and_its_attempt_says_so(name):
    tools = (function_tool("bash", command={"type": "string"}), function_tool("now"))
    before, _ = marks_of_reasoning(name)
    for between in ("", "\n", "\n\n", " "):
        result = read(name, f"{before}I look at it.{between}{write_calls(name, CALL)}", *tools)
        assert (result.reasoning, meaning(result), result.content) == (
            "I look at it.",
            [("bash", {"command": "ls"})],
            None,
        )
        assert statuses(result) == ["unclosed"]
        assert NEVER in result.attempts[0].reason


@pytest.mark.parametrize("name", MARKED)
def test_reasoning_that_is_closed_still_holds_drafts(name):
    opening, closing = marks_of_reasoning(name)
    text = f"{opening}I could {write_calls(name, CALL)} do so.{closing}"
    result = read(name, text)
    assert (result.calls, statuses(result)) == ((), ["in_reasoning"])


@pytest.mark.parametrize("name", MARKED)
def test_the_prompt_may_have_opened_the_reasoning_that_a_call_ends(name):
    result = read(name, f"I look at it.{write_calls(name, CALL)}", reasoning_opened=True)
    assert (result.reasoning, meaning(result)) == ("I look at it.", [("bash", {"command": "ls"})])


@pytest.mark.parametrize("name", ["phi4_mini_json", "pythonic"])
def test_what_may_stand_in_prose_ends_no_reasoning(name):
    example = get_parser(name).render({"role": "assistant", "content": None, "tool_calls": [CALL]})
    result = read(name, f"<think>I could write {example} here.")
    assert (result.calls, statuses(result)) == ((), ["in_reasoning"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama3_json", '<think>Like {"name": "bash", "parameters": {"command": "ls"}} then.'),
        ("xlam", '<think>Like\n```json\n[{"name": "bash", "arguments": {"command": "ls"}}]\n```\nthen.'),
        ("llama4_pythonic", "<think>Like [bash(command='ls')] then."),
    ],
)
def test_a_call_without_its_mark_ends_no_reasoning(name, text):
    result = read(name, text)
    assert (result.calls, statuses(result)) == ((), ["in_reasoning"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("inkling", '<|content_thinking|>plan<|message_model|>f<|content_invoke_tool_json|>{"name":"f","args":{}}'),
        ("gpt-oss", f"{ANALYSIS}plan<|start|>assistant to=functions.f<|channel|>commentary<|message|>{{}}"),
        ("gpt-oss", f"{ANALYSIS}plan<|channel|>commentary to=functions.f<|message|>{{}}"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["", "<|end_message|>", "<|call|>"])
def test_the_next_message_ends_reasoning_where_every_part_is_one(name, text, end):
    result = read(name, text + (end if (name == "inkling") == (end == "<|end_message|>") else ""))
    assert (result.reasoning, meaning(result), result.content) == ("plan", [("f", {})], None)


def test_every_call_and_the_text_behind_it_is_there():
    text = "<think>\nFirst this, then that.\n" + hermes(NOW, '{"name": "f", "arguments": {"a": 1}}') + "\nDone."
    result = read("hermes", text)
    assert (result.reasoning, meaning(result)) == ("First this, then that.", [("now", {}), ("f", {"a": 1})])
    assert (result.content, statuses(result)) == ("\nDone.", ["unclosed", "ok"])


def test_a_mark_that_is_only_named_does_not_end_the_reasoning():
    result = read("hermes", "<think>I use <tool_call> for it, as in <tool_call>name</tool_call>.\n" + hermes(NOW))
    assert result.reasoning == "I use <tool_call> for it, as in <tool_call>name</tool_call>."
    assert meaning(result) == [("now", {})]
    assert statuses(result) == ["in_reasoning", "unclosed"]


@pytest.mark.parametrize("quote", ["`", '"', "'", "\u201c"])
@pytest.mark.parametrize("opened", [True, False])
def test_a_quoted_call_is_a_draft_as_long_as_something_follows_it(quote, opened):
    """A model that thinks about what it could run must not run it."""
    thought = f"I could run {quote}{hermes(BASH)}{quote} but that would be dangerous, so instead I should"
    result = read("hermes", "<think>" * (not opened) + thought, reasoning_opened=opened)
    assert (result.calls, result.content, statuses(result)) == ((), None, ["in_reasoning"])
    assert result.reasoning == thought
    both = read("hermes", "<think>" * (not opened) + f"{thought}\n{hermes(NOW)}\nDone.", reasoning_opened=opened)
    assert (both.reasoning, meaning(both), both.content) == (thought, [("now", {})], "\nDone.")
    assert statuses(both) == ["in_reasoning", "unclosed"]


FENCES = ["```", "```xml", "~~~", "````", "So: ```"]


@pytest.mark.parametrize("fence", FENCES)
@pytest.mark.parametrize("before", ["", "```py\nx = 1\n```\n", "Inline ```x``` first.\n"])
def test_a_call_in_a_code_fence_is_a_draft_and_the_one_behind_it_is_meant(fence, before):
    mark = "".join(character for character in fence if character in "`~")
    thought = f"{before}Like\n{fence}\n{hermes(BASH)}\n{hermes(BASH)}\n{mark}\nso:"
    result = read("hermes", f"<think>{thought}\n{hermes(NOW)} and more")
    assert (result.reasoning, meaning(result), result.content) == (thought, [("now", {})], " and more")
    assert statuses(result) == ["in_reasoning", "in_reasoning", "unclosed"]


@pytest.mark.parametrize(
    "before", ["```py\nx = 1\n```\n", "Inline ```x``` first.\n", "a ~~~ b\n", "It's `x`. ", '"So". ']
)
def test_a_fence_or_quote_that_has_ended_quotes_no_call_behind_it(before):
    result = read("hermes", f"<think>{before}{hermes(NOW)} and more")
    assert (meaning(result), result.content) == ([("now", {})], " and more")


def test_a_fence_in_an_argument_opens_none_in_the_reasoning():
    fenced = '{"name": "f", "arguments": {"text": "```\\n"}}'
    result = read("hermes", f"<think>Not `{hermes(fenced)}` but {hermes(NOW)} now")
    assert (meaning(result), statuses(result)) == ([("now", {})], ["in_reasoning", "unclosed"])


@pytest.mark.parametrize("before", ["`", "```\n", ""])
def test_calls_that_end_the_text_are_meant_quoted_and_unknown_ones_too(before):
    result = read("hermes", f"<think>So {before}{hermes(BASH, NOW)}\n", function_tool("f"))
    assert [call.name for call in result.calls] == ["bash", "now"]
    assert statuses(result) == ["unknown_tool", "unknown_tool"]


def test_a_call_that_names_no_tool_of_the_list_is_a_draft_as_long_as_something_follows_it():
    text = f"<think>Not {hermes(BASH)} but {hermes(NOW)} so"
    result = read("hermes", text, function_tool("now"))
    assert (result.reasoning, meaning(result), result.content) == (f"Not {hermes(BASH)} but", [("now", {})], " so")
    assert statuses(result) == ["in_reasoning", "unclosed"]
    # The tools are unknown, so the first call ends it.
    assert statuses(read("hermes", text)) == ["unclosed", "ok"]


@pytest.mark.parametrize("name", sorted(BLOCKS))
def test_a_closed_block_that_is_no_call_is_an_attempt_in_reasoning_too(name):
    block = "call it please".join(BLOCKS[name])
    opening, closing = marks_of_reasoning(name)
    for text, opened in ((f"{opening}So {block}", False), (f"So {block}", True)):
        result = read(name, text, reasoning_opened=opened)
        assert (statuses(result), result.reasoning, result.content) == (["invalid_json"], "So", None)
        assert NEVER in result.attempts[0].reason
    for text in (f"{opening}So {block} then.{closing}ok", f"{opening}So {block} then."):
        result = read(name, text)
        assert (statuses(result), result.calls) == (["in_reasoning"], ())
        assert "expected a call between" in result.attempts[0].reason


def test_a_call_that_cannot_be_read_ends_the_reasoning_too_so_that_the_model_is_told():
    result = read("hermes", "<think>So:\n" + hermes('{"name": "now", "arguments": {]}', NOW))
    assert (result.reasoning, statuses(result)) == ("So:", ["invalid_json", "ok"])
    assert NEVER in result.attempts[0].reason


def test_a_call_that_the_text_s_end_cuts_is_truncated_and_not_a_draft():
    result = read("qwen3_coder", "<think>\nplan<tool_call>\n<function=bash>\n<parameter=command>\nls")
    assert (result.reasoning, statuses(result)) == ("plan", ["truncated"])


def test_an_unknown_tool_and_a_missing_mark_are_still_said():
    result = read("kimi_k2", "<think>I do." + kimi(("functions.f:0", "{}")), function_tool("g"))
    assert statuses(result) == ["unknown_tool"]
    assert NEVER in result.attempts[0].reason
    result = read("kimi_k2", "<think>I do." + kimi(("functions.f:0", "{}")) + " Or not.", function_tool("g"))
    assert statuses(result) == ["in_reasoning"]
    result = read("glm47", "<think>plan<tool_call>now")
    assert result.calls == ()
    result = read("hermes", f"<think>plan<tool_call>{NOW}")
    assert (statuses(result), meaning(result)) == (["unclosed"], [("now", {})])
    assert NEVER in result.attempts[0].reason
    assert "</tool_call> is missing" in result.attempts[0].reason


def test_promoting_drafts_keeps_its_meaning():
    """The option applies to closed reasoning; a draft before the call that ends reasoning stays a draft."""
    closed = read("hermes", f"<think>plan {hermes(NOW)}</think>", promote_drafts=True)
    assert (meaning(closed), statuses(closed)) == ([("now", {})], ["ok"])
    bare = read("phi4_mini_json", f"<think>plan functools[{NOW}]", promote_drafts=True)
    assert (meaning(bare), statuses(bare)) == ([("now", {})], ["ok"])


def test_a_second_reasoning_behind_the_call_is_read_the_same_way():
    text = f"<think>one{hermes(NOW)}<think>two{hermes(NOW)}"
    result = read("hermes", text)
    assert (result.reasoning, len(result.calls)) == ("one\ntwo", 2)
    assert [NEVER in attempt.reason for attempt in result.attempts] == [True, True]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deepseek_v31", "<think>plan" + deepseek_v31(("now", "{}"))),
        ("deepseek_v32", "<think>plan\n\n" + dsml("now")),
        ("mistral", "[THINK]plan[TOOL_CALLS]now{}"),
        ("gemma4", "<|channel>thought\nplan<|tool_call>call:now{}<tool_call|>"),
        ("minimax_m3", f'<mm:think>plan{M3}<tool_call>{M3}<invoke name="now">{M3}</invoke>{M3}</tool_call>'),
        ("step3", f"<think>plan{STEP3[0]}<steptml:invoke name='now'></steptml:invoke>{STEP3[1]}"),
        ("hermes", f"<think>plan<tool_call>\n{NOW}\n</tool_call>"),
        ("longcat", f"<longcat_think>plan<longcat_tool_call>\n{NOW}\n</longcat_tool_call>"),
    ],
)  # fmt: skip
def test_what_families_write_without_a_line_between_is_found(name, text):
    result = read(name, text)
    assert (result.reasoning, meaning(result), result.content) == ("plan", [("now", {})], None)
