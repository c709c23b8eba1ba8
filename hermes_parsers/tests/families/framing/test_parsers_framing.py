"""Content excludes the format's framing: brackets around bare calls, marks around an answer, a second reasoning."""

from __future__ import annotations

import pytest
from every_cut import read_at_every_cut
from hypothesis import given, settings
from hypothesis import strategies as st
from parser_reading import function_tool, meaning, pieces, read, read_stream, statuses

from hermes_parsers import get_parser

F = '{"name": "f", "parameters": {}}'
G = '{"name": "g", "parameters": {"a": 1}}'
BOTH = [("f", {}), ("g", {"a": 1})]
TAG = "<|python_tag|>"


def streamed_text(name: str, text: str) -> str:
    """Return the content of the events for the smallest pieces."""
    return "".join(event.text for event in read_stream(get_parser(name), pieces(text, 1))[0] if event.kind == "text")


@pytest.mark.parametrize(
    "text",
    [
        f"[{F}, {G}]",
        f"[{F},{G},]",
        f"[\n  {F},\n  {G}\n]",
        f"[{F}; {G}]",
        f"[{F}\n{G}]",
        f"{F}, {G}",
        f"{TAG}[{F}, {G}]",
        f"{TAG}{TAG}[{F}, {G}]<|eom_id|>",
        f"[{F}]; {TAG}[{G}]<|eot_id|>",
        f"[{F}], [{G}]",
        f"{F}; {G}{TAG}",
    ],
)
@pytest.mark.parametrize("name", ["llama3_json", "llama4_json"])
def test_what_joins_bare_calls_is_no_content(name: str, text: str):
    result = read(name, text)
    assert (meaning(result), result.content, streamed_text(name, text)) == (BOTH, None, "")
    assert get_parser(name).render(result) == text


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (f"Sure: [{F}, {G}] as you said.", "Sure: as you said."),
        (f"[{F}] and [{G}]", " and "),
    ],
)
def test_text_around_a_list_of_bare_calls_is_content(text: str, content: str):
    result = read("llama3_json", text)
    assert (meaning(result), (result.content or "").replace("  ", " ")) == (BOTH, content)


@pytest.mark.parametrize(
    "text", ['[{"name": "Alice", "age": 3}]', '[{"a": 1}, {"b": 2}]', "[1] and [2]", 'See [x, {"name": "y"}].', "["]
)
def test_other_brackets_are_content(text: str):
    assert (read("llama3_json", text).content, read("llama3_json", text).attempts) == (text, ())


@pytest.mark.parametrize(
    "text",
    [
        f"[[{F}, {G}]]",
        f"[[{F}], [{G}]]",
        f"[ [\n{F},\n{G}\n] ]",
        f"{TAG}[[{F}, {G}]]",
        f"```json\n[{F}, {G}]\n```",
        f"```\n{F}, {G}\n```",
        f"``` \r\n[[{F}],[{G}]]```",
    ],
)
def test_lists_in_lists_and_fences_around_bare_calls_are_no_content(text: str):
    result = read("llama3_json", text)
    assert (meaning(result), statuses(result), streamed_text("llama3_json", text)) == (BOTH, ["ok", "ok"], "")
    for around in (f"Hi.\n{text}", f"Hi.\n{text}\nBye."):
        result = read("llama3_json", around)
        assert meaning(result) == BOTH
        assert result.content == ("Hi.\n\nBye." if "Bye" in around else "Hi.\n")


@pytest.mark.parametrize("name", ["pythonic", "llama4_pythonic"])
@pytest.mark.parametrize("line", ["```python\n", "```\n", "``` \r\n\n", "```tool_code\n"])
def test_a_fence_around_a_list_of_python_calls_is_no_content(name: str, line: str):
    for calls in ("[f(), g(a=1)]", "[\n  f(),\n  g(a=1)\n]"):
        for text, content in (
            (f"{line}{calls}\n```", ""),
            (f"{line}{calls}```\n", ""),
            (f"{line}{calls}", ""),
            (f"Hi.\n{line}{calls}\n```\nBye.", "Hi.\n\nBye."),
        ):
            result = read(name, text)
            assert (meaning(result), result.content or "", streamed_text(name, text)) == (BOTH, content, content)
            assert get_parser(name).render(result) == text
    for code in (f"{line}f(a=1)\n```", f"{line}[f(1), g(2)]\n```", f"{line}[f(a=1)].sort()\n```", "Use ```x``` `y`."):
        assert (read(name, code).content, read(name, code).calls) == (code, ())


PYTHON = [
    "[",
    "]",
    ", ",
    "\n",
    "```",
    "```python\n",
    "f()",
    "g(a=1)",
    "[f(), g(a=1)]",
    "`",
    "Hi",
    " ",
    "f(1)",
    "<|python_",
]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PYTHON), max_size=7).map("".join), st.sampled_from(["pythonic", "llama4_pythonic"]))
def test_any_frame_around_python_calls_streams_as_it_parses(text: str, name: str):
    read_at_every_cut(name, text)


def test_brackets_that_are_too_many_behind_a_list_are_noted():
    result = read("llama3_json", f"[{F}]]")
    assert (meaning(result), statuses(result), result.content) == ([("f", {})], ["repaired"], None)


@pytest.mark.parametrize(
    ("item", "status"),
    [
        ('{"x": 1}', "missing_name"),
        ('{"name": "g"}', "invalid_json"),
        ("null", "invalid_json"),
        ("[1]", "invalid_json"),
    ],
)
def test_what_follows_a_call_in_a_list_and_is_none_is_reported(item: str, status: str):
    for text, wanted, calls in (
        (f"[{F}, {item}]", ["ok", status], [("f", {})]),
        (f"[{F}, {item}, {G}]", ["ok", status, "ok"], BOTH),
        (f"[{F},{item},\n{item}]", ["ok", status, status], [("f", {})]),
    ):
        result = read("llama3_json", text)
        assert (meaning(result), statuses(result), result.content) == (calls, wanted, None)


SCHEMA = '{"type": "object", "properties": {"a": {"type": "string"}, "parameters": {"type": "object"}}}'


@pytest.mark.parametrize(
    "text",
    [
        f'{{"name": "f", "description": "Does it.", "parameters": {SCHEMA}}}',
        f'{{"name": "f", "parameters": {SCHEMA}}}',
        f'{{"type": "function", "function": {{"name": "f", "parameters": {SCHEMA}}}}}',
        f'[{{"name": "f", "parameters": {SCHEMA}}}, {{"name": "g", "parameters": {SCHEMA}}}]',
    ],
)
def test_the_schema_of_a_tool_is_no_call(text: str):
    for written in (text, f"It is ```json\n{text}\n``` so."):
        result = read("llama3_json", written, function_tool("f", a={"type": "string"}))
        assert (result.content, result.attempts) == (written, ())
    given = read("llama3_json", text, function_tool("f", type={"type": "string"}, properties={"type": "object"}))
    assert [call.name for call in given.calls][:1] == ["f"]


LLAMA = ["[", "]", ", ", "; ", "\n", "```", "```json\n", F, G, '{"x": 1}', "null", '"a', "1", TAG, "Hi", SCHEMA, " "]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(LLAMA), max_size=7).map("".join))
def test_any_frame_around_bare_calls_streams_as_it_parses(text: str):
    read_at_every_cut("llama3_json", text)


ANSWERS = {
    "hunyuan": ("answer", '<tool_calls>[{"name": "f", "arguments": {}}]</tool_calls>'),
    "hunyuan_a13b": ("answer", '<tool_calls>[{"name": "f", "arguments": {}}]</tool_calls>'),
    "granite": ("response", '<|tool_call|>[{"name": "f", "arguments": {}}]'),
    "ernie45": ("response", '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize(
    "before", ["", "<think>\nink\n</think>\n", "<think>\nink\n</think>\n\n\n", "ink\n</think>\n\n"]
)
def test_marks_around_an_answer_are_no_content(name: str, before: str):
    tag, call = ANSWERS[name]
    for text, content in (
        (f"{before}<{tag}>\nanswer\n</{tag}>", "answer"),
        (f"{before}<{tag}>a\n\nb</{tag}>\n", "a\n\nb"),
        (f"{before}<{tag}>\nanswer", "answer"),
        (f"{before}<{tag}>\nanswer\n</{tag}>\n{call}", "answer"),
        (f"{before}<{tag}>\nanswer\n{call}\n</{tag}>", "answer"),
        (f"{before}<{tag}>\n{call}\n</{tag}>", ""),
    ):
        result = read(name, text)
        assert ((result.content or "").rstrip(), result.reasoning) == (content, "ink" if before else None)
        assert meaning(result) == ([("f", {})] if call in text else [])
        assert get_parser(name).render(result) == text
        # Reasoning that only its closing tag reveals is emitted as text first, and then again as reasoning.
        assert before.startswith("ink") or streamed_text(name, text) == (result.content or "")


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_s_marks_in_an_answer_are_words_of_it(name: str):
    tag = ANSWERS[name][0]
    for text in (f"The tag <{tag}> opens it, </{tag}> closes it.", f"</{tag}>", f"x <{tag}>y</{tag}>"):
        assert read(name, text).content == text
    assert read(name, f"<{tag}>\nUse <{tag}>.\n</{tag}>").content == f"Use <{tag}>."


THOUGHTS = {
    "gemma4": ("<|channel>thought\n", "<channel|>"),
    "apertus": ("<|inner_prefix|>", "<|inner_suffix|>"),
    "plamo3": ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
    "mistral": ("[THINK]", "[/THINK]"),
    "cohere_command3": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "cohere_command4": ("<|START_THINKING|>", "<|END_THINKING|>"),
}


@pytest.mark.parametrize("name", THOUGHTS)
def test_reasoning_that_begins_again_behind_text_is_reasoning(name: str):
    opening, closing = THOUGHTS[name]
    for text, content, reasoning in (
        (f"{opening}a{closing}Hi.{opening}b{closing}", "Hi.", "a\nb"),
        (f"Hi.{opening}b{closing} Bye.", "Hi. Bye.", "b"),
        (f"Hi.{opening}b{closing}{opening}c{closing} Bye.{opening}d{closing}", "Hi. Bye.", "b\nc\nd"),
        (f"Hi.{opening}b", "Hi.", "b"),
    ):
        result = read(name, text)
        assert (result.content, result.reasoning, streamed_text(name, text)) == (content, reasoning, content)
        assert get_parser(name).render(result) == text


@pytest.mark.parametrize(
    ("thought", "prose"),
    [
        *[
            ("", ""),
            ("", "Hi. "),
            ("<|channel>thought\nink\n<channel|>", ""),
            ("<|channel>thought\nink<channel|>\n", ""),
        ],
        ("<|channel>thought\nink<channel|>", "Hi. "),
    ],
)
def test_the_final_channel_of_gemma_is_an_answer(thought: str, prose: str):
    opening, call = "<|channel>final\n", "<|tool_call>call:f{}<tool_call|>"
    for text, content in (
        (f"{opening}answer<channel|>", "answer"),
        ("<|channel>final answer<channel|>", " answer"),
        (f"{opening}answer", "answer"),
        (f"{opening}<channel|>", ""),
        ("<|channel>final", ""),
        (f"{opening}answer<channel|>{call}", "answer"),
        (f"{opening}answer{call}<channel|>", "answer"),
        (f"{opening}a<channel|>b{opening}c<channel|>", "abc"),
    ):
        written = f"{thought}{prose}{text}"
        result = read("gemma4", written)
        assert (result.content or "", result.reasoning) == (prose + content, "ink" if thought else None), written
        assert meaning(result) == ([("f", {})] if call in text else [])
        assert streamed_text("gemma4", written) == (result.content or "")
        assert get_parser("gemma4").render(result) == written


def test_a_thought_in_the_final_channel_is_reasoning():
    result = read("gemma4", "<|channel>final\na<|channel>thought\nb<channel|>c<channel|>d")
    assert (result.content, result.reasoning) == ("acd", "b")


@pytest.mark.parametrize("text", ["<|channel>finally", "<|channel>", "<|channel>fin", "See <|channel>other x."])
def test_what_only_begins_like_the_final_channel_is_text(text: str):
    assert read("gemma4", text).content == text


def test_a_call_drafted_in_a_second_reasoning_is_none():
    text = "Hi.<|channel>thought\n<|tool_call>call:f{}<tool_call|><channel|><|tool_call>call:g{}<tool_call|>"
    result = read("gemma4", text)
    assert (meaning(result), statuses(result)) == ([("g", {})], ["in_reasoning", "ok"])


def test_reasoning_marks_that_are_ordinary_text_begin_none_behind_text():
    text = "Use <think> for it, and </think> behind it."
    assert (read("hermes", text).content, read("gemma4", text).content) == (text, text)


@pytest.mark.parametrize("between", [", ", "; ", "\n", " "])
def test_a_bare_call_is_told_before_the_text_ends(between: str):
    stream = get_parser("llama3_json").stream()
    events = [event for delta in pieces(f"{F}{between}{G} That was all.", 4) for event in stream.feed(delta)]
    assert [event.call.name for event in events if event.call] == ["f", "g"]
