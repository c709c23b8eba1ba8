"""How quoted text is found: the strategies, in order, and the matches that they reject."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hermes_tools.files.fuzzy import STRATEGIES, find_edits
from hermes_tools.files.matching import Edit, MatchError
from hermes_tools.files.textfile import TextFile, unified_diff


def replace_text(text, old, new, **options):
    strategy, edits = find_edits(text, old, new, **options)
    return strategy, TextFile.decode(text.encode()).apply(edits).decode()


@pytest.mark.parametrize(
    ("strategy", "text", "old", "new", "expected"),
    [
        ("exact", "a b c\n", "b", "x", "a x c\n"),
        ("trailing_whitespace", "a  \nb\t\nc\n", "a\nb\n", "x\n", "x\nc\n"),
        ("unicode_normalized", "say \u201chi\u201d \u2013 now\n", 'say "hi" - now', 'say "hi" - later', None),
        ("escape_normalized", "a\n\tb\n", "a\\n\\tb", "a\\n\\tc", "a\n\tc\n"),
        ("trimmed_boundary", "a\nb \nc\n", "\n\na\nb\n\n", "x\n\n", "x\nc\n"),
        ("indentation_flexible", "  if a:\n    b()\n", "if a:\n  b()\n", "if a:\n  c()\n", "  if a:\n    c()\n"),
        ("whitespace_normalized", "  x  =   1\n", "x = 1", "x = 2", "  x = 2\n"),
        ("unicode_and_whitespace", "  x  =  \u2018a\u2019\n", "x = 'a'", "x = 'b'", "  x = 'b'\n"),
        (
            "block_anchor",
            "def f():\n    one = 1\n    two = 2\n    three = 3\n    return one\n",
            "def f():\n    one = 1\n    two = 22\n    three = 3\n    return one\n",
            "def f():\n    return 0\n",
            "def f():\n    return 0\n",
        ),
    ],
)
def test_each_strategy_finds_its_own(strategy, text, old, new, expected):
    found, result = replace_text(text, old, new)
    assert found == strategy
    assert result == (expected or "say \u201chi\u201d \u2013 later\n")


def test_there_are_at_least_eight_and_exact_comes_first():
    assert len(STRATEGIES) >= 8
    assert next(iter(STRATEGIES)) == "exact"


def test_an_exact_match_wins_over_a_looser_one():
    assert replace_text("  a\na\n", "\na\n", "\nb\n") == ("exact", "  a\nb\n")


def test_an_ambiguous_match_is_refused_and_nothing_looser_is_tried():
    with pytest.raises(MatchError, match="2 times"):
        find_edits("a \nb\n\na  \nb\n", "a\nb", "x")
    with pytest.raises(MatchError, match="2 times"):
        find_edits("aaa", "aa", "b")


def test_replacing_all_takes_matches_apart():
    assert replace_text("aaaa a", "aa", "b", replace_all=True) == ("exact", "bb a")
    assert replace_text("x  = 1\nx   = 1\n", "x = 1", "y", replace_all=True) == ("whitespace_normalized", "y\ny\n")


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        (
            "\tif a:\n\t\tb\n",
            "    if a:\n        b",
            "    if a:\n        c\n            d",
            "\tif a:\n\t\tc\n\t\t\td\n",
        ),
        ("        a\n", "    a", "    a\n      b\n    c", "        a\n          b\n        c\n"),
        ("if a:\n    b\n", "    if a:\n        b", "    if a:\n        b\n        c", "if a:\n    b\n    c\n"),
    ],
)
def test_new_lines_take_the_files_indentation(file, old, new, expected):
    strategy, result = replace_text(file, old, new)
    assert result == expected
    assert strategy == "indentation_flexible"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        # The same quoted indentation matches two levels of the file.
        ("if a:\n    b\nc\n", "  if a:\n  b\n  c", "  x"),
        # A line further left than the margin.
        ("if a:\n    b\n", "    if a:\n        b", "x"),
        # Too different in the middle.
        ("begin\none\ntwo\nthree\nend\n", "begin\nalpha\nbeta\ngamma\nend\n", "x"),
        ("a\n\n\nb\n", "   \n \n", "x"),
    ],
)
def test_an_uncertain_match_is_refused(file, old, new):
    with pytest.raises(MatchError, match="Nothing was changed"):
        find_edits(file, old, new)


WORDS = st.text(st.sampled_from("ab \t\n\"'\u201c\u2014\\n"), max_size=30)


@given(before=WORDS, old=WORDS, new=WORDS, after=WORDS)
@settings(max_examples=200, deadline=None)
def test_what_was_quoted_exactly_and_once_is_replaced_exactly(before, old, new, after):
    text = before + old + after
    assume(old and not old[0].isspace() and sum(text.startswith(old, at) for at in range(len(text))) == 1)
    assert find_edits(text, old, new) == ("exact", [Edit(len(before), len(before) + len(old), new)])


@given(text=WORDS, old=WORDS, new=WORDS, every=st.booleans())
@settings(max_examples=200, deadline=None)
def test_edits_are_apart_and_touch_whole_lines_or_the_match(text, old, new, every):
    assume(old)
    try:
        strategy, edits = find_edits(text, old, new, replace_all=every)
    except MatchError:
        return
    assert strategy in STRATEGIES
    assert every or len(edits) == 1
    last = 0
    for edit in edits:
        assert last <= edit.start <= edit.end <= len(text)
        last = edit.end


BYTES = st.lists(st.sampled_from([b"a", b"\r\n", b"\n", b"\r", b"\xff", "é".encode(), b"\xef\xbb\xbf"])).map(b"".join)


@given(data=BYTES)
@settings(max_examples=100, deadline=None)
def test_a_file_without_edits_is_written_back_byte_for_byte(data):
    assert TextFile.decode(data).apply([]) == data


@given(data=BYTES, at=st.integers(0, 40))
@settings(max_examples=100, deadline=None)
def test_an_insertion_leaves_every_other_byte_alone(data, at):
    file = TextFile.decode(data)
    at = min(at, max(0, len(file.text) - 1))
    result = file.apply([Edit(at, at, "XY")])
    assert result.replace(b"XY", b"") == data


@given(old=WORDS, new=WORDS)
@settings(max_examples=100, deadline=None)
def test_a_diff_holds_every_changed_line(old, new):
    diff = unified_diff(old, new, "a/f", "b/f")
    removed = [line[1:] for line in diff.split("\n")[2:] if line.startswith("-")]
    added = [line[1:] for line in diff.split("\n")[2:] if line.startswith("+")]
    assert set(removed) <= set(old.split("\n"))
    assert set(added) <= set(new.split("\n"))


def test_a_diff_of_a_large_file_shows_the_right_lines():
    lines = [f"{n}\n" for n in range(50_000)]
    diff = unified_diff("".join(lines), "".join([*lines[:40_000], "new\n", *lines[40_000:]]), "a/f", "b/f")
    assert "@@ -39998,6 +39998,7 @@\n 39997\n 39998\n 39999\n+new\n 40000\n" in diff
