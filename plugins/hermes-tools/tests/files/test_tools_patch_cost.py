"""`patch` delays no other rollout: nothing is computed on the event loop, and a search of any file ends."""

from __future__ import annotations

import contextlib
import random
import threading
from types import SimpleNamespace

import pytest

from hermes_sandbox import open_sandbox
from hermes_tools.files import file_changes as module
from hermes_tools.files.fuzzy import find_edits
from hermes_tools.files.hunks import place_hunks
from hermes_tools.files.matching import Effort, MatchError
from hermes_tools.files.patch import PatchTool
from hermes_tools.files.textfile import TextFile, unified_diff
from hermes_tools.files.v4a import parse_patch

CALLS = {
    "a short text": {"path": "f", "old_string": "b", "new_string": "x"},
    "text that is not there": {"path": "f", "old_string": "begin\nc\nend", "new_string": "x"},
    "a patch text": {"mode": "patch", "patch": "*** Begin Patch\n*** Update File: f\n a\n-b\n+x\n*** End Patch"},
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_nothing_is_searched_or_compared_on_the_event_loop(monkeypatch, call):
    threads = set()

    def noting(function):
        def call_and_note(*arguments, **options):
            threads.add(threading.get_ident())
            return function(*arguments, **options)

        return call_and_note

    for name in ("parse_patch", "find_edits", "place_hunks", "unified_diff"):
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    async with open_sandbox("local") as sandbox:
        await sandbox.write_file("f", b"a\nb\n")
        await PatchTool().call(call, SimpleNamespace(sandbox=sandbox, state={}))
    assert threads
    assert threading.get_ident() not in threads


FOUND, DOUBTFUL, ABSENT, GIVEN_UP = "found", "more than 10 times", "was not found", "was given up"
NUMBERS = random.Random(7)
ODD = "".join(NUMBERS.choice("ab") for _ in range(30_000))

# text, old_string, new_string, replace_all, expected outcome. Each would take minutes or days if the time grew faster
# than the length of the text.
FILES = {
    "occurrences that overlap": ("a" * 400_000, "a" * 200_000, "b", False, DOUBTFUL),
    "all occurrences that overlap": ("a" * 400_000, "a" * 200_000, "b", True, GIVEN_UP),
    "lines that overlap": ("x \n" * 400_000, "x\n" * 200_000, "y\n", False, DOUBTFUL),
    "all lines that overlap": ("x \n" * 400_000, "x\n" * 200_000, "y\n", True, GIVEN_UP),
    "lines nearly there": ("x\n" * 400_000, "x\n" * 200_000 + "y", "z", False, ABSENT),
    "occurrences in one long line": (" a" * 400_000 + "\n", " a", "\n", False, GIVEN_UP),
    "anchors everywhere": ("}\n" * 400_000, "}\n" + "q\n" * 380 + "}", "x", False, GIVEN_UP),
    "blocks alike everywhere": (
        ("{\n" + "abba" * 2000 + "\n}\n") * 2000,
        "{\n" + "abab" * 2000 + "\n}",
        "x",
        False,
        GIVEN_UP,
    ),
    "blocks without one line alike": (f"{{\n{ODD}\n}}\n", f"{{\n{ODD[::-1]}\n}}", "x", False, ABSENT),
}


@pytest.mark.parametrize(("text", "old", "new", "replace_all", "outcome"), FILES.values(), ids=FILES)
def test_a_search_ends_whatever_the_file_is_made_of(text, old, new, replace_all, outcome):
    with pytest.raises(MatchError, match=f"{outcome}.*Nothing was changed"):
        find_edits(text, old, new, replace_all=replace_all)


def test_replacing_all_makes_no_file_without_end():
    with pytest.raises(MatchError, match="more than 16777216 characters"):
        find_edits("a\n" * 100_000, "a", "b" * 100_000, replace_all=True)
    assert len(find_edits("a\n" * 100_000, "a", "b" * 100, replace_all=True)[1]) == 100_000


PATCHES = {
    "hunks in lines that are equal": (
        "x\n" * 300_000,
        "".join(f"@@ -{n},1 +{n},1 @@\n-x\n+y\n" for n in range(1, 9000)),
        GIVEN_UP,
    ),
    "hunks below anchors": (
        "x\n" * 300_000 + "".join(f"{n}\n" for n in range(3000)),
        "".join(f"@@ {n}\n-{n}\n+y\n" for n in range(3000)),
        FOUND,
    ),
    "hunks below beginnings": (
        "x\n" * 300_000 + "".join(f"{n} y\n" for n in range(1000)),
        "".join(f"@@ {n}\n-{n} y\n+y\n" for n in range(1000)),
        FOUND,
    ),
    "hunks that are nearly there": ("x\n" * 300_000, " x\n" * 150_000 + "-y\n", "was not found"),
}


@pytest.mark.parametrize(("text", "body", "outcome"), PATCHES.values(), ids=PATCHES)
def test_hunks_are_placed_or_refused_whatever_the_file_is_made_of(text, body, outcome):
    (change,) = parse_patch(f"*** Begin Patch\n*** Update File: f\n{body}*** End Patch")
    with contextlib.nullcontext() if outcome == FOUND else pytest.raises(MatchError, match=outcome):
        assert len(place_hunks(text, change.hunks, change.path)[0]) == len(change.hunks)


@pytest.mark.parametrize("count", [30_000, 300_000])
def test_a_diff_ends_whatever_the_texts_are_made_of(count):
    """Some hundred different lines, none so frequent that a comparison would ignore it."""
    before, after = ("".join(f"{NUMBERS.randrange(150)}\n" for _ in range(count)) for _ in range(2))
    diff = unified_diff(before, after, "a/f", "b/f")
    assert diff.startswith("--- a/f\n+++ b/f\n@@ -1,")
    assert "more characters]" in diff


def test_the_calls_limit_counts_for_all_its_searches():
    effort = Effort(2_000_000)
    for _ in range(3):
        assert find_edits("a\n" * 100_000 + "b\n", "b", "c", effort=effort)[0] == "exact"
    effort.spend(1_300_000)
    with pytest.raises(MatchError, match="was given up"):
        find_edits("a\n" * 100_000 + "b\n", "b", "c", effort=effort)


def test_a_diff_that_cannot_be_afforded_shows_all_between_the_ends():
    before, after = "0\n" * 5 + "1\n2\n3\n" + "9\n" * 5, "0\n" * 5 + "4\n2\n5\n" + "9\n" * 5
    assert " 2\n" in unified_diff(before, after, "a/f", "b/f")
    assert "-1\n-2\n-3\n+4\n+2\n+5\n" in unified_diff(before, after, "a/f", "b/f", effort=Effort(0))


def test_a_diff_of_a_large_file_that_is_changed_at_both_ends_shows_the_two_lines():
    lines = [f"line {number}\n" for number in range(40_000)]
    changed = [*lines]
    changed[10], changed[39_990] = "first\n", "second\n"
    diff = unified_diff("".join(lines), "".join(changed), "a/f", "b/f")
    assert diff.count("\n-") == diff.count("\n+") - 1 == 2
    assert "@@ -8,7 +8,7 @@" in diff
    assert "@@ -39988,7 +39988,7 @@" in diff


REINDENTED = {
    "very many indentations": (
        "".join("".join(NUMBERS.choice(" \t") for _ in range(20)) + "a\n" for _ in range(6000)),
        lambda text: "".join(f" {line}\n" for line in text.splitlines()),
        lambda text: "".join("".join(NUMBERS.choice(" \t") for _ in range(21)) + "b\n" for _ in range(6000)),
    ),
    "very many new lines for each block that is like": (
        "A\nabcdefghij\n    B\n" * 5000,
        lambda _: "A\nabcdefghiX\n  B\n",
        lambda _: "A\n" * 50_000 + "\tz\n",
    ),
}


@pytest.mark.parametrize(("text", "old", "new"), REINDENTED.values(), ids=REINDENTED)
def test_moving_new_lines_ends_however_many_there_are(text, old, new):
    with pytest.raises(MatchError, match="was given up"):
        find_edits(text, old(text), new(text))


def test_hunks_that_change_the_same_lines_are_refused():
    """An insertion below a line that another hunk removes used to write the removed lines again."""
    patch = "*** Begin Patch\n*** Update File: f\n-a\n-b\n-c\n+x\n@@ b\n+new\n*** End Patch"
    (change,) = parse_patch(patch)
    with pytest.raises(MatchError, match="two hunks change line"):
        place_hunks("a\nb\nc\nd\n", change.hunks, "f")
    (beside,) = parse_patch(patch.replace("@@ b", "@@ d"))
    edits, _ = place_hunks("a\nb\nc\nd\n", beside.hunks, "f")
    assert TextFile.decode(b"a\nb\nc\nd\n").apply(edits) == b"x\nd\nnew\n"


async def test_files_that_are_too_large_together_are_refused():
    names = [f"f{number}" for number in range(5)]
    body = "".join(f"*** Update File: {name}\n-b\n+c\n" for name in names)
    async with open_sandbox("local") as sandbox:
        await sandbox.exec(
            f"for f in {' '.join(names)}; do yes $(printf %0500d 1) | head -n 30000 >$f; echo b >>$f; done"
        )
        answer = await PatchTool().call(
            {"mode": "patch", "patch": f"*** Begin Patch\n{body}*** End Patch"},
            SimpleNamespace(sandbox=sandbox, state={}),
        )
    assert "for all files of a patch" in answer.content
    assert "Nothing was changed" in answer.content
