"""What a call of `patch` costs grows with the file and the call, whatever a model writes into either."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_sandbox import open_sandbox
from hermes_testing.watching import longest_stall
from hermes_tools.files.diff import unified_diff
from hermes_tools.files.fuzzy import MatchError, find_edits
from hermes_tools.files.line_search import SearchableLines
from hermes_tools.files.patch import PatchTool


def seconds_of_work(act, *arguments, **options):
    """Return the processor time of a call, the least of three: other programs take none of it."""
    least = float("inf")
    for _ in range(3):
        began = time.thread_time()
        with suppress(MatchError):
            act(*arguments, **options)
        least = min(least, time.thread_time() - began)
    return least


def c_functions(functions, lines, *, seed=1):
    draw = random.Random(seed)
    return [
        "{\n" + "".join(f"    x{draw.randrange(50)} = f(y{draw.randrange(50)});\n" for _ in range(lines)) + "}\n"
        for _ in range(functions)
    ]


# Each with how long the file and the quotation are for a number; the longer one is four times the shorter.
SEARCHES = {
    "a text that overlaps itself": lambda n: ("a" * 40 * n, "a" * 20 * n, "b"),
    "a line that repeats": lambda n: ("}\n" * 10 * n, "} \n" * 5 * n + "end", "x"),
    "a line that repeats, found everywhere": lambda n: ("} \n" * 10 * n, "}\n" * 5 * n, "x"),
    "one line of white space": lambda n: (" " * 200 * n, " ", "\n"),
    "white space before white space": lambda n: ((" " * 100 + "\n") * n, "  ", "\n"),
    "functions that are nearly alike": lambda n: (
        "".join(c_functions(n // 100, 60)),
        c_functions(1, 60, seed=2)[0],
        "x",
    ),
    "a first line that repeats": lambda n: ("{\n" * n + "}\n" * n, "{\na\nb\n}", "x"),
    "long lines": lambda n: (
        "ab" * 50 * n + "\nend\nx\n" + "ba" * 50 * n,
        "ba" * 50 * n + "\nend\ny\n" + "ab" * 50 * n,
        "x",
    ),
    "a hint from long lines": lambda n: ("ab" * n + "\n" + "ab" * n, "ba" * n + "c", "x"),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_of_four_times_the_text_takes_no_more_than_nine_times_as_long(name):
    small, large = (SEARCHES[name](n) for n in (1000, 4000))
    assert seconds_of_work(find_edits, *large) < 9 * seconds_of_work(find_edits, *small) + 0.02


def test_what_is_nearly_there_too_often_is_refused_and_says_what_to_type():
    file = "begin\n" * 300 + "end\n" * 300
    with pytest.raises(MatchError, match="too many places begin and end like it"):
        find_edits("".join([file] * 30), "begin\n" + "x\n" * 60 + "end", "x")


def test_a_long_function_that_is_nearly_there_is_found():
    functions = c_functions(9, 300)
    wanted = functions[4].replace("x1 ", "x2 ", 1)
    assert wanted not in functions
    strategy, edits = find_edits("".join(functions), wanted, "x\n")
    start = len("".join(functions[:4]))
    assert (strategy, edits[0].start, edits[0].end) == ("block_anchor", start, start + len(functions[4]) - 1)


@pytest.mark.parametrize("missing", [1, 30, 58])
def test_a_function_of_which_a_line_is_missing_and_another_differs_is_found(missing):
    functions = c_functions(3, 60)
    lines = functions[1].splitlines(keepends=True)
    lines[61 - missing] = lines[61 - missing].replace("f(", "g(")
    wanted = "".join(lines[:missing] + lines[missing + 1 :])
    assert find_edits("".join(functions), wanted, "x\n")[0] == "block_anchor"


DIFFS = {
    "changes everywhere": lambda n: ([f"line {i}\n" for i in range(10 * n)], lambda i: i % 2),
    "few kinds of lines": lambda n: ([f"{i % 7}\n" for i in range(10 * n)], lambda i: i % 5 == 0),
    "many kinds of lines": lambda n: ([f"{i % 211}\n" for i in range(10 * n)], lambda i: i % 3 == 0),
}


@pytest.mark.parametrize("name", DIFFS)
def test_a_diff_of_four_times_the_text_takes_no_more_than_nine_times_as_long(name):
    def texts(n):
        lines, is_changed = DIFFS[name](n)
        return "".join(lines), "".join("new\n" if is_changed(i) else line for i, line in enumerate(lines))

    small, large = (seconds_of_work(unified_diff, *texts(n), "a/f", "b/f") for n in (1000, 4000))
    assert large < 9 * small + 0.02


LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=12)


@given(before=LINES, after=LINES, repeats=st.sampled_from([1, 40]))
@settings(max_examples=200)
def test_a_diff_makes_one_text_of_the_other(before, after, repeats):
    old, new = before * repeats, after * repeats
    diff = unified_diff("".join(f"{line}\n" for line in old), "".join(f"{line}\n" for line in new), "a/f", "b/f")
    assert patched(old, diff) == new


def patched(old, diff):
    """Apply a unified diff, and hold what it says of the old text against it."""
    result, at = [], 0
    for line in diff.split("\n")[2:-1]:
        if line.startswith("@@"):
            first, count = map(int, line.split()[1].removeprefix("-").split(","))
            start = first - 1 if count else first
            result += old[at:start]
            at = start
        elif line[0] == "+":
            result.append(line[1:])
        else:
            assert old[at] == line[1:]
            result += [] if line[0] == "-" else [old[at]]
            at += 1
    return result + old[at:]


@given(lines=LINES, block=LINES)
@settings(max_examples=200)
def test_a_block_is_found_wherever_it_stands_by_itself(lines, block):
    found = list(SearchableLines(lines).find(block, str))
    everywhere = [
        at for at in range(len(lines) - len(block) + 1) if any(block) and lines[at : at + len(block)] == block
    ]
    assert set(found) <= set(everywhere)
    assert (not found, len(found) > 1) == (not everywhere, len(everywhere) > 1)


async def test_a_search_of_a_long_function_leaves_the_event_loop_alone():
    arguments = {"path": "f.c", "old_string": c_functions(1, 300, seed=2)[0], "new_string": "x"}
    async with open_sandbox("local") as sandbox:
        await sandbox.write_file("f.c", "".join(c_functions(9, 300)).encode())
        call = PatchTool().call(arguments, SimpleNamespace(sandbox=sandbox, state={}))
        result, stall = await longest_stall(call)
    assert "Nothing was changed" in result.content
    assert stall < 1
