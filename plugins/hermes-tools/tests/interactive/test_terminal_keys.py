"""The bytes that keys send."""

from __future__ import annotations

import pytest

from hermes_tools.interactive.keys import encode_keys


@pytest.mark.parametrize(
    ("keys", "sent"),
    [
        (["ls", "Enter"], b"ls\r"),
        ("C-c", b"\x03"),
        ("^C", b"\x03"),
        (["C-Space"], b"\0"),
        (["C-["], b"\x1b"),
        (["C-?"], b"\x7f"),
        (["M-x"], b"\x1bx"),
        (["C-M-a"], b"\x1b\x01"),
        (["M-Enter"], b"\x1b\r"),
        (["Escape", ":wq", "Enter"], b"\x1b:wq\r"),
        (["Up", "Down", "Right", "Left"], b"\x1b[A\x1b[B\x1b[C\x1b[D"),
        (["C-Right", "S-Up", "C-S-End"], b"\x1b[1;5C\x1b[1;2A\x1b[1;6F"),
        (["F1", "F5", "F12", "S-F1"], b"\x1bOP\x1b[15~\x1b[24~\x1b[1;2P"),
        (["BSpace", "Tab", "BTab", "S-Tab", "Space"], b"\x7f\t\x1b[Z\x1b[Z "),
        (
            ["PPage", "NPage", "PageUp", "Home", "End", "DC", "C-DC"],
            b"\x1b[5~\x1b[6~\x1b[5~\x1b[H\x1b[F\x1b[3~\x1b[3;5~",
        ),
        (["é日"], "é日".encode()),
        ([], b""),
        ([""], b""),
        (["C-"], b"C-"),
        (["enter"], b"enter"),
        (["ls -l Enter"], b"ls -l Enter"),
        (["C-xyz", "F13", "M-"], b"C-xyzF13M-"),
        (["C-é"], "C-é".encode()),
    ],
)
def test_names_are_keys_and_everything_else_is_literal(keys, sent):
    assert encode_keys(keys) == sent


def test_a_program_may_have_asked_for_the_other_arrow_keys():
    assert encode_keys(["Up", "Home"], application_cursor=True) == b"\x1bOA\x1bOH"
