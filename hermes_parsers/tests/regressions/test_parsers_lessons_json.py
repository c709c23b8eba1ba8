"""Lessons from other parsers' issues: formats whose arguments are JSON. Each test cites the issue it comes from."""

from __future__ import annotations

import json
import re

import pytest
from parser_reading import deepseek_v3, deepseek_v31, function_tool, hermes, kimi, meaning, read, statuses

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers import get_parser

TOOL_CALLS = ("<tool_calls>", "</tool_calls>")
SHOW = {"text": "it ends with MARK, I think"}


@pytest.mark.parametrize(
    ("name", "mark", "wire"),
    [
        ("hermes", "</tool_call>", '<tool_call>\n{"name": "show", "arguments": ARGS}\n</tool_call>'),
        ("qwen25", "\n</tool_call>", '<tool_call>\n{"name": "show", "arguments": ARGS}\n</tool_call>'),
        ("granite4", "</tool_call>", '<tool_call>\n{"name": "show", "arguments": ARGS}\n</tool_call>'),
        ("jamba", "}]</tool_calls>", '<tool_calls>[\n{"name": "show", "arguments": ARGS}\n]</tool_calls>'),
        ("hunyuan", "}]</tool_calls>", '<tool_calls>[{"name": "show", "arguments": ARGS}]</tool_calls>'),
        ("internlm", "<|action_end|>", '<|action_start|><|plugin|>{"name": "show", "parameters": ARGS}<|action_end|>'),
        ("mistral", "[TOOL_CALLS]", '[TOOL_CALLS] [{"name": "show", "arguments": ARGS}]'),
        ("mistral", "[TOOL_CALLS]g[ARGS]{}", "[TOOL_CALLS]show[ARGS]ARGS"),
        ("phi4_mini_json", "}]", 'functools[{"name": "show", "arguments": ARGS}]'),
        ("llama3_json", "};{", '<|python_tag|>{"name": "show", "parameters": ARGS}'),
        ("kimi_k2", "<|tool_call_end|>", kimi(("functions.show:0", "ARGS"))),
        ("deepseek_v3", "\uff5ctool▁call▁end\uff5c>", deepseek_v3(("show", "ARGS"))),
        ("deepseek_v31", "<\uff5ctool▁call▁end\uff5c>", deepseek_v31(("show", "ARGS"))),
    ],
)
def test_an_end_mark_inside_a_string_does_not_end_the_call(name, mark, wire):
    """vllm#45167 (PR 55848), sglang PR 28698: the end is where the JSON ends, not where a mark is found."""
    arguments = {"text": SHOW["text"].replace("MARK", mark)}
    wire = wire.replace("[ARGS]", "[@]").replace("ARGS", json.dumps(arguments, ensure_ascii=False))
    assert meaning(read(name, wire.replace("[@]", "[ARGS]"))) == [("show", arguments)]


@pytest.mark.parametrize(
    "command",
    ["echo </tool_call> test", 'say \\"</tool_call>\\" twice </tool_call>', "<tool_call>{", "\\\\</tool_call>"],
)
def test_marks_beside_escaped_quotes_belong_to_the_string(command):
    """ai-sdk-tool-call-middleware#297: an end mark next to an escaped quote, two of them, an opening mark."""
    body = f'{{"name":"bash","arguments":{{"cmd":"{command}"}}}}'
    assert meaning(read("hermes", f"<tool_call>{body}</tool_call>")) == [("bash", {"cmd": json.loads(f'"{command}"')})]


def test_a_broken_call_does_not_swallow_the_good_one_after_it():
    """ai-sdk-tool-call-middleware#297 (PR 299): reading goes on behind a call whose string never ends."""
    text = '<tool_call>\n{"name": "a", "arguments": {"cmd": "echo }\n</tool_call>\n' + hermes('{"name": "b"}')
    result = read("hermes", text)
    assert meaning(result) == [("b", {})]
    assert statuses(result) == ["invalid_json", "ok"]


@pytest.mark.parametrize("name", ["hermes", "qwen25"])
def test_a_doubled_opening_mark_makes_one_call(name):
    """vllm PR 20474: models stutter `<tool_call>` twice before one body."""
    result = read(name, '<tool_call>\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>')
    assert meaning(result) == [("f", {"a": 1})]


MISTRAL_SHAPES = {
    "array after a space": '[TOOL_CALLS] [{"name": "create_file", "arguments": {"path": "/a.txt"}}]',
    "array at once": '[TOOL_CALLS][{"name": "create_file", "arguments": {"path": "/a.txt"}}]',
    "name and object": '[TOOL_CALLS]create_file{"path": "/a.txt"}',
    "args mark": '[TOOL_CALLS]create_file[ARGS]{"path": "/a.txt"}',
    "call id mark": '[TOOL_CALLS]create_file[CALL_ID]abcdEF123[ARGS]{"path": "/a.txt"}',
}


@pytest.mark.parametrize("text", MISTRAL_SHAPES.values(), ids=MISTRAL_SHAPES)
def test_the_shape_of_a_mistral_call_is_chosen_by_its_text(text):
    """vllm#30651, vllm#20028: the tokenizer's version says nothing about what this model wrote."""
    assert meaning(read("mistral", text)) == [("create_file", {"path": "/a.txt"})]


def test_a_json_list_of_mistral_calls_keeps_the_ids_it_brings():
    """mlx-lm#1374, mlx-lm PR 1643: the array shape is as valid as `[ARGS]`, its ids are the model's."""
    calls = [
        {"name": "calculator", "arguments": {"expression": "2+3"}, "id": "abcdefghi"},
        {"name": "read_file", "arguments": {"path": "/tmp/test.txt"}, "id": "Zz0000001"},
    ]
    result = read("mistral", f"[TOOL_CALLS][{', '.join(map(json.dumps, calls))}]")
    assert meaning(result) == [(call["name"], call["arguments"]) for call in calls]
    assert [call.id for call in result.calls] == ["abcdefghi", "Zz0000001"]


def test_parallel_mistral_calls_are_all_found():
    """mlx-lm PR 1448: a greedy search for one object loses both calls."""
    text = '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]get_weather[ARGS]{"city": "Tokyo"}'
    assert meaning(read("mistral", text)) == [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Tokyo"})]


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ('[TOOL_CALLS]grep[ARGS]{"pattern": "TODO"}', "\n\nLet me search for that."),
        ('[TOOL_CALLS]grep{"pattern": "TODO"}', "Estimating how many {there} are..."),
        ('[TOOL_CALLS] [{"name": "grep", "arguments": {"pattern": "TODO"}}]', "\n\n[Note] it may take a while."),
    ],
)
def test_prose_after_a_mistral_call_is_content(call, after):
    """mlx-lm PR 1448, vllm PR 40531: trailing text neither spoils the JSON nor gets lost."""
    result = read("mistral", call + after)
    assert meaning(result) == [("grep", {"pattern": "TODO"})]
    assert (result.content or "").strip() == after.strip()


@pytest.mark.parametrize("name", ["mistral", "phi4_mini_json", "jamba"])
def test_a_list_in_python_s_spelling_is_repaired_with_prose_behind_it(name):
    """vllm PR 5649: Mistral 7B writes `[{'name': ...}, ...]$$ In order to`; replacing every quote did not help."""
    item = "{'name': 'get_weather', 'arguments': {'city': \"Val d'Or\", 'now': True}}"
    before, after = {"mistral": ("[TOOL_CALLS]", ""), "phi4_mini_json": ("functools", ""), "jamba": TOOL_CALLS}[name]
    text = f"{before}[{item}, {item}]{after}$$ In order to"
    result = read(name, text, mode="lenient")
    assert meaning(result) == [("get_weather", {"city": "Val d'Or", "now": True})] * 2
    assert (statuses(result), result.content) == (["repaired", "repaired"], "$$ In order to")
    assert statuses(read(name, text)) == ["invalid_json", "invalid_json"]


def test_a_brace_before_the_mistral_mark_is_prose():
    """vllm PR 30724: the object is searched after the mark, not from the first brace on."""
    result = read("mistral", 'I fill in {name} and [x].[TOOL_CALLS] [{"name": "f", "arguments": {}}]')
    assert meaning(result) == [("f", {})]
    assert result.content == "I fill in {name} and [x]."


def test_mistral_ids_are_nine_alphanumerics_and_the_same_in_a_stream():
    """vllm#9019, vllm#10821, omlx PR 1997, opencode#1680: any other id is refused in the next turn."""
    one = MISTRAL_SHAPES["name and object"]
    result = read("mistral", one * 2 + one.replace("/a.txt", "/b.txt"))
    ids = [call.id for call in result.calls]
    assert all(re.fullmatch(r"[A-Za-z0-9]{9}", call_id) for call_id in ids)
    assert len(set(ids)) == 3


LLAMA_NESTED = {
    "two levels": '{"name": "predict", "parameters": {"record": {"age": "42", "insured_zip": "Unknown"}}}',
    "objects beside values": '{"name": "predict", "parameters": {"at": {"city": "SF", "state": "CA"}, "unit": "F"}}',
    "five levels": '{"name": "predict", "parameters": {"a": {"b": {"c": [{"d": {"e": []}}]}}}}',
}


@pytest.mark.parametrize("text", LLAMA_NESTED.values(), ids=LLAMA_NESTED)
def test_nested_llama_parameters_are_read_whole(text):
    """vllm PR 27701, vllm PR 28789: an expression for one level of braces returned the inner object."""
    result = read("llama3_json", text)
    assert meaning(result) == [("predict", json.loads(text)["parameters"])]


def test_the_trailing_comma_that_models_write_is_repaired_only_on_request():
    """vllm PR 27701: its example ends the nested object with a comma."""
    text = '{"name": "predict", "parameters": {"record": {"age": "42",}}}'
    assert read("llama3_json", text).calls == ()
    result = read("llama3_json", text, mode="lenient")
    assert (meaning(result), statuses(result)) == ([("predict", {"record": {"age": "42"}})], ["repaired"])


def test_llama_calls_may_be_separated_by_semicolons():
    """dynamo PR 9536: everything after the first object was dropped silently."""
    text = (
        '<|python_tag|>{"name":"get_weather","arguments":{"at":"NYC"}};{"name":"get_time","arguments":{"zone":"EST"}}'
    )
    assert meaning(read("llama3_json", text)) == [("get_weather", {"at": "NYC"}), ("get_time", {"zone": "EST"})]
    assert meaning(read("llama3_json", text.replace("};{", "}; {"))) == meaning(read("llama3_json", text))


def test_a_semicolon_inside_a_string_separates_nothing():
    """dynamo PR 9536: splitting the text at `;` cuts a call whose string holds one."""
    text = '{"name": "run", "parameters": {"code": "a = 1; b = {}; {\\"c\\"}"}}; {"name": "end", "parameters": {}}'
    assert meaning(read("llama3_json", text)) == [("run", {"code": 'a = 1; b = {}; {"c"}'}), ("end", {})]


def test_prose_after_a_llama_call_is_content():
    """vllm PR 19024: the call was lost when the model went on talking."""
    after = "Would you like to know more about a specific open incident?"
    result = read("llama3_json", f'{{"type": "function", "name": "getOpenIncidents", "parameters": {{}}}} \n\n{after}')
    assert meaning(result) == [("getOpenIncidents", {})]
    assert (result.content or "").strip() == after


def test_pretty_printed_deepseek_arguments_are_read():
    """hermes-agent#443, hermes-agent PR 444: `.*` without newlines dropped nearly every real call."""
    arguments = '{\n  "query": "hello",\n  "limit": 5\n}'
    result = read("deepseek_v3", deepseek_v3(("search", arguments), ("again", '{\n"x": [\n1\n]\n}')))
    assert meaning(result) == [("search", {"query": "hello", "limit": 5}), ("again", {"x": [1]})]
    assert result.calls[0].arguments == arguments


@pytest.mark.parametrize(
    ("old", "new"), [("\n```json", "```json"), ("```json\n", "```json"), ("\n```json", "\n\n```json")]
)
def test_the_code_fence_needs_no_newline_around_it(old, new):
    """vllm PR 47503: DeepSeek writes ``name```json`` as well."""
    text = deepseek_v3(("get_weather", '{"city": "Paris"}')).replace(old, new)
    assert meaning(read("deepseek_v3", text)) == [("get_weather", {"city": "Paris"})]


BROKEN = '{"city": "Paris", }'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kimi_k2", kimi(("functions.f:0", BROKEN))),
        ("deepseek_v3", deepseek_v3(("f", BROKEN))),
        ("deepseek_v31", deepseek_v31(("f", BROKEN))),
        ("mistral", f"[TOOL_CALLS]f[ARGS]{BROKEN}"),
        ("granite", f'<tool_call>[{{"name": "f", "arguments": {BROKEN}}}]'),
    ],
)
def test_arguments_that_are_not_json_are_reported_and_not_handed_on(name, text):
    """vllm PR 44058 (#41739): the invalid text was forwarded with status 200."""
    result = read(name, text)
    assert (result.calls, statuses(result)) == ((), ["invalid_json"])
    assert result.attempts[0].reason


@pytest.mark.parametrize("arguments", ["[1, 2]", '"text"', "5", "true", '{"a": NaN}', '{"a": -Infinity}'])
@pytest.mark.parametrize("name", ["kimi_k2", "deepseek_v31"])
def test_arguments_must_be_a_json_object(name, arguments):
    """vllm PR 44058 (#41739): lists, scalars and constants that only Python reads are not arguments."""
    text = kimi(("functions.f:0", arguments)) if name == "kimi_k2" else deepseek_v31(("f", arguments))
    result = read(name, text)
    assert (result.calls, statuses(result)) == ((), ["invalid_json"])


@pytest.mark.parametrize("name", ["kimi_k2", "deepseek_v3", "deepseek_v31", "gpt-oss"])
def test_arguments_encoded_twice_are_decoded_and_noted(name):
    """vllm PR 32146: templates that dump a string once more teach the model to write one."""
    arguments = json.dumps('{"city": "Paris", "n": 1.0}')
    writers = {
        "kimi_k2": lambda text: kimi(("functions.f:0", text)),
        "deepseek_v3": lambda text: deepseek_v3(("f", text)),
        "deepseek_v31": lambda text: deepseek_v31(("f", text)),
        "gpt-oss": "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>".format,
    }
    result = read(name, writers[name](arguments))
    assert [(call.name, call.arguments) for call in result.calls] == [("f", '{"city": "Paris", "n": 1.0}')]
    assert statuses(result) == ["ok"]
    assert result.attempts[0].reason


GOOD, BAD = '{"name": "good", "arguments": {"a": 1}}', '{"name": "bad", "arguments": {"a": }}'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", hermes(GOOD, BAD, GOOD)),
        ("mistral", f"[TOOL_CALLS] [{GOOD}, {BAD}, {GOOD}]"),
        ("mistral", '[TOOL_CALLS]good{"a": 1}[TOOL_CALLS]bad{"a": }[TOOL_CALLS]good{"a": 1}'),
        ("jamba", f"<tool_calls>[{GOOD}, {BAD}, {GOOD}]</tool_calls>"),
        ("granite4", hermes(GOOD, BAD, GOOD)),
        ("llama3_json", f"{GOOD}; {BAD}; {GOOD}"),
        ("xlam", f"[{GOOD}, {BAD}, {GOOD}]"),
        (
            "kimi_k2",
            kimi(("functions.good:0", '{"a": 1}'), ("functions.bad:1", '{"a": }'), ("functions.good:2", '{"a": 1}')),
        ),
        ("deepseek_v3", deepseek_v3(("good", '{"a": 1}'), ("bad", '{"a": }'), ("good", '{"a": 1}'))),
    ],
)
def test_only_the_malformed_call_is_dropped(name, text):
    """omlx PR 2142: one bad call must cost neither the response nor its siblings."""
    result = read(name, text)
    assert meaning(result) == [("good", {"a": 1}), ("good", {"a": 1})]
    assert [attempt.status for attempt in result.attempts].count(AttemptStatus.INVALID_JSON) == 1


def test_doubled_arguments_spoil_that_call_only():
    """hermes-agent#6841: `{"a":1}{"a":1}` as arguments; the next call is untouched."""
    result = read("kimi_k2", kimi(("functions.f:0", '{"a":1}{"a":1}'), ("functions.g:1", '{"b":2}')))
    assert meaning(result) == [("g", {"b": 2})]
    assert statuses(result) == ["invalid_json", "ok"]


def test_a_doubled_object_in_one_block_is_flagged_and_spoils_nothing():
    """hermes-agent#6841: the first of two objects between one pair of marks has no closing mark, which is reported."""
    body = '{"name": "list", "arguments": {"category": "research"}}'
    result = read("hermes", hermes(body + body, GOOD))
    assert statuses(result) == ["unclosed", "ok", "ok"]
    assert meaning(result)[-1] == ("good", {"a": 1})


def test_a_name_that_no_tool_has_is_kept_and_flagged():
    """hermes-agent#6841: a doubled name must reach the code that answers the model, unchanged."""
    text = hermes('{"name": "skills_listskills_list", "arguments": {}}')
    result = read("hermes", text, function_tool("skills_list"))
    assert (meaning(result), statuses(result)) == ([("skills_listskills_list", {})], ["unknown_tool"])


def test_reading_the_same_text_twice_gives_the_same_ids():
    """vllm#9019: an id that is random at every reading cannot be found again in the history."""
    parser = get_parser("hermes")
    text = hermes(GOOD, GOOD)
    assert parser.parse(text) == parser.parse(text)
    assert len({call.id for call in parser.parse(text).calls}) == 2
