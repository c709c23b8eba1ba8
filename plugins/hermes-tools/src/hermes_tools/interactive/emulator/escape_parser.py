"""Parses a program's terminal output into text, control characters and escape sequences.

pyte's own parser shows the content of unknown sequences as text, and collects strings without a limit.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

_TOKEN: Final = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]{1,128}+)"
    r"|\x1b\[(?P<parameters>[0-?]*+)(?P<between>[ -/]*+)(?P<final>[@-~])"
    r"|\x1b(?P<opener>[\]PX^_])"
    r"|\x1b(?P<middle>[ -/]*+)(?P<last>[0-OQ-WYZ\\`-~])"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f-\x9f])"
)
_BEGINNING: Final = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+|[ -/]*+)")
_LONGEST_SEQUENCE: Final = 256
_LONGEST_STRING: Final = 4096
_SWALLOWED: Final = 1 << 16
"""Characters after which a string without a terminator counts as ended, because it hides the output that follows."""
_ENDS_COMMAND: Final = re.compile(r"[\x00-\x1f]")
_ENDS_STRING: Final = re.compile(r"[\x18\x1a\x1b]")


class Emulation(Protocol):
    """Receives what the parser finds."""

    def show(self, text: str) -> None:
        """Handle text without control characters."""

    def control(self, character: str) -> None:
        """Handle a control character: below 0x20, or from 0x7f to 0x9f."""

    def sequence(self, parameters: str, between: str, final: str) -> None:
        """Handle a sequence that begins with `ESC [`."""

    def escape(self, middle: str, last: str) -> None:
        """Handle any other escape sequence."""

    def string(self, opener: str, text: str) -> None:
        """Handle the first 4096 characters of an operating system command (`]`) or a device control string (`P`)."""


class EscapeParser:
    """Parses text in pieces that can be cut anywhere. It keeps a bounded amount of text and never raises."""

    def __init__(self, emulation: Emulation) -> None:
        self._emulation = emulation
        self._text = ""
        self._position = 0
        self._rest = ""
        self._opener = ""
        self._string: list[str] = []
        self._length = 0

    @property
    def is_idle(self) -> bool:
        """Whether no sequence is unfinished."""
        return not (self._rest or self._opener)

    @property
    def is_behind(self) -> bool:
        """Whether there is text that `step` has not parsed."""
        return self._position < len(self._text)

    def feed(self, text: str) -> None:
        """Parse the next piece completely."""
        self.take(text)
        while self.step():
            pass

    def take(self, text: str) -> None:
        """Add the next piece, which `step` parses."""
        self._text, self._position = self._rest + self._text[self._position :] + text, 0
        self._rest = ""

    def step(self) -> bool:
        """Parse the next sequence, control character or up to 128 characters of text. Return False if there is none."""
        text, position = self._text, self._position
        if position >= len(text):
            return False
        self._position = self._in_string(text, position) if self._opener else self._outside(text, position)
        if self._position >= len(text):
            self._text, self._position = "", 0
        return True

    def drop(self) -> str:
        """Drop the text that has not been parsed, and any unfinished sequence. Return the text."""
        text = self._text[self._position :]
        self._text, self._position, self._rest = "", 0, ""
        self._close(whole=False)
        return text

    def _outside(self, text: str, position: int) -> int:
        token = _TOKEN.match(text, position)
        if token is None:
            return self._keep_unfinished(text, position)
        emulation = self._emulation
        if (shown := token["text"]) is not None:
            emulation.show(shown)
        elif (final := token["final"]) is not None:
            if token.end() - position <= _LONGEST_SEQUENCE:
                emulation.sequence(token["parameters"], token["between"], final)
        elif (opener := token["opener"]) is not None:
            self._opener = opener
        elif (last := token["last"]) is not None:
            emulation.escape(token["middle"], last)
        else:
            emulation.control(token["control"])
        return token.end()

    def _keep_unfinished(self, text: str, position: int) -> int:
        beginning = _BEGINNING.match(text, position)
        assert beginning is not None
        end = beginning.end()
        if end == len(text) and end - position <= _LONGEST_SEQUENCE:
            self._rest = text[position:]
        # The character that interrupts a sequence, or begins the next one, is parsed separately.
        return end

    def _in_string(self, text: str, position: int) -> int:
        end = (_ENDS_COMMAND if self._opener == "]" else _ENDS_STRING).search(text, position)
        stop = len(text) if end is None else end.start()
        if self._length < _LONGEST_STRING:
            self._string.append(text[position : min(stop, position + _LONGEST_STRING - self._length)])
        self._length += stop - position
        if end is not None:
            self._close(whole=end[0] in "\x07\x1b")
            # An escape character begins either `ESC \`, which has no effect of its own, or the next sequence.
            return stop if end[0] == "\x1b" else end.end()
        if self._length > _SWALLOWED:
            self._close(whole=False)
        return stop

    def _close(self, *, whole: bool) -> None:
        opener, text = self._opener, "".join(self._string)
        self._opener, self._string, self._length = "", [], 0
        if whole:
            self._emulation.string(opener, text)
