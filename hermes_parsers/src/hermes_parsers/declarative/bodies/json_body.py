"""Calls with a JSON body: an object with name and arguments, the arguments alone, or a list of calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers.declarative.bodies.json_dialects import Dialect, DialectReader
from hermes_parsers.declarative.bodies.transforms import CallShape
from hermes_parsers.declarative.patterns.delimiters import Delimiter
from hermes_parsers.declarative.patterns.spelling import spell
from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.engine.scanning.scan import Draft, Scan, Wait, skip_space
from hermes_parsers.engine.values.error_recovery import Ends, broken_call
from hermes_parsers.engine.values.json_calls import CallKeys, draft_of, repaired_object, set_arguments, without_spans
from hermes_parsers.engine.values.json_text import MAX_DEPTH, JsonError, Members, members_at, read_members
from hermes_parsers.writing import dumps

_NEVER: Final = "\0\0"
"""A mark that never comes: waiting for it means waiting for the end of the text."""
Found = tuple[str, int, int, Members]
"""An object: the JSON text that contains it, its start and end there, and its members."""


class JsonBody:
    """Content `json`."""

    def __init__(
        self, opening: Delimiter, closing: Delimiter | None, shape: CallShape, dialect: Dialect, *, is_list: bool
    ) -> None:
        self._opening = opening
        self._closing = closing
        self._shape = shape
        self._dialect = dialect
        self._is_list = is_list
        openers = tuple(mark for mark in opening.marks if mark not in opening.weak)
        self._ends = Ends(closing.marks if closing else (), openers)
        self._boundary = _boundary(shape.keys, (*(closing.marks if closing else ()), *openers))

    def read(self, scan: Scan, start: int, at: int, captures: Mapping[str, str]) -> Wait:
        """Read an object or, if the content holds the names, a list of objects."""
        at = yield from skip_space(scan, at)
        if scan.text.startswith("{", at):
            try:
                found, end = yield from self._members(scan, at)
            except JsonError as error:
                return (yield from self._recover(scan, start, at, error, captures))
            return (yield from self._close(scan, self._draft(start, end, found, captures), at, captures))
        if scan.text.startswith("[", at) and not self._shape.is_named:
            return (yield from self._list(scan, start, at, captures))
        return -1

    def _members(self, scan: Scan, at: int) -> Generator[str, None, tuple[Found, int]]:
        if self._dialect.is_plain:
            members, end = yield from read_members(scan, at)
            return (scan.text, at, end, members), end
        reader = DialectReader(self._dialect, at)
        while not reader.advance(scan.text, final=scan.final):
            if scan.final:
                raise JsonError("the text ends inside the JSON", len(scan.text), is_cut=True)
            yield ""
        if reader.reason:
            raise JsonError(reader.reason, reader.at)
        text = "".join(reader.written).lstrip()
        try:
            return (text, 0, len(text), members_at(text, 0)[0]), reader.end
        except JsonError as error:
            shifted = JsonError(error.reason, reader.end)
            shifted.end = reader.end
            raise shifted from None

    def _draft(self, start: int, end: int, found: Found, captures: Mapping[str, str]) -> Draft:
        text, first, last, members = found
        if not self._shape.is_named:
            draft = draft_of(text, start, end, members, self._shape.keys)
        else:
            draft = Draft(start, end)
            value: tuple[Any, int, int] = ({key: item[0] for key, item in members.items()}, first, last)
            if self._shape.arguments_in_content:
                value = next((members[key] for key in self._shape.keys.arguments if key in members), (None, -1, -1))
            set_arguments(draft, text, *value)
            draft.name = self._shape.name_in(captures).strip()
        if self._shape.id is not None:
            draft.id = captures.get(self._shape.id) or None
        return draft

    def _close(self, scan: Scan, draft: Draft, at: int, captures: Mapping[str, str]) -> Wait:
        """Find the closing after a complete body that begins at `at`, and add the draft."""
        if self._closing is None:
            scan.drafts.append(draft)
            return draft.end
        after = yield from skip_space(scan, draft.end)
        end = yield from self._closing.match(scan, after)
        if end >= 0:
            draft.end = end
        elif rest := self._cut_closing(scan, after):
            draft.end = after + len(rest)
            draft.cut(f"the text ends inside the closing {self._closing.marks[0]}")
        elif scan.text.startswith(("}", "]"), after):
            error = JsonError("brackets follow the object", after)
            error.end = after
            return (yield from self._recover(scan, draft.start, at, error, captures))
        else:
            draft.cut(f"the closing {self._closing.marks[0]} is missing")
        scan.drafts.append(draft)
        return draft.end

    def _cut_closing(self, scan: Scan, at: int) -> str:
        """Return the rest of the text if it is the beginning of the closing; servers cut off the last special token."""
        rest = scan.text[at:] if len(scan.text) - at <= self._ends.marks.longest else ""
        if not scan.final or self._closing is None:
            return ""
        return rest if any(mark.startswith(rest) for mark in self._closing.marks) else ""

    def _list(self, scan: Scan, start: int, at: int, captures: Mapping[str, str]) -> Wait:
        """Read a list of calls; a call is added once the text after it is known."""
        at = yield from skip_space(scan, at + 1)
        if scan.text.startswith("]", at):
            return -1
        while True:
            draft, end, is_over = yield from self._item(scan, start, at, captures)
            if is_over:
                return end
            after = yield from skip_space(scan, end)
            if draft is not None and draft.is_good and scan.text.startswith("}", after):
                draft, end = yield from self._spoilt(scan, start, at, after, captures)
                after = yield from skip_space(scan, end)
            if not scan.text.startswith(",", after):
                break
            at = yield from skip_space(scan, after + 1)
            if at == len(scan.text):
                break
            if draft is not None:
                scan.drafts.append(draft)
            start = at
        if draft is None:
            return (yield from self._after_list(scan, after + 1)) if scan.text.startswith("]", after) else end
        if not scan.text.startswith("]", after):
            scan.drafts.append(draft.cut("the list of calls does not end"))
            return draft.end
        draft.end = after + 1
        return (yield from self._close(scan, draft, at, captures))

    def _item(
        self, scan: Scan, start: int, at: int, captures: Mapping[str, str]
    ) -> Generator[str, None, tuple[Draft | None, int, bool]]:
        """Read a member of a list.

        A broken one with a known end is added as a failed attempt, and the others are still read.
        """
        error = JsonError("expected an object in the list of calls", at, is_cut=at == len(scan.text))
        if scan.text.startswith("{", at):
            try:
                found, end = yield from self._members(scan, at)
                return self._draft(start, end, found, captures), end, False
            except JsonError as failure:
                error = failure
        stop = yield from self._item_end(scan, at, error)
        if stop < 0:
            return None, (yield from self._recover(scan, start, at, error, captures)), True
        draft = self._repair(scan, start, at, stop, captures)
        if draft is None:
            scan.drafts.append(broken_call(start, stop, AttemptStatus.INVALID_JSON, error))
        return draft, stop, False

    def _spoilt(
        self, scan: Scan, start: int, at: int, end: int, captures: Mapping[str, str]
    ) -> Generator[str, None, tuple[Draft | None, int]]:
        """Withdraw a member that extra closing braces follow."""
        error = JsonError("brackets follow the object", end)
        while scan.text.startswith("}", end):
            stop = end + 1
            end = yield from skip_space(scan, stop)
        draft = self._repair(scan, start, at, stop, captures)
        if draft is None:
            scan.drafts.append(broken_call(start, stop, AttemptStatus.INVALID_JSON, error))
        return draft, stop

    def _item_end(self, scan: Scan, at: int, error: JsonError) -> Wait:
        """Return where an unreadable member of a list ends, or -1 if reading the list cannot continue."""
        if error.end >= 0:
            after = yield from skip_space(scan, error.end)
            return error.end if scan.text.startswith((",", "]"), after) else -1
        while not scan.final:
            # It is unknown where its strings end, so only the whole text shows whether another member begins.
            yield _NEVER
        found = self._boundary(scan.text, at + 1)
        return found.start() + 1 if found is not None and found[0][0] == "}" else -1

    def _after_list(self, scan: Scan, at: int) -> Wait:
        """Skip the closing after a list whose last call could not be read."""
        if self._closing is None:
            return at
        after = yield from skip_space(scan, at)
        end = yield from self._closing.match(scan, after)
        scan.drafts[-1].end = max(at, end)
        return max(at, end)

    def _recover(self, scan: Scan, start: int, at: int, error: JsonError, captures: Mapping[str, str]) -> Wait:
        # Otherwise each of several nested calls would be read down to the full depth.
        is_deep = not error.is_cut and error.at - at > MAX_DEPTH and "deep" in error.reason
        stop, end, status = yield from self._ends.recover(scan, error.at if is_deep else at, error)
        draft = self._repair(scan, start, at, stop, captures)
        if draft is not None:
            draft.end = end
        scan.drafts.append(draft or broken_call(start, end, status, error))
        return end

    def _repair(self, scan: Scan, start: int, at: int, stop: int, captures: Mapping[str, str]) -> Draft | None:
        """Read a body leniently, if lenient mode is on and the body is JSON."""
        found = repaired_object(scan.text, at, stop) if scan.lenient and self._dialect.is_plain else None
        if found is None:
            return None
        text = dumps(found[0])
        draft = self._draft(start, stop, (text, 0, len(text), without_spans(found[0])), captures)
        return draft.fail(AttemptStatus.REPAIRED, found[1])

    def write_calls(self, calls: list[WrittenCall]) -> str:
        """Write calls, each between its marks, or all in one list if the format uses a list.

        Raises:
            ValueError: The metadata does not say how.
        """
        if self._is_list:
            body = ", ".join([self._object_of(call) for call in calls])
            return f"{self._spell(calls[0], self._opening)}[{body}]{self._spell(calls[0], self._closing)}"
        return "".join(
            [
                f"{self._spell(call, self._opening)}{self._object_of(call)}{self._spell(call, self._closing)}"
                for call in calls
            ]
        )

    def _spell(self, call: WrittenCall, delimiter: Delimiter | None) -> str:
        shape = self._shape
        captures = {shape.name: call.name} if shape.name is not None else {}
        if shape.id is not None:
            captures[shape.id] = call.id
        return spell(delimiter.nodes, captures) if delimiter else ""

    def _object_of(self, call: WrittenCall) -> str:
        if self._dialect.delimiters or self._dialect.unquoted_keys:
            raise ValueError("the metadata says how to read this format's JSON dialect, not how to write it")
        keys = self._shape.keys
        if self._shape.is_named and not self._shape.arguments_in_content:
            return call.arguments
        arguments = f"{dumps(keys.arguments[0])}: {call.arguments}"
        return (
            f"{{{arguments}}}"
            if self._shape.is_named
            else f"{{{dumps(keys.name[0])}: {dumps(call.name)}, {arguments}}}"
        )


def _boundary(keys: CallKeys, marks: tuple[str, ...]) -> Callable[[str, int], re.Match[str] | None]:
    """Compile the ends of a broken member of a list: the next member, which begins with a call's key, or a mark."""
    known = "|".join(re.escape(key) for key in (*keys.name, *keys.arguments, *keys.id, "type", "function"))
    following = rf'\}}[ \t\r\n]*+,(?=[ \t\r\n]*+\{{[ \t\r\n]*+"(?:{known})")'
    return re.compile("|".join([following, *map(re.escape, marks)])).search
