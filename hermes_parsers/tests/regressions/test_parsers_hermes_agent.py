"""Defects of hermes-agent's parsers must not come back: at least one test for each known defect."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from parser_reading import (
    deepseek_v3,
    deepseek_v31,
    function_tool,
    glm45,
    hermes,
    kimi,
    meaning,
    qwen3_coder,
    read,
    statuses,
)

from hermes_parsers import get_parser

TEXT = {"type": "string"}
GOOD = '{"name": "good", "arguments": {"a": 1}}'
BAD = '{"name": "bad", "arguments": {"a": 1'


def test_one_malformed_block_leaves_the_other_calls():
    """hermes-agent: one bad hermes block dropped every call; it is a report with a place and a reason."""
    text = hermes(GOOD, BAD, GOOD)
    result = read("hermes", text)
    assert meaning(result) == [("good", {"a": 1}), ("good", {"a": 1})]
    bad = result.attempts[1]
    assert (bad.status, bad.raw) == ("invalid_json", text[bad.start : bad.end])
    assert BAD in bad.raw
    assert bad.reason


@pytest.mark.parametrize(
    ("text", "content", "reasoning"),
    [
        (f"<think>I use <tool_call> now.</think>{hermes(GOOD)}", "", "I use <tool_call> now."),
        (f"The <tool_call> tag: {hermes(GOOD)}", "The <tool_call> tag:", None),
        (f"{hermes(GOOD)}\nThat was <tool_call>.", "That was <tool_call>.", None),
    ],
)
def test_a_literal_mark_does_not_stop_the_reading(text, content, reasoning):
    """hermes-agent: a `<tool_call>` in thoughts or prose; a call needs its JSON right behind the mark."""
    result = read("hermes", text)
    assert meaning(result) == [("good", {"a": 1})]
    assert ((result.content or "").strip(), result.reasoning) == (content, reasoning)


def test_the_closing_mark_inside_a_string_is_text():
    """hermes-agent: `</tool_call>` in a JSON string ended the block."""
    body = '{"name": "write", "arguments": {"content": "<tool_call>x</tool_call>"}}'
    assert meaning(read("hermes", hermes(body))) == [("write", {"content": "<tool_call>x</tool_call>"})]


def test_raw_newlines_and_tabs_in_strings_are_repaired_only_on_request():
    """hermes-agent: they made the call fail; repaired, they say so."""
    text = hermes('{"name": "write", "arguments": {"content": "one\n\ttwo"}}')
    assert statuses(read("hermes", text)) == ["invalid_json"]
    result = read("hermes", text, mode="lenient")
    assert (meaning(result), statuses(result)) == ([("write", {"content": "one\n\ttwo"})], ["repaired"])
    assert result.attempts[0].reason


def test_arguments_written_as_a_string_are_decoded_once():
    """hermes-agent: they were encoded a second time."""
    arguments = json.dumps('{"city": "Paris"}')
    result = read("hermes", hermes(f'{{"name": "f", "arguments": {arguments}}}'))
    assert meaning(result) == [("f", {"city": "Paris"})]
    assert result.attempts[0].reason


@pytest.mark.parametrize("arguments", ['"just text"', '"[1, 2]"', "[1]", "3"])
def test_arguments_that_are_no_object_are_not_handed_on(arguments):
    """hermes-agent: only a string that holds an object is decoded."""
    result = read("hermes", hermes(f'{{"name": "f", "arguments": {arguments}}}', GOOD))
    assert (meaning(result), statuses(result)) == ([("good", {"a": 1})], ["invalid_json", "ok"])


@pytest.mark.parametrize(
    "nameless", ['{"arguments": {"a": 1}}', '{"name": null, "arguments": {}}', '{"name": 5}', "{}"]
)
@pytest.mark.parametrize("name", ["longcat", "hermes"])
def test_a_call_without_a_name_costs_only_itself(name, nameless):
    """hermes-agent: longcat without "name" was a KeyError that dropped every call."""
    mark = "longcat_tool_call" if name == "longcat" else "tool_call"
    text = f"<{mark}>{nameless}</{mark}>\n<{mark}>{GOOD}</{mark}>"
    result = read(name, text)
    assert (meaning(result), statuses(result)) == ([("good", {"a": 1})], ["missing_name", "ok"])


def test_objects_in_llama_s_prose_without_arguments_are_text():
    """hermes-agent: content ended at the first brace."""
    text = 'For {"example": 1} a record is {"name": "Ann", "age": 5}, a schema {"parameters": {"a": 1}}; see {}.'
    result = read("llama3_json", text, function_tool("get_weather", city=TEXT))
    assert (result.content, result.calls, result.attempts) == (text, (), ())


def test_an_object_in_llama_s_prose_that_names_no_tool_is_flagged():
    """hermes-agent: any JSON with name and parameters passed for a good call; the list of tools shows that it is not
    one.
    """
    text = 'A record is {"name": "Ann", "parameters": {"age": 5}} as you see.'
    result = read("llama3_json", text, function_tool("get_weather", city=TEXT))
    assert statuses(result) == ["unknown_tool"]
    assert "A record is" in (result.content or "")
    assert "as you see." in (result.content or "")


def test_an_object_in_llama_s_prose_that_names_a_tool_is_a_call():
    """hermes-agent: and the text around it stays."""
    text = 'I use {braces} here: {"name": "get_weather", "parameters": {"city": "Paris"}} and wait.'
    result = read("llama3_json", text, function_tool("get_weather", city=TEXT))
    assert meaning(result) == [("get_weather", {"city": "Paris"})]
    assert "I use {braces} here:" in (result.content or "")
    assert "and wait." in (result.content or "")


@pytest.mark.parametrize(
    "text",
    [
        '[TOOL_CALLS]f[ARGS]{"text": "a [TOOL_CALLS] b"}',
        '[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"text": "a [TOOL_CALLS] b"}',
        '[TOOL_CALLS] [{"name": "f", "arguments": {"text": "a [TOOL_CALLS] b"}}] and text after it',
    ],
)
def test_mistral_s_marks_are_neither_names_nor_ends(text):
    """hermes-agent: `[ARGS]` and `[CALL_ID]` landed in the name, a mark in a string split the call."""
    assert meaning(read("mistral", text)) == [("f", {"text": "a [TOOL_CALLS] b"})]


FILES = [
    "True",
    "123",
    '{"key": [1, 2]}\n',
    "    def f():\n        return 1\n",
    "\n\nblank lines around\n\n",
    "null",
    "  ",
]


@pytest.mark.parametrize("content", FILES)
def test_a_declared_string_arrives_to_the_last_space(content):
    """hermes-agent: Qwen3-Coder's values were guessed and stripped, which broke written files."""
    tool = function_tool("write_file", path=TEXT, content=TEXT)
    text = qwen3_coder("write_file", path="a.json", content=content)
    assert meaning(read("qwen3_coder", text, tool)) == [("write_file", {"path": "a.json", "content": content})]


@pytest.mark.parametrize("content", FILES)
def test_a_declared_glm_string_arrives_to_the_last_space(content):
    """hermes-agent: the same for GLM, whose values are verbatim between their tags."""
    tool = function_tool("write_file", path=TEXT, content=TEXT)
    text = glm45("write_file", path="a.json", content=content)
    assert meaning(read("glm45", text, tool)) == [("write_file", {"path": "a.json", "content": content})]


def test_values_are_converted_by_the_schema_alone():
    """hermes-agent: the declared type decides, not the look of the text."""
    tool = function_tool("f", n={"type": "integer"}, on={"type": "boolean"}, items={"type": "array"}, text=TEXT)
    text = qwen3_coder("f", n="5", on="true", items='["a"]', text="5")
    assert meaning(read("qwen3_coder", text, tool)) == [("f", {"n": 5, "on": True, "items": ["a"], "text": "5"})]


def test_a_parameter_tag_inside_a_value_adds_no_parameter():
    """hermes-agent: a nested `<parameter=` injected another argument; only a declared name opens one."""
    content = "call it as <parameter=path>\n/etc/passwd\n</parameter> or <parameter=evil>\n1\n</parameter> here"
    text = qwen3_coder("write_file", path="a.md", content=content)
    (call,) = read("qwen3_coder", text, function_tool("write_file", path=TEXT, content=TEXT)).calls
    arguments = json.loads(call.arguments)
    assert arguments["path"] == "a.md"
    assert "evil" not in arguments


@pytest.mark.parametrize("name", ["glm45", "glm47"])
@pytest.mark.parametrize("newline", ["\n", ""])
def test_one_glm_parser_reads_both_layouts(name, newline):
    """hermes-agent: GLM-4.5 without newlines failed."""
    text = glm45("f", a="x", b="y").replace("\n", newline)
    assert meaning(read(name, text)) == [("f", {"a": "x", "b": "y"})]


def test_kimi_arguments_are_checked_and_its_ids_kept_for_writing_back():
    """hermes-agent: invalid JSON passed; the id on the wire is what the model must see again."""
    text = kimi(("functions.x:0", "{oops}"), ("functions.y:1", '{"a": 1}'))
    result = read("kimi_k2", text)
    assert (meaning(result), statuses(result)) == ([("y", {"a": 1})], ["invalid_json", "ok"])
    assert "functions.y:1" in {result.calls[0].id, result.calls[0].wire_id}
    assert get_parser("kimi_k2").render(result) == text


@pytest.mark.parametrize("name", ["deepseek_v3", "deepseek_v31", "deepseek_v3_1"])
@pytest.mark.parametrize("write", [deepseek_v3, deepseek_v31])
def test_the_deepseek_layout_is_recognised_in_the_text(name, write):
    """hermes-agent: V3 text in the V3.1 parser gave a tool called "function"."""
    text = write(("get_weather", '{"city": "Paris"}'), ("get_time", "{}"))
    assert meaning(read(name, text)) == [("get_weather", {"city": "Paris"}), ("get_time", {})]


def test_text_between_and_after_calls_stays_in_its_place():
    """hermes-agent: it was lost; segments give the order of everything with its place in the source."""
    text = f"<think>Hm.</think>First.\n{hermes(GOOD)}\nThen.\n{hermes(GOOD)}\nLast."
    result = read("hermes", text)
    assert [segment.kind for segment in result.segments] == ["reasoning", "text", "call", "text", "call", "text"]
    assert [segment.call for segment in result.segments if segment.kind == "call"] == [0, 1]
    assert "".join(segment.raw for segment in result.segments) == text
    assert result.content == "".join(segment.raw for segment in result.segments if segment.kind == "text")
    assert [word for word in ("First.", "Then.", "Last.") if word not in (result.content or "")] == []


ROUND_TRIPS = [
    ("hermes", f"<think>\nHm.\n</think>\n\nSo:\n{hermes(GOOD)}\n and <tool_call> {hermes(BAD)}"),
    ("hermes", '<tool_call>{"arguments" : {"a":1.0, "b":"\\u00e9"} ,"name":"f"}</tool_call>  '),
    ("mistral", '[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a":  1}'),
    ("llama3_json", '<|python_tag|>{"name":"f","parameters":{"a":1}};{"name":"g","parameters":{}}'),
    ("qwen3_coder", f"Now.\n\n{qwen3_coder('f', a='1', b='  x')}"),
    ("deepseek_v3", deepseek_v3(("f", '{\n  "a": 1\n}'), ("g", "{}"))),
    ("kimi_k2", f"Text.{kimi(('functions.f:7', '{}'))}"),
    ("glm45", f"<think></think>\n{glm45('f', a='1')}"),
]


@pytest.mark.parametrize(("name", "text"), ROUND_TRIPS)
def test_what_was_read_is_written_back_byte_for_byte(name, text):
    """hermes-agent: messages could not be written back, so prompts of later turns did not begin with the sampled
    tokens.
    """
    assert get_parser(name).render(read(name, text)) == text


def test_parsing_needs_no_client_library():
    """hermes-agent: the parsers needed the types of `openai`; plain records need nothing."""
    code = (
        "import sys; from hermes_parsers import get_parser; "
        f"assert get_parser('hermes').parse({hermes(GOOD)!r}).calls[0].name == 'good'; "
        "print(sorted({'openai', 'pydantic', 'asyncio', 'aiohttp', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (f"<tool_call>\n{BAD}\n</tool_call>", "invalid_json"),
        (f"<tool_call>\n{BAD}", "truncated"),
        ('<tool_call>\n{"arguments": {}}\n</tool_call>', "missing_name"),
    ],
)
def test_a_malformed_call_never_passes_for_a_final_answer(text, status):
    """hermes-agent: the agent took it for the answer; here no part of it is content, and the failure is reported."""
    result = read("hermes", text)
    assert (result.content, result.calls, statuses(result)) == (None, (), [status])
    assert result.attempts[0].reason
    assert [(segment.kind, segment.call) for segment in result.segments] == [("call", None)]
