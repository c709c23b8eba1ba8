"""Texts with very many broken calls: each is reported as if it were alone, and the good calls between them are kept."""

from __future__ import annotations

import pytest
from parser_reading import meaning, read

from hermes_core.contracts.parsing import AttemptStatus

MARKS = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "internlm": ("<|action_start|><|plugin|>", "<|action_end|>"),
    "granite-20b-fc": ("<function_call>", ""),
    "jamba": ("<tool_calls>[", "]</tool_calls>"),
    "granite": ("<|tool_call|>[", "]"),
    "phi4_mini_json": ("functools[", "]"),
    "mistral": ("[TOOL_CALLS] [", "]"),
    "xlam": ("[TOOL_CALLS][", "]"),
    "llama3_json": ("<|python_tag|>", ""),
}
ARGUMENTS = dict.fromkeys(MARKS, "arguments") | {"internlm": "parameters", "llama3_json": "parameters"}
MANY = 12
"""More than the readers' limit for occasional faults."""

BROKEN = {
    "an open object": '{"name": "f", "arguments": ',
    "open brackets": '{"name": "f", "arguments": {"a": [[{"b": ',
    "an open string on a line": '{"name": "f", "arguments": {"a": "x\n',
    "an open string with a backslash at the line's end": '{"name": "f", "arguments": {"a": "x\\\n',
    "a word that is no JSON": '{"name": f, "arguments": {"a": ',
    "a quote too many": '{"name": "f"", "arguments": {"a": ',
    "nesting beyond the limit": '{"name": "f", "arguments": ' + "[" * 140,
}
CASES = [(name, kind) for name in MARKS for kind in BROKEN]


def call(name, function):
    opener, closer = MARKS[name]
    return f'{opener}{{"name": "{function}", "{ARGUMENTS[name]}": {{"a": 1}}}}{closer}'


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_broken_call_is_reported_alike_wherever_it_stands_in_a_run(name, kind):
    broken = MARKS[name][0] + BROKEN[kind]
    attempts = read(name, broken * MANY + call(name, "g")).attempts
    reports = [(attempt.status, attempt.raw.rstrip(), attempt.reason) for attempt in attempts[:-1]]
    assert reports == reports[:1] * MANY
    assert reports[0][0] is AttemptStatus.INVALID_JSON


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_call_among_very_many_broken_ones_is_kept(name, kind):
    broken = (MARKS[name][0] + BROKEN[kind]) * MANY
    text = broken + call(name, "g") + broken + call(name, "h")
    assert meaning(read(name, text)) == [("g", {"a": 1}), ("h", {"a": 1})]


@pytest.mark.parametrize("name", ["jamba", "granite", "mistral"])
def test_an_array_without_an_object_is_text(name):
    text = f"{MARKS[name][0]} {MARKS[name][0]} 1]"
    assert (read(name, text).content, read(name, text).attempts) == (text, ())


# Each took minutes: a regular expression tried every shorter attribute or name from every place.
ENDLESS = {
    "minimax_m2": "<invoke name=" + "=" * 100_000,
    "step3": "1<steptml:invoke name=f" + "\\" * 100_000 + "\n",
    "deepseek_v41": "<｜DSML｜ invoke name=" + "(" * 100_000 + "<｜DSML｜ tool_calls>",
    "gigachat35": "</function><｜GCML｜invoke name=" + "[{" * 50_000 + "<｜GCML｜invoke name=",
    "muse": "<[<atem:invoke name=" + "{[{=," * 20_000 + "<function=f>",
    "minicpm5": "[{<functionname=" + "[{" * 50_000 + "<tool_call>",
    "qwen3_coder": "<tool_call><function" + ":" * 100_000 + "!</tool_call>",
}


@pytest.mark.parametrize(("name", "text"), ENDLESS.items(), ids=ENDLESS)
def test_a_tag_without_end_is_read_in_one_pass(name, text):
    assert read(name, text).calls == ()
