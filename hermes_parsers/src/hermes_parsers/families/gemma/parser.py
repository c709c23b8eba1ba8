"""Gemma 4 and FunctionGemma: `call:name{key:value,…}` between marks, strings between quote tokens.

The values follow the models' chat templates: bare keys, `null` and Python's `None`, no escapes in strings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Final

from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.engine.scanning.parser import ScanningParser
from hermes_parsers.engine.scanning.scan import (
    INVALID_JSON,
    OK,
    REPAIRED,
    TRUNCATED,
    Draft,
    Marks,
    Scan,
    Wait,
    cut,
    sees,
    skip_space,
)
from hermes_parsers.engine.scanning.stream import ScanStream
from hermes_parsers.engine.values.declared_texts import declared_parameters, lacks_texts
from hermes_parsers.engine.values.quoted_strings import LiteralError
from hermes_parsers.families.framing.brackets import judge_extra, pass_run
from hermes_parsers.families.gemma.final_channel import FINAL_CHANNEL, ChannelStream
from hermes_parsers.families.gemma.object_syntax import ObjectReader, compile_member, find_end, read_tidy_object
from hermes_parsers.writing import dumps

_SPACES: Final = r"[ \t\r\n]*+"
_NAME: Final = r"\w[\w.-]*+"
_BARE_KEY: Final = re.compile(r"\w[\w.$@/ -]*+(?<! )")
_EXTRA: Final = re.compile(r"(?:[}\]][}\] \t\r\n]*+)?")


def _body(closer: str) -> str:
    """Match what must follow the opening mark; models may omit the word (`<|tool_call>:f{…}`)."""
    no_arguments = rf"{re.escape(closer)}|{cut(closer)}"
    rest = rf":[ \t]*+(?:(?>{_NAME})?+{_SPACES}(?:\{{|\Z)|{_NAME}(?:\(|{_SPACES}(?:{no_arguments})))"
    return rf"{_SPACES}(?:c(?:a(?:l(?:l(?:{rest}|\Z)|\Z)|\Z)|\Z)|{rest}|\Z)"


@cache
def _head(closer: str) -> re.Pattern[str]:
    """Compile the text before the arguments; the group that holds the name says how the arguments are written.

    The first: between braces; the second: between parentheses; the third: not at all.
    """
    empty = rf"({_NAME})(?={_SPACES}{re.escape(closer)})"
    return re.compile(rf"{_SPACES}(?>call)?+:[ \t]*+(?:({_NAME})?{_SPACES}\{{|({_NAME})\(|{empty})")


_PARENTHESES: Final = 2
_NOTHING: Final = 3


class GemmaParser(ScanningParser):
    """`<|tool_call>call:f{a:<|"|>x<|"|>,n:42}<tool_call|>`, with reasoning in a separate channel."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<turn|>", "<|tool_response>")
    stream_type: ClassVar[type[ScanStream]] = ChannelStream
    pattern: ClassVar[str] = FINAL_CHANNEL
    openers: ClassVar[tuple[str, ...]] = ("<|tool_call>",)
    closer: ClassVar[str] = "<tool_call|>"
    body: ClassVar[str] = _body(closer)
    quote: ClassVar[str] = '<|"|>'
    """The mark on both sides of a string; a string cannot contain it."""
    null: ClassVar[str] = "null"
    """How null is written: like this by the fifth template of Gemma 4, as `None` by earlier ones."""
    reasoning_tags: ClassVar[tuple[str, str] | None] = ("<|channel>thought", "<channel|>")
    reasons_again: ClassVar[bool] = True
    reasoning_end: ClassVar[str] = ""

    def block_marks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the marks around a call."""
        return self.openers, (self.closer,)

    def prepare(self) -> None:
        """Compile the patterns for reading."""
        self._ends = Marks((self.closer, *self.openers))
        self._member = compile_member(self.quote)
        self._head = _head(self.closer)

    def _call_head(self, text: str, at: int) -> re.Match[str] | None:
        opener = self.openers[0]
        return self._head.match(text, at + len(opener)) if text.startswith(opener, at) else None

    def read_now(self, scan: Scan, at: int) -> int:
        """Read one call from complete text."""
        head = self._call_head(scan.text, at)
        if head is None:
            return -1
        brace = head.end() - 1
        draft = read_tidy_object(scan.text, brace, self.quote, at, head[1]) if head[1] else None
        schemas = declared_parameters(scan.tools, _name(head))
        if draft is None or lacks_texts(draft.value, schemas):
            try:
                draft = self._draft(scan, at, head, schemas)
            except LiteralError as error:
                return _run(self._recover(scan, at, head, error))
        if scan.text.startswith(self.closer, draft.end):
            draft.end += len(self.closer)
            scan.drafts.append(draft)
            return draft.end
        return _run(self._close(scan, draft))

    def read(self, scan: Scan, at: int) -> Wait:
        """Read one call as its text arrives."""
        head = self._call_head(scan.text, at)
        if head is None:
            return -1
        schemas = declared_parameters(scan.tools, _name(head))
        while True:
            try:
                draft = self._draft(scan, at, head, schemas)
            except LiteralError as error:
                if scan.final or not error.is_truncated:
                    return (yield from self._recover(scan, at, head, error))
            else:
                return (yield from self._close(scan, draft))
            yield "}"

    def _draft(self, scan: Scan, start: int, head: re.Match[str], schemas: Mapping[str, Any]) -> Draft:
        """Read the arguments of a call, and build its draft. Raises LiteralError."""
        name = _name(head)
        if head.lastindex == _NOTHING:
            return Draft(start, head.end(), OK, name, "{}", {}, "no arguments are written")
        make: type[ObjectReader] = ObjectReader
        if head.lastindex == _PARENTHESES:
            from hermes_parsers.families.gemma.parentheses import ParenthesesReader

            make = ParenthesesReader
        reader = make(scan.text, self.quote, self._member, is_lenient=scan.lenient, schemas=schemas)
        value, end = reader.read(head.end() - 1)
        draft = Draft(start, end, OK, name, dumps(value), value)
        if head.lastindex == _PARENTHESES:
            reader.notes["the arguments stand in parentheses"] = None
        draft.reason = "; ".join(reader.notes)
        if reader.repairs:
            draft.fail(REPAIRED, f"repaired: {', '.join(reader.repairs)}")
        return draft

    def _close(self, scan: Scan, draft: Draft) -> Wait:
        after = yield from skip_space(scan, draft.end)
        behind = yield from pass_run(scan, _EXTRA, after)
        if behind > after and (yield from sees(scan, self.closer, behind)):
            after = behind
            judge_extra(scan, draft)
        if (yield from sees(scan, self.closer, after)):
            draft.end = after + len(self.closer)
        else:
            draft.cut(f"the closing {self.closer} is missing")
        scan.drafts.append(draft)
        return draft.end

    def _recover(self, scan: Scan, start: int, head: re.Match[str], error: LiteralError) -> Wait:
        """Find where an unreadable call ends: where its braces balance, or else at the next mark."""
        marks = (self.closer, *self.openers)
        end: int | None = -1
        while head.lastindex != _PARENTHESES:
            end = find_end(scan.text, head.end(), self.quote, marks)
            if end is not None or scan.final:
                break
            # Every mark ends with this character, and nothing is decided without a mark.
            yield ">"
        after = -1 if end is None or end < 0 else (yield from skip_space(scan, end))
        if after < 0 or not (yield from sees(scan, self.closer, after)):
            # The braces may be wrong as well, and if a quote is missing, strings cannot be trusted.
            ends = self._ends
            found = ends.search(scan.text, head.end()) if scan.final else (yield from ends.seek(scan, head.end()))
            after = len(scan.text) if found is None else found.start()
        is_closed = scan.text.startswith(self.closer, after)
        end = after + len(self.closer) if is_closed else after
        draft = Draft(start, end, INVALID_JSON, _name(head), reason=str(error))
        if after == len(scan.text) and error.is_truncated:
            draft.status, draft.reason = TRUNCATED, "the text ends inside the call"
        scan.drafts.append(draft)
        return draft.end

    def write(self, content: str, calls: Sequence[WrittenCall]) -> str:
        """Write calls before content, as the template does: the content comments on the calls' results."""
        return self.write_calls(calls) + content

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write one call."""
        return f"{self.openers[0]}call:{call.name}{self._write_value(call.value)}{self.closer}"

    def _write_value(self, value: Any) -> str:
        if isinstance(value, str):
            return f"{self.quote}{value}{self.quote}"
        if value is None:
            return self.null
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, dict):
            # Jinja's dictsort: by key, ignoring case.
            members = sorted(value.items(), key=lambda member: str(member[0]).lower())
            return f"{{{','.join([f'{self._write_key(key)}:{self._write_value(item)}' for key, item in members])}}}"
        if isinstance(value, list | tuple):
            return f"[{','.join([self._write_value(item) for item in value])}]"
        return str(value)

    def _write_key(self, key: str) -> str:
        """Write a bare key. The template writes any key so, but not every key could be read back."""
        return key if _BARE_KEY.fullmatch(key) else f"{self.quote}{key}{self.quote}"


def _name(head: re.Match[str]) -> str | None:
    return head[head.lastindex] if head.lastindex else None


def _run(reader: Wait) -> int:
    """Return the result of a reader that does not need to wait."""
    try:
        next(reader)
    except StopIteration as stop:
        end: int = stop.value
        return end
    raise AssertionError("a reader waited for more text after the end")


class FunctionGemmaParser(GemmaParser):
    """`<start_function_call>call:f{a:<escape>x<escape>}<end_function_call>`, without reasoning in the template."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<end_of_turn>", "<start_function_response>")
    stream_type: ClassVar[type[ScanStream]] = ScanStream
    pattern: ClassVar[str] = ""
    openers: ClassVar[tuple[str, ...]] = ("<start_function_call>",)
    closer: ClassVar[str] = "<end_function_call>"
    body: ClassVar[str] = _body(closer)
    quote: ClassVar[str] = "<escape>"
    null: ClassVar[str] = "None"
    reasoning_tags: ClassVar[tuple[str, str] | None] = ("<think>", "</think>")
    reasons_again: ClassVar[bool] = False

    def write(self, content: str, calls: Sequence[WrittenCall]) -> str:
        """Write content and calls."""
        return content + self.write_calls(calls)
