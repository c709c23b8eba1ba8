"""Patch texts: a patch made from two versions of a file turns the first into the second."""

from __future__ import annotations

import contextlib
import difflib

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hermes_tools.files.hunks import place_hunks
from hermes_tools.files.matching import MatchError
from hermes_tools.files.textfile import TextFile
from hermes_tools.files.v4a import PatchFormatError, parse_patch

LINES = st.lists(st.sampled_from(["", "a", "  a", "b", "\tc", "d  e", "-x", "+y", "@@", "*** End Patch"]), max_size=12)


def hunks_between(old, new, context):
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(context):
        yield f"@@ -{group[0][1] + 1},1 +1,1 @@"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (f" {line}" for line in old[i1:i2])
            else:
                yield from (f"-{line}" for line in old[i1:i2])
                yield from (f"+{line}" for line in new[j1:j2])


def apply_patch(text, patch):
    (change,) = parse_patch(patch)
    file = TextFile.decode(text.encode())
    edits, _ = place_hunks(file.text, change.hunks, change.path)
    return file.apply(edits).decode()


@given(old=LINES, new=LINES, context=st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_a_patch_turns_one_version_into_the_other_or_is_refused(old, new, context):
    assume(old and old != new)
    body = "\n".join(hunks_between(old, new, context))
    patch = f"*** Begin Patch\n*** Update File: f\n{body}\n*** End Patch"
    ended = "".join(f"{line}\n" for line in old)
    try:
        assert apply_patch(ended, patch) == "".join(f"{line}\n" for line in new)
    except (MatchError, PatchFormatError):
        # Without context, or with hunks of blank lines alone, the place is ambiguous and nothing must be changed.
        assert context == 0 or not any(line.strip() for line in old) or len(set(old)) < len(old) or "" in old


def test_a_file_with_one_empty_line_is_not_an_empty_file():
    patch = "*** Begin Patch\n*** Update File: f\n@@\n+a\n*** End of File\n*** End Patch"
    assert apply_patch("\n", patch) == "\na\n"
    assert apply_patch("", patch) == "a\n"


@given(st.text(st.sampled_from("*@+- abEndBeginPatchUpdate File:\n"), max_size=120))
@settings(max_examples=150, deadline=None)
def test_any_text_is_a_patch_or_a_format_error(text):
    for patch in (text, f"*** Begin Patch\n*** Update File: f\n{text}\n*** End Patch"):
        with contextlib.suppress(PatchFormatError):
            assert parse_patch(patch)


def test_numbered_hunks_are_told_apart_in_a_file_of_equal_lines():
    text = "x\ny\n" * 5
    patch = "*** Begin Patch\n*** Update File: f\n@@ -5,2 +5,2 @@\n x\n-y\n+z\n*** End Patch"
    assert apply_patch(text, patch) == "x\ny\nx\ny\nx\nz\nx\ny\nx\ny\n"


def test_a_second_level_anchor_is_looked_for_below_the_first():
    text = "class A:\n  def f():\n    1\nclass B:\n  def f():\n    1\n"
    patch = "*** Begin Patch\n*** Update File: f\n@@ class B:\n@@   def f():\n-    1\n+    2\n*** End Patch"
    assert apply_patch(text, patch) == "class A:\n  def f():\n    1\nclass B:\n  def f():\n    2\n"


def test_an_anchor_that_is_missing_is_named():
    with pytest.raises(MatchError, match="class C"):
        apply_patch("a\n", "*** Begin Patch\n*** Update File: f\n@@ class C\n-a\n+b\n*** End Patch")


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("+a\n\n+b\n", ["a", "", "b"]),
        ("+a\n\n\n+b\n\n", ["a", "", "", "b"]),
        ("+a\n+\n\n", ["a", ""]),
        ("\n  \n+a\n", ["a"]),
        ("+a\n  \n", ["a"]),
        ("\n", []),
        ("", []),
    ],
)
def test_empty_lines_of_a_new_file_that_lack_their_mark_are_kept(body, lines):
    """They used to vanish, and the answer reported success."""
    add, _ = parse_patch(f"*** Begin Patch\n*** Add File: f\n{body}*** Update File: g\n-a\n+b\n*** End Patch")
    assert add.added == lines


@pytest.mark.parametrize(
    ("body", "line"), [("+a\n\n  \n+b", "Line 5 of the patch text is '  '"), ("+a\nb", "Line 4 .*'b'")]
)
def test_an_ambiguous_line_of_a_new_file_is_refused(body, line):
    with pytest.raises(PatchFormatError, match=f"{line}; expected lines that start with"):
        parse_patch(f"*** Begin Patch\n*** Add File: f\n{body}\n*** End Patch")
