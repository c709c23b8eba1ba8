"""Print text of models and templates on a terminal, so that nothing in it acts as a terminal command."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Final, TextIO

from hermes_core.cli import plural

_STYLES: Final = {"good": "32", "doubtful": "33", "bad": "31", "reasoning": "36", "faint": "2", "strong": "1"}
_SHOWN_NOT_SENT: Final = {ord("\r"): "\\r", ord("\t"): "\\t", ord("\v"): "\\v", ord("\f"): "\\f"}
_WIDTH: Final = 400


class Screen:
    """Writes lines to a stream, coloured if the stream is a terminal and NO_COLOR is not set."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self._stream = stream
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self._is_coloured = stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"

    def line(self, text: str = "") -> None:
        """Write a line; foreign text in it must have gone through `escape`."""
        self._stream.write(text.rstrip().encode(self._encoding, "backslashreplace").decode(self._encoding) + "\n")

    def paint(self, text: str, style: str) -> str:
        """Return the text in a style, or unchanged where colours are off."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self._is_coloured and style and text else text

    def escape(self, text: object, limit: int = _WIDTH) -> str:
        """Return foreign text as one printable line: control codes are shown, not sent."""
        from hermes_core.cli import one_line

        return one_line(str(text).replace("\n", "\\n").translate(_SHOWN_NOT_SENT), limit, encoding=self._encoding)

    def shown_lines(self, text: str, limit: int | None) -> Iterator[str]:
        """Return foreign text line by line, each made printable; after `limit` lines, one line counts the rest."""
        lines = text.split("\n")
        for line in lines if limit is None else lines[:limit]:
            yield self.escape(line, limit=_WIDTH if limit is not None else len(line) * 10 + 1)
        if limit is not None and len(lines) > limit:
            yield f"… {plural(len(lines) - limit, 'more line')}; --full shows them"


def print_json(document: object) -> None:
    """Write JSON in ASCII, because UTF-8 cannot encode a lone surrogate in foreign text."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
