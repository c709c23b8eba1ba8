"""Normalise files of a model for comparison, slice by slice: one step on a whole file would block all threads."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_SLICE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class TextForm:
    """Which differences count: surrounding white space, runs of white space, upper and lower case."""

    strip: bool
    collapse_whitespace: bool
    ignore_case: bool

    def of(self, text: str) -> str:
        """Return a text in this form."""
        return self._join(text[at : at + _SLICE] for at in range(0, len(text), _SLICE))

    def of_bytes(self, data: bytes) -> str:
        """Return a file's text in this form; bytes that are not UTF-8 are replaced."""
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        ends = range(_SLICE, len(data) + _SLICE, _SLICE)
        return self._join(decode(data[end - _SLICE : end], end >= len(data)) for end in ends)

    def _join(self, slices: Iterable[str]) -> str:
        pieces = _collapse(slices) if self.collapse_whitespace else _with_newlines(slices)
        text = "".join(piece.casefold() if self.ignore_case else piece for piece in pieces)
        return text.strip() if self.strip or self.collapse_whitespace else text


def _with_newlines(slices: Iterable[str]) -> Iterator[str]:
    held = ""  # possibly the first half of a "\r\n"
    for piece in slices:
        text = held + piece
        held = "\r" if text.endswith("\r") else ""
        yield text.removesuffix(held).replace("\r\n", "\n")
    yield held


def _collapse(slices: Iterable[str]) -> Iterator[str]:
    before = ""
    for piece in slices:
        # Between two characters, so that white space at the ends stays and can be joined to its neighbours.
        text = " ".join(f"|{piece}|".split())[1:-1]
        text = text.removeprefix(" ") if before == " " else text
        before = text[-1:] or before
        yield text
