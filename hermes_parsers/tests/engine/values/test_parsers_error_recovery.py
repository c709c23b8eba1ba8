"""One damaged call next to good ones, without closing marks between them; each test also streams."""

from __future__ import annotations

import pytest
from parser_reading import meaning, read, statuses, wide

PARIS = ("g", {"city": "Paris"})
ROME = ("g", {"city": "Rome"})


@pytest.mark.parametrize("between", ["\n", " ", "\n\n"])
@pytest.mark.parametrize(
    "damaged", ['{"name": "f", "parameters": {"a": 1}', '{"name": "f", "parameters": {"a": {"b": 1']
)
@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_a_bare_object_without_its_last_braces_leaves_the_next_call(between, damaged, mode):
    good = '{"name": "g", "parameters": {"city": "Rome"}}'
    result = read("llama3_json", between.join([good.replace("Rome", "Paris"), damaged, good]), mode=mode)
    assert (meaning(result), statuses(result)) == ([PARIS, ROME], ["ok", "invalid_json", "ok"])


def test_objects_in_arguments_without_a_comma_between_them_are_no_calls():
    text = '{"name": "f", "parameters": {"a": [{"name": "x", "parameters": {}} {"name": "y", "parameters": {}}]}}'
    assert statuses(read("llama3_json", f"{text} Done.")) == ["invalid_json"]


@pytest.mark.parametrize(
    "item",
    [
        '{"name": "f", "arguments": {"a": NaN}}',
        '{"name": "f", "arguments": {a: 1}}',
        '{"name": "f", "arguments": {"a": "x\ny"}}',
        '{"name": f", "arguments": {"a": "x"}}',
        '{"name": "f", "arguments: {"a": "x"}}',
    ],
)
def test_a_bare_array_that_cannot_be_read_leaves_the_next_array(item):
    text = f'[{item}]\n[{{"name": "g", "arguments": {{"city": "Rome"}}}}]'
    assert meaning(read("xlam", text)) == [ROME]


@pytest.mark.parametrize("damaged", ["f(s=xy', i=7)", "f(s='xy, i=7)", "f(s='xy', i=)"])
def test_a_quote_that_is_missing_in_a_marked_list_leaves_the_next_list(damaged):
    lists = [f"<|python_start|>[{call}]<|python_end|>" for call in ("g(city='Paris')", damaged, "g(city='Rome')")]
    assert meaning(read("llama4_pythonic", "\n".join(lists))) == [PARIS, ROME]


UNCLOSED = {
    "mistral": ["[TOOL_CALLS]f", "[TOOL_CALLS]f[ARGS]", "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]"],
    "granite-20b-fc": ['<function_call> {"name": "f", "arguments": '],
}
HEADS = [(name, head, "}" if head.endswith(" ") else "") for name, heads in UNCLOSED.items() for head in heads]
"""Calls without closing marks: the text before and after their arguments."""


@pytest.mark.parametrize("extra", ["}", "]", "\n}", "} }"])
@pytest.mark.parametrize(("name", "head", "tail"), HEADS)
def test_brackets_too_many_behind_a_call_cost_it_in_strict_and_no_text(name, head, tail, extra):
    text = f'{head}{{"a": 1}}{tail}{extra}\nDone.'
    lenient = read(name, text, mode="lenient")
    assert (meaning(lenient), statuses(lenient), lenient.content) == ([("f", {"a": 1})], ["repaired"], "\nDone.")
    strict = read(name, text)
    assert (strict.calls, statuses(strict), strict.content) == ((), ["invalid_json"], "\nDone.")


@pytest.mark.parametrize("written", ["5", "-1.5", '"text"', "true", "[1]"])
def test_what_is_no_object_behind_a_mistral_head_is_reported(written):
    result = read("mistral", f'[TOOL_CALLS]f[ARGS]{written}\n[TOOL_CALLS]g[ARGS]{{"city": "Rome"}}')
    assert (meaning(result), statuses(result)) == ([ROME], ["invalid_json", "ok"])
    assert result.attempts[0].name == "f"


@pytest.mark.parametrize("opener", ["<|tool▁calls▁begin|>", "<|tool_calls_section_begin|>"])
@pytest.mark.parametrize("name", ["deepseek_v3", "deepseek_v31", "kimi_k2"])
def test_the_mark_of_a_section_and_one_last_word_are_text(name, opener):
    if name != "kimi_k2":
        opener = wide(opener)
    result = read(name, f"{opener} nothing")
    assert (result.content, result.attempts) == (f"{opener} nothing", ())
