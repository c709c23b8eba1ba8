"""Find where a call's parameters end, for values that may contain anything, including the format's marks.

Values are not escaped, so there are three readings, from certain to guessed; each is linear and independent of how the
text was cut into pieces:

1. *Plain*: no tag of the format inside the value, a closing mark, then the next parameter or the end of the call.
2. *Nested*: balanced tags inside the value belong to it (a model that writes about calls), and closing marks followed
   by other text are text.
3. *Flat*: the tags are unbalanced, so a mark is missing or one is quoted alone. A value ends at the last closing mark
   before the next parameter that the tool declares and that was not given yet (as in hermes-agent), or, without any
   closing mark, at that parameter or at the end of the call (sglang PR 15135). These tags are text: one between quotes,
   one among words if the format puts tags on separate lines, and one whose parameter follows properly later.
4. If a tag that was read as text may be a parameter, the call says so: see `markup.swallowed_parameters`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Final

from hermes_parsers.engine.scanning.scan import SPACE
from hermes_parsers.markup.call import Call, parameter_of
from hermes_parsers.markup.dialect import Dialect
from hermes_parsers.markup.nested_tags import NestedReading, is_last_mark
from hermes_parsers.markup.source import IncompleteError, Source, text_without
from hermes_parsers.markup.swallowed_parameters import doubt_about, is_among_words, is_enclosed
from hermes_parsers.schemas import parameter_schemas

_WINDOW: Final = 1024
"""The distance of the first search for a closing mark: searching to the end of the text for each call without one would
take too long.
"""


class BodyReader:
    """Reads one call's body, starting after its opening tag."""

    __slots__ = ("_begin", "_call", "_dialect", "_source", "_text")

    def __init__(self, source: Source, call: Call) -> None:
        self._source = source
        self._text = source.text
        self._call = call
        self._dialect = call.dialect

    def read(self, at: int) -> None:
        """Read the body that begins at `at` with a parameter or the call's closing mark."""
        call, closing = self._call, self._dialect.call_close
        self._begin = at
        if call.reading is None:
            at = self._plain(max(at, call.at))
            if self._text.startswith(closing, at):
                call.finish(at + len(closing), is_closed=True)
                return
            if self._is_abandoned(at):
                return
            # A tool that declares no parameters does not tell their names.
            known = (parameter_schemas(call.tools, call.name) or None) if call.tools else None
            call.reading = NestedReading(self._dialect, at, known, call.given)
        if not self._read_nested(call.reading):
            self._flat(call.reading)

    def _is_abandoned(self, at: int) -> bool:
        """Whether a call begins here that the model abandoned for another; the flat reading in one step."""
        found = _abandoned_parameter(self._dialect).match(self._text, at)
        tag = self._dialect.parameter.match(self._text, at)
        if found is None or tag is None:
            return False
        end = found.start("cut")
        self._call.parameters.append(parameter_of(tag, self._text[tag.end() : end], is_closed=False))
        self._call.finish(end, is_cut=True)
        return True

    def _plain(self, at: int) -> int:
        """Read parameters while they are certain; return where the first other text begins."""
        source, text, dialect, call = self._source, self._text, self._dialect, self._call
        closing, opening, marks = dialect.parameter_close, dialect.parameter.opening, dialect.body_marks[:2]
        while text.startswith(opening, at):
            tag = source.tag(dialect.parameter, at)
            if tag is None:
                break
            start = tag.end()
            end = self._closing(start)
            if end < 0:
                break
            value = text[start:end]
            if opening in value or dialect.has_call_marks(value):
                break
            after = first = source.space(end + len(closing))
            while source.sees(closing, after):
                after = source.space(after + len(closing))
            if not source.sees_one(marks, after):
                break
            name = tag[1].strip()
            following = source.tag(dialect.parameter, after) if text.startswith(opening, after) else None
            if following is not None and (following[1] == tag[1] or following[1].strip() in call.given):
                # Repeated: only the end of the call shows whether the value ends here.
                break
            call.parameters.append(parameter_of(tag, value))
            if after > first:
                call.repair_end(name)
            call.given.add(name)
            call.at = at = after
        return at

    def _closing(self, start: int) -> int:
        """Return the place of a value's closing mark; -1 if another tag comes first, or the text ends."""
        text, dialect = self._text, self._dialect
        size = _WINDOW
        while True:
            stop = start + size
            end = text.find(dialect.parameter_close, start, stop)
            if end >= 0:
                return end
            head = text[start:stop]
            if dialect.parameter.opening in head or dialect.has_call_marks(head):
                return -1
            if stop >= len(text):
                if self._source.final:
                    return -1
                raise IncompleteError(">")
            size *= 2

    def _read_nested(self, reading: NestedReading) -> bool:
        """Read the rest, counting tags inside values; return False if they are unbalanced."""
        if not reading.read(self._source):
            return False
        if reading.is_uneven and reading.has_repeated:
            # Either of the two may be text of a value, including that of a parameter already read.
            self._call.parameters.clear()
            self._call.given.clear()
            self._split(self._begin, reading.end)
        elif reading.is_uneven:
            self._split(reading.begin, reading.end)
        else:
            self._call.parameters += reading.parameters
            for name in reading.doubled:
                self._call.repair_end(name)
            self._call.junk = reading.junk
        self._finish(reading.end, is_closed=reading.is_closed)
        return True

    def _flat(self, reading: NestedReading) -> None:
        """Find the call's end at the first possible mark, then split the text before it."""
        end, is_closed, is_cut = self._flat_end(reading)
        self._split(reading.begin, end)
        self._finish(end, is_closed=is_closed, is_cut=is_cut)

    def _finish(self, end: int, *, is_closed: bool, is_cut: bool = False) -> None:
        behind = len(self._dialect.call_close) if is_closed else 0
        self._call.finish(end + behind, is_closed=is_closed, is_cut=is_cut)
        self._call.doubt = doubt_about(self._call, self._call.reading.known)

    def _flat_end(self, reading: NestedReading) -> tuple[int, bool, bool]:
        source, dialect = self._source, self._dialect
        for token in dialect.tokens(self._text, reading.flat_at):
            kind, start = token.lastgroup, token.start()
            if kind in {"end", "block_end"} and self._ends_line(token.end()):
                return start, kind == "end", False
            if kind in {"call", "block"} and start > reading.begin and self._begins_call(start):
                return start, False, True
            reading.flat_at = token.end()
        if not source.final:
            raise IncompleteError(">")
        return len(self._text), False, True

    def _ends_line(self, at: int) -> bool:
        """Whether only another end mark follows on the line."""
        text = self._text
        end = SPACE(text, at).end()  # type: ignore[union-attr]  # the pattern matches everywhere
        if "\n" in text[at:end] or (end == len(text) and self._source.final):
            return True
        return is_last_mark(self._source, self._dialect, at, or_call=True)

    def _begins_call(self, at: int) -> bool:
        if at and self._text[at - 1] != "\n" and self._dialect.own_lines:
            return False
        for opening, _ in self._dialect.blocks:
            if self._text.startswith(opening, at):
                at = self._source.space(at + len(opening))
        call = self._dialect.call
        return self._source.sees(call.opening, at) and self._source.tag(call, at) is not None

    def _split(self, at: int, stop: int) -> None:
        """Split the text between two places into parameters, by the rule of the flat reading."""
        text, dialect = self._text, self._dialect
        current: re.Match[str] | None = None
        last = behind = -1
        given = set(self._call.given)
        proper = self._proper(at, stop)
        for token in dialect.tokens(text, at, stop):
            kind, start = token.lastgroup, token.start()
            if kind == "close":
                # If written twice, the first one ends the value.
                last = start if last < 0 or text[behind:start].strip() else last
                behind = token.end()
            elif kind == "open":
                tag = dialect.parameter.match(text, start, stop)
                if tag is None or (current is not None and not self._is_next(current, tag, last, given, proper)):
                    continue
                if current is not None:
                    self._commit(current, last, behind, start)
                elif text[at:start].strip():
                    self._call.junk = text[at:start].strip()
                current, last = tag, -1
                given.add(tag[1])
        if current is not None:
            self._commit(current, last, behind, stop)
        else:
            self._call.junk = text[at:stop].strip()

    def _proper(self, at: int, stop: int) -> dict[str, int]:
        """Return by name the last place of a parameter's tag right after a closing mark."""
        text, dialect = self._text, self._dialect
        found: dict[str, int] = {}
        behind = -1
        for token in dialect.tokens(text, at, stop):
            start = token.start()
            if token.lastgroup == "open" and behind >= 0 and not text[behind:start].strip():
                tag = dialect.parameter.match(text, start, stop)
                if tag is not None:
                    found[tag[1]] = start
            behind = token.end() if token.lastgroup == "close" else -1
        return found

    def _is_next(
        self,
        current: re.Match[str],
        tag: re.Match[str],
        last: int,
        given: Collection[str],
        proper: Mapping[str, int],
    ) -> bool:
        """Whether a parameter's tag inside the possible value of the current parameter begins the next one."""
        name, start = tag[1], tag.start()
        if name in given:
            return False
        if name in proper:
            # Not given yet: this is the proper tag, or the proper one follows later.
            return proper[name] == start
        # If the tag of the enclosing parameter begins a line, a tag among words is text.
        has_lines = self._dialect.own_lines and self._text[current.start() - 1] == "\n"
        if is_enclosed(tag) or (has_lines and is_among_words(tag)):
            return False
        known = self._call.reading.known
        return last < 0 if known is None else name in known

    def _commit(self, tag: re.Match[str], last: int, behind: int, stop: int) -> None:
        """Add a parameter whose value ends at `last`, and whose last closing mark ends at `behind`."""
        end = last if last >= 0 else stop
        self._call.parameters.append(parameter_of(tag, self._text[tag.end() : end], is_closed=last >= 0))
        if last >= 0:
            self._call.junk = self._call.junk or self._text[behind:stop].strip()
        if last >= 0 and behind > last + len(self._dialect.parameter_close):
            self._call.repair_end(tag[1])


@cache
def _abandoned_parameter(dialect: Dialect) -> re.Pattern[str]:
    """Return a pattern for a parameter in which a call begins, and no mark ends either before another call."""
    call, parameter = dialect.call, dialect.parameter
    calls, openings = (call.opening, dialect.call_close), [opening for opening, _ in dialect.blocks]
    marks = (parameter.opening, dialect.parameter_close, *openings, *dialect.block_closes)
    block = f"(?:{'|'.join(map(re.escape, openings))})[ \\t\\n\\r]*" if openings else ""
    begins = f"(?P<cut>)(?:{block})?{call.pattern}"
    if dialect.own_lines:
        begins = rf"(?:(?<!\n){block})?(?<=\n){begins}"
    return re.compile(f"{parameter.pattern}{text_without(*calls, *marks)}{begins}{text_without(*calls)}{call.pattern}")
