"""What the formats with a name outside the JSON do beyond the suite: forms, ids, repairs and writing."""

from __future__ import annotations

import json
import re

import pytest
from parser_reading import deepseek_v3, deepseek_v31, function_tool, kimi, meaning, read, statuses, wide

from hermes_parsers import get_parser

PARIS = '{"city": "Paris"}'


def message(*calls, content=None, reasoning=None, ids=("abcdEF123", "ghijKL456")):
    made = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, (name, arguments) in zip(ids, calls, strict=False)
    ]
    return {"role": "assistant", "content": content, "reasoning_content": reasoning, "tool_calls": made}


def contents(result):
    return [(segment.kind, segment.raw) for segment in result.segments]


def test_mistral_shapes_may_be_mixed_with_text_between():
    text = (
        'First.[TOOL_CALLS]f[ARGS]{"a": 1} Then.[TOOL_CALLS] [{"name": "g"}, {"name": "h", "id": "abcdefghi"}]\nLast.'
    )
    result = read("mistral", text)
    assert meaning(result) == [("f", {"a": 1}), ("g", {}), ("h", {})]
    assert result.content == "First. Then.\nLast."


def test_mistral_s_own_id_is_kept_in_both_shapes():
    result = read("mistral", '[TOOL_CALLS]f[CALL_ID]abcdEF123[ARGS]{}[TOOL_CALLS][{"name": "g", "id": "ghijKL456"}]')
    assert [(call.id, call.wire_id) for call in result.calls] == [("abcdEF123",) * 2, ("ghijKL456",) * 2]


def test_an_id_that_mistral_s_servers_refuse_is_replaced_and_kept_as_it_was_written():
    call = read("mistral", '[TOOL_CALLS] [{"name": "g", "arguments": {}, "id": "call_1"}]').calls[0]
    assert re.fullmatch("[A-Za-z0-9]{9}", call.id)
    assert call.wire_id == "call_1"


def test_null_for_mistral_s_arguments_is_none_at_all():
    result = read("mistral", '[TOOL_CALLS]f[ARGS]null[TOOL_CALLS]g[ARGS]{"a": 1}')
    assert meaning(result) == [("f", {}), ("g", {"a": 1})]


@pytest.mark.parametrize("word", ["true", "false"])
def test_a_word_for_mistral_s_arguments_is_a_broken_call_and_leaves_the_next_one_alone(word):
    result = read("mistral", f'[TOOL_CALLS]f[ARGS]{word}[TOOL_CALLS]g[ARGS]{{"a": 1}}')
    broken = result.attempts[0]
    assert (broken.status, broken.name, broken.raw) == ("invalid_json", "f", f"[TOOL_CALLS]f[ARGS]{word}")
    assert broken.reason == f"expected an object as arguments, got {word}"
    assert meaning(result) == [("g", {"a": 1})]


@pytest.mark.parametrize("cut", ["n", "nul", "t", "fals"])
def test_a_word_for_mistral_s_arguments_that_the_text_cuts_is_reported(cut):
    assert [attempt.status for attempt in read("mistral", f"[TOOL_CALLS]f[ARGS] {cut}").attempts] == ["truncated"]


def test_a_mistral_id_does_not_depend_on_the_calls_around_it():
    call = '[TOOL_CALLS]f[ARGS]{"a": 1}'
    alone = read("mistral", call).calls[0]
    assert read("mistral", f'[TOOL_CALLS]g[ARGS]{{}}{call}[TOOL_CALLS] [{{"name": "h"}}]').calls[1] == alone


def test_a_repeated_mistral_id_becomes_one_of_its_own():
    result = read("mistral", "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{}" * 2)
    first, second = (call.id for call in result.calls)
    assert first == "abcdefghi"
    assert re.fullmatch("[A-Za-z0-9]{9}", second)
    assert second != first


def test_a_bad_item_of_a_mistral_array_costs_only_itself():
    result = read("mistral", '[TOOL_CALLS] [{"name": "f"}, {"name": "g", "arguments": {"a": }}, {"name": "h"}]')
    assert meaning(result) == [("f", {}), ("h", {})]
    assert statuses(result) == ["ok", "invalid_json", "ok"]


@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_prose_after_a_mistral_call_that_needs_repair_stays_content(mode):
    result = read("mistral", "[TOOL_CALLS]f[ARGS]{'a': True,} I {wait}.", mode=mode)
    assert result.content == " I {wait}."
    assert statuses(result) == ["repaired" if mode == "lenient" else "invalid_json"]


def test_mistral_arguments_that_were_dumped_twice_are_decoded_once():
    inner = json.dumps(json.dumps({"a": 'say "x"'}))
    result = read("mistral", f"[TOOL_CALLS]f[ARGS]{inner} So.[TOOL_CALLS]g[ARGS]{{}}")
    assert (meaning(result), statuses(result)) == ([("f", {"a": 'say "x"'}), ("g", {})], ["ok", "ok"])
    assert (result.content, result.attempts[0].reason) == (" So.", "the arguments were JSON in a string")
    assert statuses(read("mistral", f"[TOOL_CALLS]f[ARGS]{inner[:-3]}")) == ["truncated"]
    broken = read("mistral", f"[TOOL_CALLS]f[ARGS]{inner[:-1]}[TOOL_CALLS]g[ARGS]{inner}")
    assert ([call.name for call in broken.calls], statuses(broken)) == (["g"], ["invalid_json", "ok"])


@pytest.mark.parametrize(
    "text",
    [
        "[TOOL_CALLS] is followed by a name.",
        "[TOOL_CALLS] [see below]",
        "[TOOL_CALLS] mark {x}",
        "[TOOL_CALLS][TOOL_CALLS]",
        "[TOOL_CALLS] []",
    ],
)
def test_a_mistral_mark_without_a_call_is_prose(text):
    result = read("mistral", text)
    assert (result.content, result.attempts) == (text, ())


@pytest.mark.parametrize("call", ['f[ARGS]{"a": 1}', ' f[ARGS] {"a": 1}', ' [{"name": "f", "arguments": {"a": 1}}]'])
def test_a_doubled_mistral_mark_makes_one_call(call):
    result = read("mistral", f"[TOOL_CALLS][TOOL_CALLS]{call}")
    assert (meaning(result), result.content) == ([("f", {"a": 1})], None)


def test_a_mistral_call_cut_in_its_head_is_truncated():
    for head in ("[TOOL_CALLS]get_wea", "[TOOL_CALLS]f[CALL", "[TOOL_CALLS]f[CALL_ID]abc", "[TOOL_CALLS]f[ARGS]"):
        assert statuses(read("mistral", head)) == ["truncated"], head


def test_mistral_writes_what_its_latest_tokenizers_do():
    """mistral-common, v13 and v15: no id, `[ARGS]`, no spaces; Magistral's reasoning."""
    written = get_parser("mistral").render(message(("f", {"a": "é"}), ("g", None), content="So:", reasoning="Hm."))
    assert written == '[THINK]Hm.[/THINK]So:[TOOL_CALLS]f[ARGS]{"a": "é"}[TOOL_CALLS]g[ARGS]{}'


def test_what_mistral_cannot_write_is_refused():
    for broken in (message(("f[ARGS]", {})), message(("f", {}), content='x[TOOL_CALLS]g[ARGS]{"a": 1}')):
        with pytest.raises(ValueError, match="cannot be written"):
            get_parser("mistral").render(broken)


@pytest.mark.parametrize("body", ["", " ", "null"])
@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_no_arguments_are_an_empty_object(body, mode):
    for name, text in (
        ("deepseek_v3", deepseek_v3(("f", body))),
        ("deepseek_v31", deepseek_v31(("f", body))),
        ("kimi_k2", kimi(("functions.f:0", body))),
    ):
        result = read(name, text, mode=mode)
        assert (meaning(result), result.calls[0].arguments, statuses(result)) == ([("f", {})], "{}", ["ok"])


DEEPSEEK = pytest.mark.parametrize("name", ["deepseek_v3", "deepseek_v31"])


@DEEPSEEK
@pytest.mark.parametrize("write", [deepseek_v3, deepseek_v31])
def test_a_deepseek_tool_may_be_called_function(name, write):
    assert meaning(read(name, write(("function", PARIS)))) == [("function", {"city": "Paris"})]


@DEEPSEEK
@pytest.mark.parametrize("write", [deepseek_v3, deepseek_v31])
@pytest.mark.parametrize("drop", [("<|tool▁calls▁begin|>",), ("<|tool▁calls▁end|>",)], ids=["begin", "end"])
def test_a_deepseek_section_may_lack_a_mark(name, write, drop):
    text = "Hi." + write(("f", PARIS), ("g", "{}")).replace(wide(drop[0]), "")
    result = read(name, text)
    assert (meaning(result), result.content) == ([("f", {"city": "Paris"}), ("g", {})], "Hi.")


@DEEPSEEK
@pytest.mark.parametrize("write", [deepseek_v3, deepseek_v31])
def test_each_deepseek_call_ends_by_itself(name, write):
    good, bad = ("f", PARIS), ("f", '{"city": Paris}')
    result = read(name, write(good, bad, good))
    assert (len(result.calls), statuses(result)) == (2, ["ok", "invalid_json", "ok"])
    assert result.attempts[1].name == "f"


def test_text_between_deepseek_calls_stays_content():
    calls = deepseek_v31(("f", PARIS)), deepseek_v31(("g", "{}"))
    result = read("deepseek_v31", f"One.{calls[0]}Two.{calls[1]}Three.")
    assert result.content == "One.Two.Three."
    assert [kind for kind, _ in contents(result)] == ["text", "call", "text", "call", "text"]


@pytest.mark.parametrize("body", ["just text", "5", "[1, 2]", "True"])
def test_deepseek_arguments_that_are_no_object_are_reported(body):
    assert statuses(read("deepseek_v31", deepseek_v31(("f", body), ("g", "{}")))) == ["invalid_json", "ok"]


@pytest.mark.parametrize("body", ["{'city': 'Paris'}", '{"city": "Paris",}', '{"city": "Paris"}}'])
@pytest.mark.parametrize("write", [deepseek_v3, deepseek_v31])
def test_deepseek_arguments_are_repaired_on_request(write, body):
    text = write(("f", body), ("g", "{}"))
    assert statuses(read("deepseek_v3", text)) == ["invalid_json", "ok"]
    result = read("deepseek_v3", text, mode="lenient")
    assert (meaning(result), statuses(result)) == ([("f", {"city": "Paris"}), ("g", {})], ["repaired", "ok"])


def test_a_deepseek_call_cut_in_its_head_is_truncated():
    text = deepseek_v3(("get_weather", PARIS))
    for end in range(text.index("function") + 1, text.index("{")):
        assert statuses(read("deepseek_v3", text[:end])) == ["truncated"], text[:end]


def test_deepseek_v31_text_that_ends_the_reasoning_of_its_prompt():
    """The template of V3.1 has `</think>` in front of all content."""
    result = read("deepseek_v31", "</think>It is sunny.")
    assert (result.content, result.reasoning) == ("It is sunny.", None)
    thought = read("deepseek_v31", "Hm.</think>" + deepseek_v31(("f", PARIS)))
    assert (thought.reasoning, meaning(thought)) == ("Hm.", [("f", {"city": "Paris"})])


def test_deepseek_r1_reasons_before_it_calls():
    result = read("deepseek_v3", "<think>\nHm.\n</think>\n\n" + deepseek_v3(("f", PARIS)))
    assert (result.reasoning, result.content, meaning(result)) == ("Hm.", None, [("f", {"city": "Paris"})])


@pytest.mark.parametrize(("name", "write"), [("deepseek_v3", deepseek_v3), ("deepseek_v31", deepseek_v31)])
def test_deepseek_writes_what_its_template_does(name, write):
    written = get_parser(name).render(message(("f", PARIS), ("g", {}), content="So:"))
    assert written == f"So:{write(('f', PARIS), ('g', '{}'))}"


def test_an_unknown_name_outside_the_json_is_flagged():
    for name, text in (("mistral", "[TOOL_CALLS]f[ARGS]{}"), ("deepseek_v3", deepseek_v3(("f", "{}")))):
        result = read(name, text, function_tool("g"))
        assert ([call.name for call in result.calls], statuses(result)) == (["f"], ["unknown_tool"])


@pytest.mark.parametrize(
    ("call_id", "name", "own"),
    [
        ("functions.get_weather:0", "get_weather", "functions.get_weather:0"),
        ("functions.files.read:12", "files.read", "functions.files.read:12"),
        ("get_weather:3", "get_weather", "functions.get_weather:3"),
        ("functions.glob: 1", "glob", "functions.glob:1"),
        ("functions.f", "f", "functions.f:0"),
        ("get_weather", "get_weather", "functions.get_weather:0"),
        ("functions.ns::f:0", "ns::f", "functions.ns::f:0"),
        ("functions.call_1:0", "call_1", "functions.call_1:0"),
    ],
)
def test_a_kimi_id_gives_the_name_and_has_its_own_form_in_the_history(call_id, name, own):
    call = read("kimi_k2", kimi((call_id, PARIS))).calls[0]
    assert (call.name, call.id, call.wire_id) == (name, own, call_id)


def test_a_kimi_id_that_is_repeated_becomes_unique_and_keeps_its_wire_form():
    result = read("kimi_k2", kimi(("functions.f:0", "{}"), ("functions.f:0", "{}"), ("functions.g:0", "{}")))
    assert [call.id for call in result.calls] == ["functions.f:0", "functions.f:1", "functions.g:0"]
    assert [call.wire_id for call in result.calls] == ["functions.f:0", "functions.f:0", "functions.g:0"]


WEATHER = function_tool("get_weather", city={"type": "string"})
TOWNS = function_tool("get_town", city={"type": "string"})
TIME = function_tool("get_time", zone={"type": "string"})


def test_a_kimi_name_is_inferred_only_when_one_tool_fits():
    text = kimi(("call_1", PARIS))
    inferred = read("kimi_k2", text, WEATHER, TIME)
    assert ([call.name for call in inferred.calls], statuses(inferred)) == (["get_weather"], ["ok"])
    assert "call_1" in inferred.attempts[0].reason
    for tools in ((), (TIME,), (WEATHER, TOWNS)):
        result = read("kimi_k2", text, *tools)
        assert (result.calls, statuses(result)) == ((), ["missing_name"])
        assert result.attempts[0].reason


def test_a_kimi_name_is_inferred_from_what_is_required_too():
    needs_zone = function_tool("get_time", zone={"type": "string"})
    needs_zone["function"]["parameters"]["required"] = ["zone"]
    assert meaning(read("kimi_k2", kimi(("0", "{}")), needs_zone, function_tool("ping"))) == [("ping", {})]


def test_a_kimi_tool_with_the_name_of_an_id_is_that_tool():
    tool = function_tool("call_2", city={"type": "string"})
    assert meaning(read("kimi_k2", kimi(("call_2", PARIS)), tool, WEATHER)) == [("call_2", {"city": "Paris"})]


def test_a_kimi_call_may_have_spaces_and_lines_around_its_parts():
    text = (
        "<|tool_calls_section_begin|>\n<|tool_call_begin|> functions.f:0 <|tool_call_argument_begin|> "
        f"{PARIS} <|tool_call_end|>\n<|tool_calls_section_end|>\n"
    )
    result = read("kimi_k2", f"Hi.{text}")
    assert (meaning(result), statuses(result), result.content) == ([("f", {"city": "Paris"})], ["ok"], "Hi.")


def test_kimi_calls_end_reasoning_that_is_never_closed():
    """llama.cpp PR 17376, vllm PR 32216: the marks are special tokens, no text about calls."""
    result = read("kimi_k2", "<think>I need it." + kimi(("functions.f:0", PARIS)))
    assert (result.reasoning, meaning(result)) == ("I need it.", [("f", {"city": "Paris"})])


def test_kimi_writes_its_own_ids_and_counts_where_there_are_none():
    """K2 builds `functions.f:i` itself; an id of that form is the conversation's counter."""
    calls = message(("f", {}), ("g", {"a": 1}), content="So:", ids=("functions.f:7", "call_9f3b"))
    written = get_parser("kimi_k2").render(calls)
    assert written == "So:" + kimi(("functions.f:7", "{}"), ("functions.g:1", '{"a": 1}'))


def test_kimi_writes_the_wire_id_where_the_id_was_made_unique():
    made = message(("f", {}), ids=("functions.f:12",))
    made["tool_calls"][0]["wire_id"] = "functions.f:0"
    assert get_parser("kimi").render(made) == kimi(("functions.f:0", "{}"))


def test_kimi_ids_of_another_tool_and_taken_numbers_are_not_used():
    made = message(("f", {}), ("f", {}), ids=("functions.g:0", "functions.f:0"))
    assert get_parser("kimi").render(made) == kimi(("functions.f:1", "{}"), ("functions.f:0", "{}"))


@pytest.mark.parametrize("body", ["just text", "5", "[1, 2]", "True"])
def test_kimi_arguments_that_are_no_object_are_reported(body):
    assert statuses(read("kimi_k2", kimi(("functions.f:0", body), ("functions.g:1", "{}")))) == ["invalid_json", "ok"]


def test_a_kimi_call_cut_in_its_head_is_truncated():
    text = kimi(("functions.get_weather:0", PARIS))
    for end in range(text.index("functions") + 1, text.index("{")):
        assert statuses(read("kimi_k2", text[:end])) == ["truncated"], text[:end]
