"""Lessons from other parsers' issues: typed markup, Python literals, Kimi's ids, Harmony, rendering.

Each test cites the issue it comes from.
"""

from __future__ import annotations

import pytest
from parser_reading import dsml, function_tool, glm45, kimi, meaning, minimax_m2, qwen3_coder, read, statuses, wide

from hermes_parsers import get_parser

TEXT, INTEGER, BOOLEAN = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
MAYBE_BOOLEAN, MAYBE_TEXT = {"type": ["boolean", "null"]}, {"type": ["string", "null"]}
WRITERS = {"qwen3_coder": qwen3_coder, "glm45": glm45, "minimax_m2": minimax_m2}
typed_families = pytest.mark.parametrize("name", WRITERS)


@pytest.mark.parametrize("name", ["pythonic", "llama4_pythonic"])
def test_a_nested_list_in_a_python_call_is_a_value(name):
    """vllm#30722: the expression for a call stopped at the inner list."""
    text = '[knowledge_search(rephrased_queries=["a, b", "c [d](e)"], filters=[["x", 1], []], top=3)]'
    expected = {"rephrased_queries": ["a, b", "c [d](e)"], "filters": [["x", 1], []], "top": 3}
    assert meaning(read(name, text)) == [("knowledge_search", expected)]


@pytest.mark.parametrize("name", ["pythonic", "llama4_pythonic"])
def test_a_complete_python_call_counts_without_its_last_bracket(name):
    """vllm#30722: the model forgot the `]`; the call itself is whole."""
    result = read(name, '[knowledge_search(queries=["a", "b"])')
    assert (meaning(result), statuses(result)) == ([("knowledge_search", {"queries": ["a", "b"]})], ["unclosed"])


@typed_families
def test_the_schema_decides_what_digits_are(name):
    """sglang PR 13411: `03106` is a zip code, `32` an age; undeclared values stay text."""
    tool = function_tool("register", person=TEXT, age=INTEGER, zip_code=TEXT)
    text = WRITERS[name]("register", person="Cooper Freeman", age="32", zip_code="03106", note="007")
    expected = {"person": "Cooper Freeman", "age": 32, "zip_code": "03106", "note": "007"}
    assert meaning(read(name, text, tool)) == [("register", expected)]


def test_a_value_without_its_closing_tag_ends_at_the_next_parameter():
    """sglang PR 15135: one forgotten `</parameter>` must not cost the value."""
    text = "<tool_call>\n<function=f>\n<parameter=a>\n1\n<parameter=b>\ntwo\n</function>\n</tool_call>"
    assert meaning(read("qwen3_coder", text, function_tool("f", a=INTEGER, b=TEXT))) == [("f", {"a": 1, "b": "two"})]


@typed_families
@pytest.mark.parametrize(("text", "value"), [("false", False), ("true", True), ("null", None), ("False", False)])
def test_a_boolean_that_may_be_null_is_never_a_truthy_text(name, text, value):
    """sglang PR 27640: `["boolean", "null"]` gave the string `"false"`, which is true."""
    wire = WRITERS[name]("f", deep=text)
    assert meaning(read(name, wire, function_tool("f", deep=MAYBE_BOOLEAN))) == [("f", {"deep": value})]


@typed_families
def test_a_value_that_does_not_fit_stays_a_text_with_a_note(name):
    """sglang PR 27640: a bad boolean became `false` silently."""
    result = read(name, WRITERS[name]("f", deep="maybe"), function_tool("f", deep=BOOLEAN))
    assert meaning(result) == [("f", {"deep": "maybe"})]
    assert "deep" in result.attempts[0].reason


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": ["object", "null"]}, "None", None),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "None", None),
        (BOOLEAN, "True", True),
        (BOOLEAN, "False", False),
        (TEXT, "None", "None"),
        (TEXT, "True", "True"),
    ],
)
def test_python_s_words_are_read_where_the_schema_allows_them(schema, text, value):
    """vllm#38885 (PR 47643), renderers#47: Qwen3.5's own template writes `None` and `True`."""
    tool = function_tool("update_record", id=INTEGER, metadata=schema)
    wire = qwen3_coder("update_record", id="42", metadata=text)
    assert meaning(read("qwen3_coder", wire, tool)) == [("update_record", {"id": 42, "metadata": value})]


@typed_families
@pytest.mark.parametrize("word", ["none", "None", "nil", "null", "NULL"])
def test_words_for_nothing_are_legal_strings(name, word):
    """vllm#39567 (PR 39580, PR 39691): a class named "none" was turned into null."""
    tool = function_tool("classify", label={"type": "string", "enum": ["none", "nil", "null", "yes"]})
    assert meaning(read(name, WRITERS[name]("classify", label=word), tool)) == [("classify", {"label": word})]


@typed_families
def test_null_is_null_where_a_string_may_be_missing(name):
    """vllm#39567: the other side of it, a string that the schema lets be null."""
    tool = function_tool("classify", label=MAYBE_TEXT)
    assert meaning(read(name, WRITERS[name]("classify", label="null"), tool)) == [("classify", {"label": None})]


PARIS = '{"city": "Paris"}'


def test_a_kimi_call_keeps_the_id_that_carries_its_name():
    """vllm#50768: what is written back must hold `functions.f:i`, the only place of the name."""
    text = kimi(("functions.get_weather:3", PARIS), ("functions.get_time:4", "{}"))
    result = read("kimi_k2", text)
    assert meaning(result) == [("get_weather", {"city": "Paris"}), ("get_time", {})]
    assert [call.wire_id or call.id for call in result.calls] == ["functions.get_weather:3", "functions.get_time:4"]
    assert get_parser("kimi_k2").render(result) == text


@pytest.mark.parametrize("call_id", ["functions.get_weather:0", "call_9f3b", "chatcmpl-tool-1a2b", "3"])
def test_a_kimi_message_with_a_foreign_id_does_not_lose_the_name(call_id):
    """vllm#50768: a history with OpenAI-style ids was rendered without any name."""
    call = {"id": call_id, "type": "function", "function": {"name": "get_weather", "arguments": PARIS}}
    parser = get_parser("kimi_k2")
    text = parser.render({"role": "assistant", "content": None, "tool_calls": [call]})
    assert meaning(parser.parse(text)) == [("get_weather", {"city": "Paris"})]


@pytest.mark.parametrize("call_id", ["3", "call_1", "call_9f3bA"])
def test_a_kimi_call_without_a_name_is_known_by_its_arguments(call_id):
    """vllm PR 32146: bare counters and OpenAI-style ids; only one tool takes a city."""
    tools = [function_tool("get_weather", city=TEXT), function_tool("get_time", zone=TEXT)]
    assert meaning(read("kimi_k2", kimi((call_id, PARIS)), *tools)) == [("get_weather", {"city": "Paris"})]


def test_a_kimi_call_whose_name_cannot_be_known_is_reported():
    """vllm PR 32146: such calls vanished."""
    result = read("kimi_k2", kimi(("call_1", PARIS)))
    assert (result.calls, statuses(result)) == ((), ["missing_name"])


@pytest.mark.parametrize(
    "text",
    [
        kimi(("functions.get_weather:0", PARIS)).replace("tool_calls_section", "tool_call_section"),
        kimi(("functions.get_weather:0", PARIS)).removeprefix("<|tool_calls_section_begin|>"),
        kimi(("functions.get_weather:0", PARIS)).removesuffix("<|tool_calls_section_end|>"),
        kimi(("functions.get_weather:0", PARIS))[28:-26],
    ],
    ids=["singular section", "no section begin", "no section end", "no section at all"],
)
def test_a_kimi_call_is_found_whatever_its_section_looks_like(text):
    """llama.cpp PR 17376, sglang#23363: the singular token, and calls outside any section."""
    result = read("kimi_k2", text)
    assert (meaning(result), result.content) == ([("get_weather", {"city": "Paris"})], None)


def test_a_kimi_call_after_thinking_that_never_ends_is_not_lost():
    """vllm PR 32216: without `</think>` the marks, which are special tokens, end the thinking."""
    result = read("kimi_k2", "<think>I need the weather." + kimi(("functions.get_weather:0", PARIS)))
    assert (meaning(result), result.reasoning) == ([("get_weather", {"city": "Paris"})], "I need the weather.")


def test_dsml_values_are_what_their_attribute_says():
    """vllm#41240: `string="true"` is text whatever it looks like, the rest is JSON."""
    values = [("a", True, "42"), ("b", False, "42"), ("c", True, "true"), ("d", False, "true"), ("e", False, "[1]")]
    expected = {"a": "42", "b": 42, "c": "true", "d": True, "e": [1]}
    assert meaning(read("deepseek_v32", dsml("f", *values))) == [("f", expected)]


@pytest.mark.parametrize("wrapper", ["arguments", "input"])
def test_a_stray_wrapper_around_dsml_arguments_is_taken_off(wrapper):
    """vllm#41240, vllm#51914: the model wrote its arguments as one parameter."""
    text = dsml("get_weather", (wrapper, False, PARIS))
    tool = function_tool("get_weather", city=TEXT)
    assert meaning(read("deepseek_v32", text, tool)) == [("get_weather", {"city": "Paris"})]


@pytest.mark.parametrize("wrapper", ["arguments", "input"])
def test_a_declared_dsml_parameter_is_no_wrapper(wrapper):
    """vllm#41240: a tool may well have a parameter of that name."""
    tool = function_tool("run", **{wrapper: {"type": "object"}})
    expected = [("run", {wrapper: {"city": "Paris"}})]
    assert meaning(read("deepseek_v32", dsml("run", (wrapper, False, PARIS)), tool)) == expected


def test_text_that_could_have_begun_a_dsml_mark_is_given_out_at_the_end():
    """vllm#41240: `2 <` was held back forever."""
    assert read("deepseek_v32", "Is it 2 <").content == "Is it 2 <"


def test_a_misspelt_dsml_mark_is_understood():
    """sglang#38924: the model writes `toolcalls`."""
    text = dsml("get_weather", ("city", True, "Paris")).replace("function_calls", "toolcalls")
    assert meaning(read("deepseek_v4", text)) == [("get_weather", {"city": "Paris"})]


HARMONY = {
    "recipient in the channel": "assistant<|channel|>commentary to=functions.web-browsing <|constrain|>json",
    "recipient after the role": "assistant to=functions.web-browsing<|channel|>commentary json",
    "role and constraint": "assistant to=functions.web-browsing<|channel|>commentary <|constrain|>json",
    "no constraint": "assistant<|channel|>commentary to=functions.web-browsing",
    "no space": "assistant<|channel|>commentary to=functions.web-browsing<|constrain|>json",
}


@pytest.mark.parametrize("header", HARMONY.values(), ids=HARMONY)
def test_every_order_of_a_harmony_header_is_read(header):
    """vllm#23567, vllm#51977: `to=functions.web-browsing` left over in a header gave status 500."""
    text = f'<|channel|>analysis<|message|>I look.<|end|><|start|>{header}<|message|>{{"url": "x"}}<|call|>'
    result = read("gpt-oss", text)
    assert (meaning(result), result.reasoning) == ([("web-browsing", {"url": "x"})], "I look.")


@pytest.mark.parametrize(
    "text",
    [
        "<|channel|>--commentary<|message|>Paris is sunny.<|end|>",
        "<|channel|>final <|constrain|>json yes no<|message|>Paris is sunny.<|return|>",
        "<|start|>assistant<|channel|><|message|>Paris is sunny.<|end|>",
        "<|channel|>analysis<|message|>Hm.<|end|>comment: Paris is sunny.",
        "<|channel|>final<|message|>Paris is sunny.<|end|><|return|>",
        "<|message|>Paris is sunny.",
    ],
)
def test_a_harmony_message_that_is_not_in_order_is_still_text(text):
    """openai/harmony#38, openai/harmony#60, vllm#22515: a strict reader threw the answer away."""
    result = read("gpt-oss", text)
    assert "Paris is sunny." in (result.content or "")
    assert result.calls == ()


FAMILIES = [
    "hermes",
    "qwen25",
    "mistral",
    "llama3_json",
    "llama4_pythonic",
    "pythonic",
    "qwen3_coder",
    "deepseek_v3",
    "deepseek_v31",
    "deepseek_v32",
    "kimi_k2",
    "glm45",
    "minimax_m2",
    "gpt-oss",
    "xlam",
    "jamba",
    "granite",
    "granite4",
    "internlm",
    "phi4_mini_json",
    "lfm2",
    "hunyuan",
    "gemma4",
]


@pytest.mark.parametrize("name", FAMILIES)
def test_arguments_are_rendered_alike_as_text_and_as_mapping(name):
    """AReaL#1420, Qwen3-Coder#444: a template that wants a mapping wrote one parameter per character."""

    def message(arguments):
        call = {"id": "abcdEF123", "type": "function", "function": {"name": "lookup", "arguments": arguments}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    parser = get_parser(name)
    text = parser.render(message('{"q": "AReaL"}'))
    assert text == parser.render(message({"q": "AReaL"}))
    assert meaning(parser.parse(text)) == [("lookup", {"q": "AReaL"})]


PROSE = {
    "hermes": "Put the JSON behind `<tool_call>`, then stop.",
    "qwen3_coder": "It opens with `<tool_call>`, then `<function=` and a name, and </parameter> ends each value.",
    "glm45": "Write `<tool_call>` first, and never forget the mark that ends it.",
    "minimax_m2": "The <minimax:tool_call> tag is what MiniMax calls begin with.",
    "mistral": "The [TOOL_CALLS] mark is a special token, [ARGS] another.",
    "kimi_k2": "A section is opened by <|tool_calls_section_begin|> in this format.",
    "deepseek_v31": wide("The token <|tool▁calls▁begin|> opens the calls."),
    "llama3_json": "A call is an object like {'name': ...}; put <|python_tag|> before it if you like.",
    "pythonic": "The list [f(x)] in the text [1] and f(a=1) are no calls (I think).",
    "granite": "The mark <|tool_call|> or <tool_call> stands before a list.",
    "internlm": "Use <|action_start|><|plugin|> to start, that is all.",
    "phi4_mini_json": "The word functools[...] opens the list.",
}


@pytest.mark.parametrize("name", PROSE)
def test_prose_about_the_marks_is_content_to_the_last_word(name):
    """club-3090#1191: everything after the first mention of `<tool_call>` was cut off."""
    result = read(name, PROSE[name])
    assert (result.content, result.calls, result.attempts) == (PROSE[name], (), ())
