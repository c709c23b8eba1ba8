"""Literals: all of Python's and JSON's forms, mistakes that are repaired, and mistakes that are not."""

from __future__ import annotations

import ast
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_parsers.engine.values.literals import MAX_DEPTH, read_literal, read_repaired
from hermes_parsers.engine.values.quoted_strings import LiteralError
from hermes_testing.suites.parser.growth import lines_run

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON_VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)
NOISE = st.text(alphabet="[]{}()'\"\\,: \n\tnrxuUN0123abefTrueFalsNoje_.-+", max_size=40)


def literal(text):
    value, end = read_literal(text, 0, len(text))
    assert end == len(text)
    return value


def repair(text):
    value, end, repairs = read_repaired(text, 0, len(text))
    assert end == len(text)
    return value, repairs


def refusal_of(text, read=read_literal):
    with pytest.raises(LiteralError) as caught:
        read(text, 0, len(text))
    return caught.value


def as_json(value):
    """Distinguish 1 from True and from 1.0, which `==` does not."""
    return json.dumps(value)


@given(JSON_VALUES)
def test_what_python_writes_is_read_as_python_reads_it(value):
    assert as_json(literal(repr(value))) == as_json(ast.literal_eval(repr(value)))


@given(JSON_VALUES, st.booleans(), st.sampled_from([None, 0, 3]))
def test_what_json_writes_is_read_as_a_literal_too(value, is_ascii, indent):
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    # Python has no `\/`, the only escape where JSON differs, and json.dumps does not write it.
    assert as_json(literal(text)) == as_json(json.loads(text))


@given(JSON_VALUES, st.booleans(), st.sampled_from([None, 0, 3]), st.sampled_from([(",", ":"), (" ,\r\n", "\t: ")]))
@example({"a": "\ud83d", "b": "\U0001f600"}, True, None, (",", ":"))
@example([10**4299, -0.0, 1e-320, 2**70], True, None, (",", ":"))
def test_valid_json_is_read_as_json_reads_it_and_nothing_is_repaired(value, is_ascii, indent, separators):
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent, separators=separators)
    read, repairs = repair(text)
    assert (as_json(read), repairs) == (as_json(json.loads(text)), ())


@given(NOISE | st.builds("{{{}}}".format, NOISE))
def test_whatever_json_accepts_is_read_the_same_without_repairs(text):
    try:
        value = json.loads(text, parse_constant=_refuse)
        expected = json.dumps(value, allow_nan=False)
    except ValueError:
        return
    text = text.strip()
    read, repairs = repair(text)
    assert (as_json(read), repairs) == (expected, ())


def _refuse(word):
    raise ValueError(word)


@given(NOISE, st.sampled_from([read_literal, read_repaired]))
def test_nothing_but_a_literal_error_comes_out_and_what_comes_out_is_json(text, read):
    try:
        value, end, *_ = read(text, 0, len(text))
    except LiteralError:
        return
    json.dumps(value, allow_nan=False)
    assert 0 < end <= len(text)


@given(st.text(), st.sampled_from(["'", '"', "'''", '"""']))
def test_a_string_in_any_quotes_keeps_raw_line_breaks(content, quote):
    text = content.replace("\\", "\\\\").replace(quote[0], "\\" + quote[0])
    assert literal(f"{quote}{text}{quote}") == content


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"'\x41\u00e9\U0001F600\101\0\N{BULLET}'", "Aé\U0001f600A\0•"),
        (r"'\a\b\f\n\r\t\v\\\'\"'", "\a\b\f\n\r\t\v\\'\""),
        (r"'\d+\.\/'", r"\d+\.\/"),
        ("'a\\\nb'", "ab"),
        (r'"\ud83d\ude00 \ud83d \ude00"', "\U0001f600 \ud83d \ude00"),
        (r"r'\d\'\n'", r"\d\'\n"),
        ("u'x'", "x"),
        ("'''it's \"here\"'''", 'it\'s "here"'),
        ('""', ""),
        ("''''''", ""),
    ],
)
def test_strings_have_the_escapes_of_python(text, value):
    assert literal(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-12", -12),
        ("+3", 3),
        ("1_000", 1000),
        ("0x1F", 31),
        ("-0xff", -255),
        ("0o17", 15),
        ("0b101", 5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("-1.25E-2", -0.0125),
        ("1_0.2_5", 10.25),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("0x" + "f" * 3500, 16**3500 - 1),
    ],
)
def test_numbers_are_those_of_python_and_of_json(text, value):
    assert as_json(literal(text)) == as_json(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(1, 'a', None)", [1, "a", None]),
        ("(1,)", [1]),
        ("('x')", "x"),
        ("()", []),
        ("{'b', 'a'}", ["b", "a"]),
        ("{1, 2, }", [1, 2]),
        ("{}", {}),
        ("[ [ ], [1 , ] , ]", [[], [1]]),
        (
            "{1: 'a', True: 2, None: 3, 1.5: 4, (1, 2): 5, 'x': 6}",
            {"1": "a", "true": 2, "null": 3, "1.5": 4, "[1, 2]": 5, "x": 6},
        ),
        ('{"a": 1, \'b\': {"a": true}, "a": null}', {"a": None, "b": {"a": True}}),
    ],
)
def test_containers_become_lists_and_objects_with_text_keys(text, value):
    assert as_json(literal(text)) == as_json(value)


def test_a_literal_is_read_from_the_middle_of_a_text_and_not_beyond_its_end():
    assert read_literal("f(a=[1, 2], b=3)", 4, 16) == ([1, 2], 10)
    assert read_literal("f(a=123)", 4, 6) == (12, 6)
    with pytest.raises(LiteralError) as caught:
        read_literal("f(a='xy')", 4, 6)
    assert caught.value.is_truncated


@pytest.mark.parametrize("read", [read_literal, read_repaired])
@pytest.mark.parametrize(
    "text",
    ["NaN", "nan", "inf", "-inf", "Infinity", "-Infinity", "1e999", "-1e999", "[NaN]", "9" * 5000, "0x" + "f" * 5000],
)
def test_what_is_no_finite_number_or_cannot_be_written_again_is_refused(read, text):
    assert isinstance(refusal_of(text, read), LiteralError)


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "Truex",
        "f(1)",
        "b'x'",
        "f'x'",
        "1j",
        "007",
        "1__0",
        "[1 2]",
        "[,]",
        "{1: }",
        "{'a' 1}",
        "{[1]: 2}",
        "{**x}",
        "(1 2)",
        "'\\xg0'",
        "'\\u12g4'",
        "'\\N{no such name}'",
        "'\\U00110000'",
        "- 1",
        "]",
        "[1, 2)",
        "{1: 2, 3}",
    ],
)
def test_what_is_no_literal_is_refused_and_not_called_cut(text):
    error = refusal_of(text + " " * 20)
    assert not error.is_truncated
    assert 0 <= error.at < len(text)


def _holds(value):
    return isinstance(value, str | list | dict)


@given(JSON_VALUES.filter(_holds), st.sampled_from([json.dumps, repr]), st.data())
def test_every_prefix_of_a_container_or_string_is_cut_rather_than_wrong(value, write, data):
    text = write(value)
    size = data.draw(st.integers(0, len(text) - 1))
    if write is repr and text[:2] in {"''", '""'}:
        return  # The two quotes of an empty string may be the beginning of a triple quote.
    assert refusal_of(text[:size]).is_truncated


@pytest.mark.parametrize(
    "text", ["", "Tr", "nul", "-", "1.e", "0x", "1_", "r", "'\\", "'\\x4", "'\\N{BULL", "'''a''", "{'a':", "(1,"]
)
def test_a_value_that_the_text_ends_in_is_cut(text):
    assert refusal_of(text).is_truncated


@pytest.mark.parametrize(
    ("text", "value", "repairs"),
    [
        ('{"a": "x\ny\tz"}', {"a": "x\ny\tz"}, ("raw control character",)),
        ('{"a": "\\"\n"}', {"a": '"\n'}, ("raw control character",)),
        ('{"a": [1, 2, ], }', {"a": [1, 2]}, ("trailing comma",)),
        ("{'a': True, 'b': None}", {"a": True, "b": None}, ("single quotes", "Python literal")),
        ("{'a': (1, 0x10), 2: .5}", {"a": [1, 16], "2": 0.5}, ("single quotes", "Python literal")),
        ('{"a": "it\\\'s \\x41"}', {"a": "it's A"}, ("Python escape",)),
        ('{"a": """x\n"y" z"""}', {"a": 'x\n"y" z'}, ("Python literal",)),
        (
            '{"a": None, "b": \'\', "c": [1,],}',
            {"a": None, "b": "", "c": [1]},
            ("Python literal", "single quotes", "trailing comma"),
        ),
    ],
)
def test_slips_that_leave_no_doubt_are_repaired_and_named(text, value, repairs):
    assert repair(text) == (value, repairs)


@pytest.mark.parametrize(
    "text",
    [
        '{"a: 1}',
        "{a: 1}",
        '{"a": b}',
        '{"a": 1 "b": 2}',
        '{"a": 1',
        '{"a" 1}',
        '{"a"}',
        '{"a": [1, 2}',
        '{"a": "x" "y"}',
        '{"a": "\\q"}',
        "{,}",
        "[1,,2]",
        '{"a":, "b": 1}',
        '{"a": "x}',
        '{"a": .}',
        "{'a': 1j}",
        '{"a": undefined}',
    ],
)
def test_what_would_have_to_be_guessed_is_not_repaired(text):
    refusal_of(text, read_repaired)


def test_what_follows_the_value_is_left_to_the_caller():
    assert read_repaired('{"a": {}}}}', 0, 11) == ({"a": {}}, 9, ())


@pytest.mark.parametrize("read", [read_literal, read_repaired])
def test_nesting_has_a_limit_which_is_no_cut(read):
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert read(deep, 0, len(deep))[1] == len(deep)
    assert not refusal_of("[" + deep + "]", read).is_truncated
    assert not refusal_of("[" * 100_000, read).is_truncated


@pytest.mark.parametrize("read", [read_literal, read_repaired])
@pytest.mark.parametrize(
    "piece",
    [
        "'a',",
        '"\\n",',
        "1.5,",
        "{'k': (1, 2)}, ",
        "''',",
        "\\",
        "   \n",
        "'\\N{",
        "0_",
        "1e",
        "[" * 50 + "]" * 50 + ",",
    ],
)
def test_work_grows_with_the_text_only(read, piece):
    texts = ["[" + piece * (size // len(piece)) for size in (4_000, 16_000)]
    small, large = (lines_run(lambda text: refusal_of(text, read), text) for text in texts)
    assert large <= 5 * small + 100
