"""Lists of calls without an opening mark: nested lists, fences around them, tools that are only described, broken
items.
"""

from __future__ import annotations

import pytest
from every_cut import read_at_every_cut
from hypothesis import given, settings
from hypothesis import strategies as st
from parser_reading import function_tool, meaning, pieces, read, read_stream, statuses

from hermes_parsers import get_parser
from hermes_testing.suites.parser.growth import DOUBLING, FOLD, lines_run, time_growth

F = '{"name": "f", "parameters": {}}'
G = '{"name": "g", "parameters": {"a": 1}}'
BOTH = [("f", {}), ("g", {"a": 1})]
NOW = function_tool("now", a={"type": "string"}, n={"type": "integer"})
BASH = function_tool("bash", command={"type": "string"})
PYTHONIC = ["pythonic", "llama4_pythonic"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"[{F}, [{G}]]", ["ok", "ok"]),
        (f"[{F}, [[{G}]]]", ["ok", "ok"]),
        (f"[{F},\n[\n{G}],\n]", ["ok", "ok"]),
        (f"[[{F}], {G}]", ["ok", "ok"]),
        (f"[[{F}], [[{G}]]]", ["ok", "ok"]),
        (f"[{F}, [1, {G}], null]", ["ok", "invalid_json", "ok", "invalid_json"]),
        (f'[{F}, [{{"x": 1}}, {G}]]', ["ok", "missing_name", "ok"]),
        (f'[{F}, {{"x": 1,}}, {G}]', ["ok", "invalid_json", "ok"]),
        (f"[{F}, [], {G}]", ["ok", "invalid_json", "ok"]),
        (f"[{F}, [{G}", ["ok", "unclosed"]),
        (f"[{F}, [{G}]", ["ok", "unclosed"]),
        (f"[{F}, [{G}]]]", ["ok", "repaired"]),
    ],
)
def test_every_call_in_a_list_in_a_list_of_bare_calls_is_read(text: str, wanted: list[str]):
    for written in (text, f"<|python_tag|>{text}", f"Hi. {text}"):
        result = read_at_every_cut("llama3_json", written)
        content = "Hi. " if written[0] == "H" else None
        assert (meaning(result), statuses(result), result.content) == (BOTH, wanted, content)


def test_what_stands_behind_a_list_of_bare_calls_is_none_of_its_items():
    for text, content in ((f"[{F}], [1] and [2]", ", [1] and [2]"), (f"[{F}] [see {G}]", "[see ]")):
        result = read_at_every_cut("llama3_json", text)
        assert (result.content or "").strip() == content
        assert "invalid_json" not in statuses(result)


SHAPES = [
    ("llama3_json", f"[{F}, "),
    ("llama3_json", f"[[{F}], "),
    ("llama3_json", f"[{F}, [{F}]], "),
    ("llama3_json", f"[{F}, [], ["),
    ("llama3_json", f"```json\n[{F}, "),
    ("llama3_json", f"```json\n{F}x"),
    ("xlam", '[{"name": "f", "description": "d", "parameters": {}}'),
    ("phi4_mini_json", 'functools[{"name": "f", "arguments": {}}]] '),
    ("pythonic", "[f(), "),
    ("pythonic", "[f(), 5, "),
    ("pythonic", "[f(), {"),
    ("pythonic", "[f(a='x')]' b')] "),
    ("pythonic", "[f(a='x')]' ("),
    ("pythonic", "```\n[f()]x"),
]


@pytest.mark.parametrize(("name", "unit"), SHAPES)
def test_what_stands_around_bare_calls_costs_linear_work(name: str, unit: str):
    parser = get_parser(name)

    def read_in_pieces(text: str) -> None:
        read_stream(parser, pieces(text, 7))

    for act in (parser.parse, read_in_pieces):
        small, large = (lines_run(act, unit * count) for count in (60, 120))
        assert large <= DOUBLING * small


def test_no_call_in_very_many_lists_is_lost():
    result = get_parser("llama3_json").parse(f"[{F}, " * 3000)
    assert len(result.calls) == 3000


@pytest.mark.slow
@pytest.mark.parametrize(("name", "unit"), SHAPES)
def test_time_grows_no_faster_than_what_stands_around_bare_calls(name: str, unit: str):
    assert time_growth(get_parser(name).parse, unit * 250, unit * 250 * FOLD) <= DOUBLING**3


OBJECT = '{"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}'
DECLARED = [
    '{"name": "now", "description": "Tells the time.", "KEY": {"type": "object"}}',
    '{"name": "now", "description": "Tells the time.", "KEY": {}}',
    '{"description": "Tells the time.", "name": "now", "KEY": null}',
    '{"name": "now", "KEY": {"type": "object"}}',
    f'{{"name": "bash", "KEY": {OBJECT}}}',
    '{"name": "bash", "KEY": {"properties": {"command": {}}, "required": ["command"]}}',
    '{"name": "bash", "KEY": {"type": "OBJECT", "properties": {"command": {"type": "STRING"}}}}',
    '{"type": "function", "function": {"name": "now", "description": "Tells.", "KEY": {}}}',
]


@pytest.mark.parametrize("declared", DECLARED)
def test_a_declaration_of_a_tool_is_text(declared: str):
    declared = declared.replace("KEY", "parameters")
    for text in (declared, f"[{declared}]", f"[{declared}, {declared}]", f"I have:\n```json\n[{declared}]\n```\n"):
        for tools in ((NOW, BASH), ()):
            for name in ("llama3_json", "xlam"):
                result = read_at_every_cut(name, text, *tools)
                assert (result.content, result.attempts) == (text, ()), name


def test_a_list_of_several_declarations_is_text():
    text = f"[{', '.join(DECLARED)}]".replace("KEY", "parameters")
    for name in ("llama3_json", "xlam"):
        assert read(name, text, NOW, BASH).content == text


@pytest.mark.parametrize("name", ["llama3_json", "xlam"])
def test_a_call_that_looks_a_little_like_a_declaration_runs(name: str):
    key = "parameters" if name == "llama3_json" else "arguments"
    issue = function_tool("issue", description={"type": "string"}, type={"type": "string"}, properties={})
    for value in ('{"description": "x"}', '{"type": "object"}', '{"properties": {"a": 1}}', '{"type": "bug"}', "{}"):
        assert statuses(read(name, f'[{{"name": "issue", "{key}": {value}}}]', issue)) == ["ok"]
    for value in ('{"type": "bug"}', '{"properties": [1]}', '{"type": "object", "command": "ls"}'):
        assert statuses(read(name, f'[{{"name": "bash", "{key}": {value}}}]', BASH)) == ["ok"]


FENCED = {
    "llama3_json": ("```json\n", f"{F}", f"{F}\n{G}", f"[{F}]\n\n[{G}]", f"{F};\n{G}"),
    "pythonic": ("```python\n", "[f()]", "[f(), g(a=1)]", "[f()]\n[g(a=1)]", "[f()], [g(a=1)]"),
}
FENCED["llama4_pythonic"] = FENCED["pythonic"]


@pytest.mark.parametrize("name", FENCED)
def test_a_fence_around_calls_is_framing_only_if_it_ends_behind_them(name: str):
    line, one, *both = FENCED[name]
    for calls in both:
        for text, content in (
            (f"{line}{calls}\n```", ""),
            (f"{line}{calls}\n\n```\nBye.", "\nBye."),
            (f"{line}{calls}\n", ""),
            (f"Hi.\n{line}{calls}```", "Hi.\n"),
        ):
            result = read_at_every_cut(name, text)
            assert (meaning(result), result.content or "") == (BOTH, content), text
    for rest in ("// comment", '{"x": 1}', "print(1)"):
        for end in ("\n```", "\n```\nBye.", ""):
            result = read_at_every_cut(name, f"{line}{one}\n{rest}{end}")
            assert (meaning(result), result.content) == ([("f", {})], f"{line}\n{rest}{end}"), rest


@pytest.mark.parametrize("name", PYTHONIC)
@pytest.mark.parametrize(
    ("text", "calls", "wanted"),
    [
        ("[[f()]]", BOTH[:1], ["ok"]),
        ("[[f()], [g(a=1)]]", BOTH, ["ok", "ok"]),
        ("[[f()], g(a=1)]", BOTH, ["ok", "ok"]),
        ("[f(), [g(a=1)]]", BOTH, ["ok", "ok"]),
        ("[ [\nf(),\ng(a=1)\n] ]", BOTH, ["ok", "ok"]),
        ("[f()], [g(a=1)]", BOTH, ["ok", "ok"]),
        ("[f()]]", BOTH[:1], ["repaired"]),
        ("[[f()]", BOTH[:1], ["unclosed"]),
        ("[f(), 5]", BOTH[:1], ["ok", "invalid_json"]),
        ("[f(), 'x', -1.5, None]", BOTH[:1], ["ok", "invalid_json", "invalid_json", "invalid_json"]),
        ('[f(), "x)]", g(a=1)]', BOTH, ["ok", "invalid_json", "ok"]),
        ("[f(), [5], g(a=1)]", BOTH, ["ok", "invalid_json", "ok"]),
        ('[f(), {"x": 1}]', BOTH[:1], ["ok", "invalid_json"]),
    ],
)
def test_lists_in_lists_of_python_calls_leave_no_frame(name: str, text: str, calls: list, wanted: list[str]):
    tools = function_tool("f"), function_tool("g", a={"type": "integer"})
    for known in (tools, ()):
        for written in (text, f"<|python_tag|>{text}"):
            result = read_at_every_cut(name, written, *known)
            assert (meaning(result), statuses(result), result.content) == (calls, wanted, None), written
        assert read_at_every_cut(name, f"Hi.\n{text}\nBye.", *known).content == "Hi.\n\nBye."


def test_a_word_in_a_list_of_calls_of_known_tools_is_an_attempt():
    result = read_at_every_cut("pythonic", "[now(), later, now(n=1)]", NOW)
    assert (statuses(result), result.content) == (["ok", "invalid_json", "ok"], None)
    assert read("pythonic", "See [now(), later] there.").attempts == ()


@pytest.mark.parametrize("text", ["x = [[f()]]", "y[[f(), g(a=1)]]"])
def test_lists_in_lists_that_are_code_are_text(text: str):
    result = read_at_every_cut("pythonic", text, function_tool("f"))
    assert (result.content, result.attempts) == (text, ())


CUT = [
    ("rm -rf /tmp/a')]' b", "[bash(command='{}')]"),
    ("rm a')] x' b", "[bash(command='{}')]"),
    ("rm a')]' b", "[bash(command='{}')]\nDone."),
    ("rm a')]' (b) c", "[now(), bash(command='{}')]"),
    ("rm a')]' b", "[bash(command='{}')] they say"),
]


@pytest.mark.parametrize("name", PYTHONIC)
@pytest.mark.parametrize(("command", "frame"), CUT)
def test_a_command_that_a_quote_cuts_does_not_run(name: str, command: str, frame: str):
    for tools in ((BASH, NOW), ()):
        result = read_at_every_cut(name, frame.format(command), *tools)
        assert [call.arguments for call in result.calls if call.name == "bash" and command not in call.arguments] == []
        assert "')]" not in (result.content or "")
        assert statuses(result)[-1] == ("invalid_json" if "say" in frame else "ok")


@pytest.mark.parametrize(
    "behind", [" as he said.", ", see ('y')]", "\n('y')]", " [f(a='y')]", " 'x'", " (see [1])", " and g('y')]"]
)
def test_a_list_is_not_cut_by_what_is_written_behind_it(behind: str):
    result = read_at_every_cut("pythonic", f"[f(a='x')]{behind}")
    assert (result.calls[0].arguments, statuses(result)[0]) == ('{"a": "x"}', "ok")


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("phi4_mini_json", "functools[{}]]"),
        ("xlam", "[{}]]"),
        ("xlam", "[TOOL_CALLS][{}] ]"),
        ("granite", "<tool_call>[{}]]]"),
    ],
)
def test_a_bracket_too_many_behind_an_array_is_no_content(name: str, frame: str):
    item = '{"name": "f", "arguments": {}}'
    for items in (item, f"{item}, {item}"):
        for behind in ("", "\nBye."):
            result = read_at_every_cut(name, frame.format(items) + behind)
            assert (statuses(result)[-1], result.content or "") == ("repaired", behind)


PIECES = [
    "[",
    "]",
    ", ",
    "\n",
    "```",
    "```json\n",
    "f()",
    "[g(a='x')]",
    "'x'",
    "'",
    ")",
    "5",
    "Hi",
    " ",
    F,
    "null",
    "{",
]


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join), st.sampled_from([*PYTHONIC, "llama3_json"]))
def test_any_list_of_calls_streams_as_it_parses(text: str, name: str):
    read_at_every_cut(name, text)
