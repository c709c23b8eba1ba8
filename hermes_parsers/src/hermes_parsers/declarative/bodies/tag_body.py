"""Calls with one tag per parameter: content `xml-inline`."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers.declarative.bodies.tags import Around, Tag, Tags
from hermes_parsers.declarative.bodies.transforms import CallShape
from hermes_parsers.declarative.patterns.delimiters import Delimiter
from hermes_parsers.declarative.patterns.spelling import spell
from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.engine.scanning.scan import Draft, Marks, Scan, Wait, skip_space
from hermes_parsers.schemas import parameter_schemas
from hermes_parsers.writing import dumps


class TagBody:
    """Content `xml-inline`.

    A call ends at its closing, at the next opening, or with the text. Any text may stand between its tags, because
    `transformers` reads only the tags.
    """

    def __init__(self, opening: Delimiter, closing: Delimiter | None, shape: CallShape, tags: Tags) -> None:
        self._opening = opening
        self._closing = closing
        self._shape = shape
        self._tags = tags
        self._ends = (opening,) if closing is None else (closing, opening)
        ends = {mark for end in self._ends for mark in end.marks if mark not in end.weak}
        self._end_marks = tuple(ends)
        self._marks = Marks(tuple({*ends, *tags.marks, *tags.tail_marks}))
        self._next = Marks(tuple({*ends, *tags.marks})) if tags.marks else None

    def read(self, scan: Scan, start: int, at: int, captures: Mapping[str, str]) -> Wait:
        """Read the tags and the closing."""
        read: list[Tag] = []
        left_out: list[str] = []
        around = Around(self._marks, self._ends)
        behind = at
        while (at := (yield from skip_space(scan, at))) < len(scan.text):
            end = yield from self._end(scan, at)
            if end is not None:
                break
            tag = yield from self._tags.match(scan, at, around)
            if tag is None:
                begin, at = at, (yield from self._skip(scan, at))
                left_out.append(scan.text[begin:at])
            else:
                read.append(tag)
                behind = at = tag.end
        else:
            end = None
        draft = self._draft(scan.text, start, (behind, at), end, read)
        self._fill(scan, draft, read, captures)
        if left_out and draft.is_good:
            said = f"left out text between the tags: {''.join(left_out).strip()!r:.80}"
            draft.reason = f"{draft.reason}; {said}" if draft.reason else said
        scan.drafts.append(draft)
        return draft.end

    def _end(self, scan: Scan, at: int) -> Generator[str, None, int | None]:
        """Return where the closing that begins here ends, `at` itself if the next opening begins here, or None."""
        if len(scan.text) - at >= self._marks.longest and not scan.text.startswith(self._end_marks, at):
            return None
        if self._closing is not None and (end := (yield from self._closing.match(scan, at))) >= 0:
            return end
        is_weak = any(scan.text.startswith(mark, at) for mark in self._opening.weak)
        if not is_weak and (yield from self._opening.match(scan, at)) >= 0:
            return at
        return None

    def _skip(self, scan: Scan, at: int) -> Wait:
        if self._next is None:
            return at + 1
        found = yield from self._next.seek(scan, at + 1)
        return len(scan.text) if found is None else found.start()

    def _draft(self, text: str, start: int, rest: tuple[int, int], end: int | None, read: list[Tag]) -> Draft:
        """Build the draft of a call.

        `rest` is the text after its last tag, `end` the result of `_end` for the place after that.
        """
        behind, at = rest
        if end is not None and end > at:
            draft = Draft(start, end)
        elif end is None and self._is_cut(text[behind:].strip(), read):
            return Draft(start, len(text), AttemptStatus.TRUNCATED, reason="the text ends inside the call")
        else:
            draft = Draft(start, behind + len(text[behind:at].rstrip()))
            if self._closing is not None:
                draft.cut(f"the closing {self._closing.marks[0]} is missing")
        if read and not read[-1].is_closed:
            draft.fail(AttemptStatus.INVALID_JSON, f"the parameter {read[-1].key!r} does not end")
        return draft

    def _is_cut(self, rest: str, read: list[Tag]) -> bool:
        """Whether a call at the end of the text may lack parameters; `rest` follows its last tag."""
        if read and not read[-1].is_closed:
            return True
        if not rest:
            return self._closing is not None
        return not self._tags.marks or any(_overlaps(mark, rest) for mark in self._tags.marks)

    def _fill(self, scan: Scan, draft: Draft, read: list[Tag], captures: Mapping[str, str]) -> None:
        """Set the draft's name and arguments."""
        name = self._shape.name_in(captures)
        schemas: Mapping[str, Any] = parameter_schemas(scan.tools, name) or {}
        value: dict[str, Any] = {}
        notes: list[str] = []
        for tag in read:
            item, note = self._tags.values.read(tag.value, schemas.get(tag.key))
            if self._tags.merges and tag.key in value:
                held = value[tag.key]
                item = [*held, item] if isinstance(held, list) else [held, item]
            value[tag.key] = item
            if note:
                notes.append(f"{tag.key}: {note}")
            if not tag.is_closed and tag is not read[-1]:
                notes.append(f"{tag.key}: its closing tag is missing")
        draft.value, draft.arguments = value, dumps(value)
        if not draft.reason:
            draft.reason = "; ".join(notes)
        draft.name = name.strip()

    def write_calls(self, calls: list[WrittenCall]) -> str:
        """Write the calls one after the other.

        Raises:
            ValueError: The metadata does not say how.
        """
        if self._opening.weak or not self._tags.marks:
            raise ValueError("the metadata says how to read this format's calls, not what to write between them")
        return "".join([self._write_call(call) for call in calls])

    def _write_call(self, call: WrittenCall) -> str:
        captures = {} if self._shape.name is None else {self._shape.name: call.name}
        tags = "".join([self._tag(key, value) for key, value in call.value.items()])
        closing = spell(self._closing.nodes, captures) if self._closing else ""
        return f"{spell(self._opening.nodes, captures)}{tags}{closing}"

    def _tag(self, key: str, value: Any) -> str:
        text = value if isinstance(value, str) else dumps(value)
        before, after = ("\n" if is_spaced else "" for is_spaced in self._tags.spaced)
        return spell(self._tags.nodes, {"key": key, "value": f"{before}{text}{after}"})


def _overlaps(mark: str, text: str) -> bool:
    return mark.startswith(text) or text.startswith(mark)
