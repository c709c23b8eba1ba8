"""Unescaped quotes inside strings, as the templates of LFM2.5 and Llama 4 write them."""

from __future__ import annotations

import random

import pytest
from parser_reading import function_tool, meaning, read, statuses

TEXTS = [
    "sed -n '1,5p' a.py",
    "it's",
    "'quoted'",
    "print('hi')",
    "f('a', 'b')",
    "say 'a' and 'b', then \"c\"",
    "don't, won't, can't",
    "grep -rn 'def f(x):' . | awk '{print $1}'",
    "python -c 'import sys; print(sys.argv[1:])' a 'b c'",
    "a\n'b'\n\tc",
    "x = ['it''s', 'b']",
    "echo '",
    "' begins and ends '",
    "cd 'my dir' && ls [a-z]*",
    "{'a': 'b'}",
]
BASH = function_tool("bash", command={"type": "string"}, timeout={"type": "integer"})
WRITE = function_tool("write", path={"type": "string"}, text={"type": "string"})
FRAMES = {
    "lfm2": ("'", "<|tool_call_start|>[{}]<|tool_call_end|>"),
    "pythonic": ("'", "[{}]"),
    "llama4_pythonic": ('"', "<|python_start|>[{}]<|python_end|>"),
}


def with_quotes(text, quote):
    """Replace a text's quotes by those of the format."""
    return text if quote == "'" else text.translate(str.maketrans("'\"", "\"'"))


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("tools", [(), (BASH, WRITE)])
def test_quotes_inside_a_text_are_text(name, tools):
    quote, frame = FRAMES[name]
    for text in TEXTS:
        inner = with_quotes(text, quote)
        written = f"{quote}{inner}{quote}"
        for arguments, value in (
            (f"command={written}", {"command": inner}),
            (f"command={written}, timeout=5", {"command": inner, "timeout": 5}),
            (f"timeout=None, command={written}", {"timeout": None, "command": inner}),
        ):
            result = read(name, frame.format(f"bash({arguments})"), *tools)
            assert (meaning(result), statuses(result)) == ([("bash", value)], ["ok"]), arguments


@pytest.mark.parametrize("name", FRAMES)
def test_several_calls_with_quotes_inside_are_all_read(name):
    quote, frame = FRAMES[name]
    for first in TEXTS:
        for second in TEXTS[:6]:
            one, two = with_quotes(first, quote), with_quotes(second, quote)
            calls = f"bash(command={quote}{one}{quote}), write(path={quote}{two}{quote}, text={quote}{one}{quote})"
            assert meaning(read(name, frame.format(calls), BASH, WRITE)) == [
                ("bash", {"command": one}),
                ("write", {"path": two, "text": one}),
            ], calls


def test_a_tool_s_parameters_tell_what_is_an_argument():
    calls = "bash(command='print('a', end='') or f(x='1', y=2)', timeout=3)"
    result = read("lfm2", FRAMES["lfm2"][1].format(calls), BASH)
    assert meaning(result) == [("bash", {"command": "print('a', end='') or f(x='1', y=2)", "timeout": 3})]


def test_what_was_escaped_is_read_as_before():
    for written, value in (("'it\\'s'", "it's"), ("'a\\nb'", "a\nb"), ('"it\'s"', "it's"), ("'''x'y'''", "x'y")):
        result = read("lfm2", FRAMES["lfm2"][1].format(f"bash(command={written})"))
        assert (meaning(result), result.attempts[0].reason) == ([("bash", {"command": value})], "")


def test_quotes_at_random_places_are_text_where_the_tools_are_known():
    chance = random.Random(12)
    pieces = ["'", "'", '"', "a", " b ", "\n", "\\", "(", ")", "[0]", "x=1", ": ", "#", "é"]
    for _ in range(400):
        text = "".join(chance.choice(pieces) for _ in range(chance.randint(1, 12))) + "."
        # An escape is read as in Python, although the template does not write any; a backslash before a quote is
        # ambiguous.
        text = text.replace("\\", "/") if "'" not in text or "\\'" in text else text
        call = f"write(path='{text}', text='it's')"
        assert meaning(read("lfm2", FRAMES["lfm2"][1].format(call), WRITE)) == [
            ("write", {"path": text, "text": "it's"})
        ], call


@pytest.mark.parametrize(
    "inner",
    ["x')]", "x')]'", "x')]\n", "echo ')]'", "')]", "a)]')]b", "x')] and then", "f('a')]", "x', n')]", "[f('x')]"],
)
@pytest.mark.parametrize("tools", [(), (BASH, WRITE)])
def test_a_text_may_hold_what_looks_like_the_end_of_its_list(inner, tools):
    frame = FRAMES["lfm2"][1]
    for body, calls in (
        (f"bash(command='{inner}')", [("bash", {"command": inner})]),
        (f"bash(command='{inner}', timeout=5)", [("bash", {"command": inner, "timeout": 5})]),
        (f"write(path='a'), bash(command='{inner}')", [("write", {"path": "a"}), ("bash", {"command": inner})]),
    ):
        text = frame.format(body)
        for written in (text, f"{text}{text}", f"{text}\nSo it is."):
            result = read("lfm2", written, *tools)
            assert meaning(result) == calls * written.count("[" + body)
            assert result.content == ("\nSo it is." if "So" in written else None)


@pytest.mark.parametrize(
    "behind",
    [" junk", ", [write(path='a')]", "\n[bash(command='y')]", "\nwrite(path='a'), bash(command='y')", " it's", "]"],
)
def test_what_stands_behind_a_list_is_not_swallowed_by_its_last_text(behind):
    opener, closer = FRAMES["lfm2"][1].split("[{}]")
    result = read("lfm2", f"{opener}[bash(command='x')]{behind}{closer}", BASH, WRITE)
    assert meaning(result)[:1] == [("bash", {"command": "x"})]
