"""Calls written as Python: what is a call, what is prose, and what is kept of broken calls."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parser_reading import function_tool, meaning, read, statuses

from hermes_parsers import get_parser
from hermes_parsers.writing import dumps
from hermes_testing.suites.parser.growth import DOUBLING, FOLD, time_growth

BARE = ["pythonic", "llama4_pythonic"]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)
KEYWORDS = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
WEATHER = function_tool("get_weather", city={"type": "string"})


@pytest.mark.parametrize("name", BARE)
@pytest.mark.parametrize(
    "prose",
    [
        "See [foo](bar), note [1] and [/INST].",
        "Use [x for x in y], or [f(x)] and data[f(x)] in a sentence.",
        "A comprehension: [Point(x=i) for i in range(3)].",
        "Even with literals: [Point(x=1) for i in range(3)] and so on.",
        "The list [f(a=b)] in a sentence is code.",
        "[f(a==1)] compares, [f(*args)] and [f(**kwargs)] unpack.",
        "[f(key=lambda x: x) for f in g]",
        "[get_weather",
        "[get_weather(",
        "[get_weather(city",
        "[]",
        "[[]]",
        "a[0] = [1, 2, (3)]",
    ],
)
def test_other_code_and_brackets_in_prose_are_text(name, prose):
    result = read(name, prose)
    assert (result.content, result.attempts) == (prose, ())


@pytest.mark.parametrize("name", BARE)
def test_a_list_may_stand_anywhere_in_a_text(name):
    result = read(name, "Let me look [1]: [f(a='x', n=1), g()] and then?")
    assert meaning(result) == [("f", {"a": "x", "n": 1}), ("g", {})]
    assert result.content == "Let me look [1]:  and then?"


def test_literals_of_python_and_of_json_mean_the_same():
    text = (
        "[a.b.c(x=-1.5e3, y=(1, 2), z={1, 2}, w={'k': [True, null, None], 2: false}, v=\"it's\", from='x', class=0x1F)]"
    )
    expected = {"x": -1500.0, "y": [1, 2], "z": [1, 2], "w": {"k": [True, None, None], "2": False}, "v": "it's"}
    assert meaning(read("pythonic", text)) == [("a.b.c", {**expected, "from": "x", "class": 31})]


@given(st.dictionaries(KEYWORDS, VALUES, max_size=5), st.sampled_from([repr, json.dumps, dumps]))
def test_arguments_are_the_json_of_the_values_however_python_wrote_them(values, write):
    text = f"[f({', '.join(f'{key}={write(value)}' for key, value in values.items())})]"
    [call] = get_parser("pythonic").parse(text).calls
    # Two lone surrogates in a row are one character in JSON, and cannot be written in another way.
    assert call.arguments == dumps(json.loads(json.dumps(values)))


@given(st.dictionaries(KEYWORDS, VALUES, max_size=4))
@pytest.mark.parametrize("name", ["pythonic", "llama4_pythonic", "lfm2", "olmo3"])
def test_what_is_rendered_reads_back(name, values):
    values = json.loads(json.dumps(values))
    parser = get_parser(name)
    text = parser.render({"tool_calls": [{"function": {"name": "f", "arguments": values}}] * 2})
    assert [json.loads(call.arguments) for call in parser.parse(text).calls] == [values, values]


@pytest.mark.parametrize("name", BARE)
def test_an_unquoted_value_spoils_its_call_only(name):
    result = read(name, "[get_weather(city=Paris), f(a=1), get_weather(city=San Francisco, 'x'), g(b=(2))]")
    assert meaning(result) == [("f", {"a": 1}), ("g", {"b": 2})]
    assert statuses(result) == ["invalid_json", "ok", "invalid_json", "ok"]
    assert result.attempts[0].name == "get_weather"
    assert result.content is None


@pytest.mark.parametrize(
    "bad",
    [
        "f(a='x, b=2)",
        "f(a='x, b='y')",
        "f(a=[1, 2)",
        "f(a={'k': 1)",
        "f(a=1, 2)",
        "f(a=x(y=1), b=2)",
        "f(a=1 b=2)",
        "f(a='x'b=2)",
        "f(a=1b=2)",
    ],
)
@pytest.mark.parametrize(
    "frame",
    [
        "[{}, g(c='y')]",
        "<|tool_call_start|>[{}, g(c='y')]<|tool_call_end|>",
        "<function_calls>{}, g(c='y')</function_calls>",
    ],
)
def test_a_broken_call_does_not_cost_the_next(bad, frame):
    name = {"[": "pythonic", "<|": "lfm2", "<f": "olmo3"}[frame[: 1 + (frame[0] == "<")]]
    result = read(name, frame.format(bad))
    assert (meaning(result), statuses(result)) == ([("g", {"c": "y"})], ["invalid_json", "ok"])


def test_code_in_a_broken_string_makes_no_call_of_a_tool_that_does_not_exist():
    text = "[get_weather(city='it's, bar(y=2) x'), get_weather(city='z')]"
    assert meaning(read("pythonic", text, WEATHER)) == [
        ("get_weather", {"city": "it's, bar(y=2) x"}),
        ("get_weather", {"city": "z"}),
    ]


@pytest.mark.parametrize("name", BARE)
@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("[f(a='x'", "truncated"),
        ("[f(a='x', b=[1, ", "truncated"),
        ("[f(a='x', b=Tr", "truncated"),
        ("[f(a='x')", "unclosed"),
        ("[f(a='x'),", "unclosed"),
        ("[f(a='x')\n\nDone.", "unclosed"),
        ("[f(a='x')<|eot|>", "unclosed"),
        ("[f(a='x'))]", "invalid_json"),
        ("[f(a={'b': 'x'}})]", "invalid_json"),
        ("[f(a='x'; b=1)]", "invalid_json"),
        ("[f(a=NaN)]", "invalid_json"),
    ],
)
def test_what_is_missing_or_too_much_is_told(name, text, status):
    result = read(name, text)
    assert statuses(result) == [status]
    assert len(result.calls) == (status == "unclosed")
    assert result.attempts[0].reason


def test_a_name_cut_by_the_end_of_the_text_is_an_attempt():
    result = read("pythonic", "[f(a=1), get_wea")
    assert (meaning(result), statuses(result)) == ([("f", {"a": 1})], ["ok", "truncated"])


@pytest.mark.parametrize(
    ("text", "value"), [("[f(a='x'))]", "x"), ("[f(a={'b': 1}})]", {"b": 1}), ("[f(a=[1]])]", [1])]
)
def test_lenient_mode_overlooks_extra_brackets(text, value):
    result = read("pythonic", text, mode="lenient")
    assert (meaning(result), statuses(result)) == ([("f", {"a": value})], ["repaired"])
    assert "brackets" in result.attempts[0].reason


def test_a_known_tool_is_an_attempt_where_an_unknown_name_is_prose():
    sentence = "I would call [get_weather(city=Paris)] for that."
    assert statuses(read("pythonic", sentence, WEATHER)) == ["invalid_json"]
    assert statuses(read("pythonic", sentence, function_tool("other"))) == []


def test_llama_4_may_put_marks_around_the_list():
    text = "<|python_start|>[f(a='x')]<|python_end|>"
    result = read("llama4_pythonic", text)
    assert (meaning(result), result.content, result.attempts[0].raw) == ([("f", {"a": "x"})], None, text)
    code = read("llama4_pythonic", "<|python_start|>print(1)<|python_end|>")
    assert (code.calls, code.content, statuses(code)) == ((), None, ["invalid_json"])


@pytest.mark.parametrize(
    "text",
    [
        '<|tool_call_start|>[{"name": "f", "arguments": {"a": "x"}}]<|tool_call_end|>',
        '<|tool_call_start|>f(a="x")<|tool_call_end|>',
        "<|tool_call_start|>\n[\n  f(a='x'),\n]\n<|tool_call_end|>",
    ],
)
def test_lfm2_lists_may_be_json_and_need_no_brackets(text):
    result = read("lfm2", f"{text}Done.")
    assert (meaning(result), statuses(result), result.content) == ([("f", {"a": "x"})], ["ok"], "Done.")


def test_olmo_writes_a_call_a_line():
    text = "<function_calls>\nf(a='x')\ng(b=null)\n</function_calls>"
    assert meaning(read("olmo3", text)) == [("f", {"a": "x"}), ("g", {"b": None})]


ARGUMENTS = {"q": "x", "N": 1, "ok": True, "none": None, "l": [1, "a"], "o": {"k": "v"}}
CALLS = [
    {"function": {"name": "f", "arguments": ARGUMENTS}},
    {"function": {"name": "g", "arguments": "{}"}},
]
IN_PYTHON = "f(q='x', N=1, ok=True, none=None, l=[1, 'a'], o={'k': 'v'})"
IN_JSON = 'f(q="x", N=1, ok=true, none=null, l=[1, "a"], o={"k": "v"})'
IN_GEMMA = 'call:f{l:[1,"a"],N:1,none:None,o:{k:"v"},ok:true,q:"x"}'
"""Jinja's dictsort sorts the keys, whatever their case."""
TEMPLATES = {
    "pythonic": f"Hi.[{IN_PYTHON}, g()]",
    "llama4_pythonic": f"Hi.[{IN_PYTHON}, g()]".replace("q='x'", 'q="x"'),
    "lfm2": f"Hi.<|tool_call_start|>[{IN_PYTHON}, g()]<|tool_call_end|>".replace("{'k': 'v'}", '{"k": "v"}'),
    "olmo3": f"Hi.<function_calls>{IN_JSON}\ng()</function_calls>",
    "gemma4": f"<|tool_call>{IN_GEMMA}<tool_call|><|tool_call>call:g{{}}<tool_call|>Hi.".replace('"', '<|"|>').replace(
        "None", "null"
    ),
    "functiongemma": (
        f"Hi.<start_function_call>{IN_GEMMA}<end_function_call><start_function_call>call:g{{}}<end_function_call>"
    ).replace('"', "<escape>"),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_message_is_written_as_the_template_writes_it(name):
    parser, expected = get_parser(name), TEMPLATES[name]
    assert parser.render({"role": "assistant", "content": "Hi.", "tool_calls": CALLS}) == expected
    assert [json.loads(call.arguments) for call in parser.parse(expected).calls] == [ARGUMENTS, {}]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("pythonic", {"no keyword": 1}),
        ("olmo3", {"a=b": 1}),
        ("gemma4", {"text": 'a <|"|> b'}),
        ("functiongemma", {"text": "<escape>"}),
    ],
)
def test_what_could_not_be_read_back_is_not_written(name, arguments):
    message = {"tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}
    with pytest.raises(ValueError, match="cannot be written"):
        get_parser(name).render(message)


@pytest.mark.parametrize("name", BARE)
@pytest.mark.parametrize("count", [9, 10, 1_000])
def test_many_arguments_end(name, count):
    """sglang#31912, sglang#18347, trl#5415: time that doubles with each argument never ends for a thousand."""
    call = f"f({', '.join(f'a{number}={number}' for number in range(count))})"
    text = f"[{call}, {call}, {call}]"
    parser = get_parser(name)
    assert [len(json.loads(found.arguments)) for found in parser.parse(text).calls] == [count] * 3
    assert len(parser.parse(text[:-2]).calls) == 2


@pytest.mark.parametrize(
    ("name", "opening", "call"),
    [
        ("lfm2", "<|tool_call_start|>[", "f(a=b), "),
        ("olmo3", "<function_calls>", "f(a=b)\n"),
        ("pythonic", "[", "f(a=b), "),
    ],
)
def test_a_list_of_broken_calls_takes_time_by_its_length(name, opening, call):
    parse, count = get_parser(name).parse, 2_000
    assert len(parse(opening + call * count).attempts) >= count
    assert time_growth(parse, opening + call * count, opening + call * count * FOLD) <= DOUBLING**3


@pytest.mark.parametrize("name", BARE)
@pytest.mark.parametrize("tools", [(), (WEATHER,), (function_tool("f"),)], ids=["none", "others", "known"])
@pytest.mark.parametrize(
    "code",
    [
        "```python\npoints = [Point(x=1, y=2), Point(x=3, y=4)]\n```",
        "indexes = [Index(fields=['a'])]",
        "validators=[MinLengthValidator(limit_value=3)]",
        "arr[len()]",
        "for x in [get()]: pass",
        "[f(a='x').g()]",
        "[f(a='x') if y else g(b=1)]",
        "I use [f(x=1) for x in y]",
        "x[f(a='k')]",
        "[f(a='x')][0]",
        "[f(a='x')] * 3",
        "[f(x=1)](http://u)",
        "[f(a='x'), g(b=2)][0]",
        "[f(a='x'), g(b=2), f()].sort()",
        "[f(a='x'), get_weather(city='y')] + more",
        "[f(a='x'),\n g(b=2)](http://u)",
    ],
)
def test_code_around_a_list_makes_it_code(name, code, tools):
    result = read(name, code, *tools)
    assert (result.content, result.attempts) == (code, ())


@pytest.mark.parametrize("name", BARE)
def test_a_list_without_a_known_tool_is_one_only_if_it_is_the_whole_message(name):
    assert statuses(read(name, "So [f(a=1), g(b=2)] it is.", WEATHER)) == []
    assert statuses(read(name, "[f(a=1), g(b=2)]\nDone.", WEATHER)) == []
    assert statuses(read(name, "<think>hm</think>\n\n[f(a=1), g(b=2)]\n", WEATHER)) == ["unknown_tool"] * 2
    mixed = read(name, "So [f(a=1), get_weather(city='x')] it is.", WEATHER)
    assert statuses(mixed) == ["unknown_tool", "ok"]


@pytest.mark.parametrize("text", ["[f(a='x', a=1)]", "[f(a='x', b=2, a=(1))]", "[f(a='x', a=1)"])
def test_of_a_keyword_given_twice_the_last_value_counts_and_that_is_told(text):
    result = read("pythonic", text)
    assert meaning(result)[0][1]["a"] == 1
    assert "the last value counts: a" in result.attempts[0].reason


@pytest.mark.parametrize("name", BARE)
def test_a_list_behind_a_list_is_no_index(name):
    result = read(name, "[f(a='x'), g(b=2)][f(a='y'), g()]")
    assert [call.name for call in result.calls] == ["f", "g", "f", "g"]


FRAMES = {
    "pythonic": "[{}, g(b='x')]",
    "llama4_pythonic": "<|python_start|>[{}, g(b='x')]<|python_end|>",
    "lfm2": "<|tool_call_start|>[{}, g(b='x')]<|tool_call_end|>",
    "olmo3": "<function_calls>{}\ng(b='x')</function_calls>",
}
ZEROS = [
    ("month=07", {"month": 7}),
    ("month = -007 , year=2026", {"month": -7, "year": 2026}),
    ("days=[07, 08, 10]", {"days": [7, 8, 10]}),
    ("o={'k': (01, '02')}", {"o": {"k": [1, "02"]}}),
]


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize(("arguments", "value"), ZEROS)
def test_lenient_mode_reads_a_number_with_leading_zeros_which_python_refuses(name, arguments, value):
    text = FRAMES[name].format(f"f({arguments})")
    result = read(name, text, mode="lenient")
    assert (meaning(result), statuses(result)) == ([("f", value), ("g", {"b": "x"})], ["repaired", "ok"])
    assert "leading zeros" in result.attempts[0].reason


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize(("arguments", "_value"), ZEROS)
def test_strict_mode_refuses_a_number_with_leading_zeros_and_says_so(name, arguments, _value):
    result = read(name, FRAMES[name].format(f"f({arguments})"))
    assert (meaning(result), statuses(result)) == ([("g", {"b": "x"})], ["invalid_json", "ok"])
    assert "is not a valid number" in result.attempts[0].reason


@pytest.mark.parametrize("word", ["07x", "0_7", "07:30", "07-12", "07."])
def test_what_only_begins_with_leading_zeros_is_no_number_in_either_mode(word):
    text = f"<|tool_call_start|>[f(a={word}0a), g(b='x')]<|tool_call_end|>"
    assert statuses(read("lfm2", text, mode="lenient")) == ["invalid_json", "ok"]


def test_lenient_mode_names_each_repair_of_a_call():
    result = read("pythonic", "[f(month=07, l=[08]])]", mode="lenient")
    assert (meaning(result), statuses(result)) == ([("f", {"month": 7, "l": [8]})], ["repaired"])
    assert result.attempts[0].reason == "repaired: leading zeros, extra closing brackets"


def test_a_mark_in_a_string_before_a_broken_argument_is_no_end_of_the_call():
    text = "<function_calls>f(a='<function_calls>x', b=NaN)</function_calls>"
    result = read("olmo3", text)
    assert [(attempt.name, attempt.raw) for attempt in result.attempts] == [("f", text)]


def test_leading_zeros_that_more_text_makes_a_fraction_are_not_repaired():
    parser = get_parser("lfm2")
    stream = parser.stream(mode="lenient")
    for piece in ["<|tool_call_start|>[f(a=07", ".5", ")]<|tool_call_end|>"]:
        stream.feed(piece)
    stream.finish()
    assert (meaning(stream.result()), statuses(stream.result())) == ([("f", {"a": 7.5})], ["ok"])
