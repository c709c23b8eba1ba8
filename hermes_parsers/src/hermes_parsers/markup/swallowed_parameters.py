"""Detect values that may contain a parameter of the same call, whose tag was read as text."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from hermes_parsers.markup.call import Call
from hermes_parsers.markup.dialect import Dialect

_PAIRS: Final = frozenset({"``", '""', "''", "()", "[]", "{}"})
_BEFORE_WORDS: Final = frozenset(" \t\"'`([{:,=|>*_")
_BEHIND_WORDS: Final = frozenset(" \t\"'`)]},.;:|>*_")


def is_enclosed(tag: re.Match[str]) -> bool:
    """Whether a tag is between two quotes or brackets, like one that is only mentioned."""
    text, start, end = tag.string, tag.start(), tag.end()
    return start > 0 and text[start - 1] + text[end : end + 1] in _PAIRS


def is_among_words(tag: re.Match[str]) -> bool:
    """Whether a tag is among words of a line; otherwise a value would begin right after it, or on the next line."""
    text, start, end = tag.string, tag.start(), tag.end()
    return start > 0 and text[start - 1] in _BEFORE_WORDS and text[end : end + 1] in _BEHIND_WORDS


def doubt_about(call: Call, known: Collection[str] | None) -> str:
    """Say which value contains a tag that may begin a parameter, so that a closing mark would be missing.

    "" for none. `known` are the names of the tool's parameters, None if unknown.
    """
    given = {name.strip() for name, *_ in call.parameters}
    opening = call.dialect.parameter.opening
    for name, _, text, _ in call.parameters:
        found = _find_swallowed_tag(call.dialect, text, given, known) if opening in text else ""
        if found:
            return f"{name}: {found!r} inside the value was read as text, unless the closing mark before it is missing"
    return ""


def _find_swallowed_tag(dialect: Dialect, text: str, given: Collection[str], known: Collection[str] | None) -> str:
    """Return a tag in a value that may begin a parameter."""
    is_open, last = _loose_tags(dialect, text)
    for tag in is_open:
        name = tag[1].strip()
        is_surely_text = name in given or is_enclosed(tag)
        if known is not None and name not in known:
            is_surely_text = is_surely_text or is_among_words(tag)
        if not is_surely_text:
            return tag[0]
    # The mark that ends the value and the one before it: the latter may end the parameter, and the former be a
    # duplicate.
    is_doubtful = last is not None and last[1].strip() not in given and (known is None or last[1].strip() in known)
    return last[0] if last is not None and is_doubtful else ""


def _loose_tags(dialect: Dialect, text: str) -> tuple[list[re.Match[str]], re.Match[str] | None]:
    """Return the unclosed tags in a value, and the one whose closing mark ends the value."""
    is_open: list[re.Match[str]] = []
    last, behind = None, 0
    for token in dialect.tokens(text):
        if token.lastgroup == "open" and (tag := dialect.parameter.match(text, token.start())) is not None:
            is_open.append(tag)
        elif token.lastgroup == "close":
            last = is_open.pop() if is_open else None
            behind = token.end()
    return is_open, None if text[behind:].strip() else last
