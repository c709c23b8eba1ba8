"""Encodes keys, by tmux's names, as the bytes that a terminal sends for them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_SIMPLE: Final = {
    "Enter": "\r", "Escape": "\x1b", "Space": " ", "Tab": "\t", "BSpace": "\x7f", "BTab": "\x1b[Z", "KPEnter": "\r",
}  # fmt: skip
_CURSOR: Final = {"Up": "A", "Down": "B", "Right": "C", "Left": "D", "Home": "H", "End": "F"}
_NUMBERED: Final = {
    "IC": 2, "Insert": 2, "DC": 3, "Delete": 3, "PPage": 5, "PageUp": 5, "PgUp": 5, "NPage": 6, "PageDown": 6,
    "PgDn": 6, "F5": 15, "F6": 17, "F7": 18, "F8": 19, "F9": 20, "F10": 21, "F11": 23, "F12": 24,
}  # fmt: skip
_FUNCTION: Final = {"F1": "P", "F2": "Q", "F3": "R", "F4": "S"}
_MODIFIED: Final = re.compile(r"((?:[CMS]-|\^)+)(.+)", re.DOTALL)
_BITS: Final = {"S": 1, "M": 2, "C": 4}
_CONTROLS: Final = {" ": "\0", "?": "\x7f", "/": "\x1f", "2": "\0", "3": "\x1b", "4": "\x1c", "5": "\x1d", "6": "\x1e"}


def encode_keys(keys: str | Iterable[str], *, application_cursor: bool = False) -> bytes:
    """Return the bytes for some keys. As in tmux, text that is not the name of a key is sent literally.

    Names are Enter, Escape, Tab, BTab, Space, BSpace, Up, Down, Left, Right, Home, End, PPage (PageUp), NPage
    (PageDown), IC (Insert), DC (Delete), F1 to F12; with C- (or ^), M- and S- before them, or before one character.

    Args:
        keys: One name or text, or several.
        application_cursor: Whether the program has requested the application codes of the arrow keys.
    """
    listed = [keys] if isinstance(keys, str) else keys
    return "".join(_key(one, application_cursor) or one for one in listed).encode("utf-8", "replace")


def _key(name: str, application_cursor: bool) -> str | None:  # noqa: FBT001 - private
    if name in _SIMPLE:
        return _SIMPLE[name]
    plain = _sequence(name, 0, application_cursor)
    return plain if plain is not None else _modified_sequence(name)


def _sequence(name: str, bits: int, application_cursor: bool = False) -> str | None:  # noqa: FBT001, FBT002 - private
    if name in _NUMBERED:
        return f"\x1b[{_NUMBERED[name]}~" if not bits else f"\x1b[{_NUMBERED[name]};{bits + 1}~"
    letter = _CURSOR.get(name) or _FUNCTION.get(name)
    if letter is None:
        return None
    if bits:
        return f"\x1b[1;{bits + 1}{letter}"
    return f"\x1bO{letter}" if name in _FUNCTION or application_cursor else f"\x1b[{letter}"


def _modified_sequence(name: str) -> str | None:
    match = _MODIFIED.fullmatch(name)
    if match is None:
        return None
    prefix, key = match[1].replace("^", "C-"), match[2]
    modifiers = set(prefix.split("-")) - {""}
    sequence = _sequence(key, sum(_BITS[one] for one in modifiers))
    if sequence is not None:
        return sequence
    if key == "Tab" and modifiers == {"S"}:
        return _SIMPLE["BTab"]
    text = _SIMPLE.get(key, key)
    if len(text) != 1:
        return None
    return _with_modifiers(text, modifiers)


def _with_modifiers(text: str, modifiers: set[str]) -> str | None:
    if "S" in modifiers:
        text = text.upper()
    if "C" in modifiers:
        control = _control(text)
        if control is None:
            return None
        text = control
    return f"\x1b{text}" if "M" in modifiers else text


def _control(text: str) -> str | None:
    if "@" <= text.upper() <= "_":
        return chr(ord(text.upper()) & 0x1F)
    return _CONTROLS.get(text) or (text if text < " " else None)
