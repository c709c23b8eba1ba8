r"""Mistral: `[TOOL_CALLS]`, in the forms of all its tokenizers; the text itself shows which form it has.

Up to v7 an array, `[TOOL_CALLS] [{"name": "f", "arguments": {…}, "id": "abcdefghi"}]`, with a space in SentencePiece
tokenizers and none in Tekken. v11 writes `[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{…}` and v13 `[TOOL_CALLS]f[ARGS]{…}`,
with the mark before each call; without special tokens, `f{…}` remains. The source is mistral-common.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final
from zlib import adler32, crc32

from hermes_parsers.engine.scanning.closed_blocks import unread_reason
from hermes_parsers.engine.scanning.scan import (
    INVALID_JSON,
    TRUNCATED,
    UNDECIDED,
    Draft,
    Marks,
    Scan,
    Wait,
    cut,
    sees,
)
from hermes_parsers.engine.values.error_recovery import broken_call
from hermes_parsers.engine.values.json_calls import Match, set_arguments
from hermes_parsers.engine.values.json_text import JsonError, value_at
from hermes_parsers.families.json.json_array import JsonArrayParser
from hermes_parsers.families.special_tokens.named_json import END, SPACES, NamedJsonParser, wait

if TYPE_CHECKING:
    from hermes_parsers.engine.rendering import WrittenCall

_MARK: Final = r"\[TOOL_CALLS\]"
_NAME: Final = r"[\w.\-/:]{1,256}+"
_ID: Final = r"[\w\-]{1,64}+"
_GAP: Final = r"\s*+"
_CALL_ID: Final = rf"(?>{_GAP}\[CALL_ID\]{_GAP}({_ID}))?+"
_WORDS: Final = ("null", "true", "false")
"""JSON values that are not arguments, such as numbers and strings: after [ARGS] they were meant as arguments."""
_MARKED: Final = rf"{_GAP}\[ARGS\]{_GAP}(?=[{{\[\"]|-?+[0-9]|{'|'.join(_WORDS)})"
# Without [ARGS] a name and a brace may be prose, so the brace must follow at once or begin a JSON object.
_ARGS: Final = rf"(?:{_MARKED}|(?=\{{)|{_GAP}(?=\{{{_GAP}[\"'}}]))"
_CUT: Final = (
    rf"(?>{_GAP}\[CALL_ID\]{_GAP}{_ID})?+{_GAP}"
    rf"(?:{cut('[ARGS]')}|{cut('[CALL_ID]')}|\[CALL_ID\]{_GAP}\Z|\[ARGS\]{_GAP}[\"\-]?+{_GAP}\Z|\{{{_GAP}\Z|"
    rf"\[ARGS\]{_GAP}(?:{'|'.join(map(cut, _WORDS))}))"
)
_CUT_FOR_GOOD: Final = _CUT.replace(r"\Z", END)
_MARKS: Final = r"\[(?:ARGS|CALL_ID)\]"
_CUT_BEHIND_MARK: Final = rf"(?={_GAP}{_MARKS}){_CUT_FOR_GOOD}"
"""The end of the text after a mark that only calls have, even without a name before it."""
_MODEL_ID: Final = re.compile(r"[A-Za-z0-9]{9}").fullmatch
_WORD: Final = re.compile(rf"{'|'.join(_WORDS)}|[0-9.eE+\-]++").match
_CUT_NUMBER: Final = re.compile(r"[0-9.eE+\-]++\Z").match
_STRING: Final = re.compile(r'"(?>[^"\\]++|\\.)*+"', re.DOTALL).match
_OPENER: Final = "[TOOL_CALLS]"
_ARGUMENTS: Final = "[ARGS]"
_BLOCK_MARKS: Final = Marks((_OPENER, _ARGUMENTS))
_ARRAY: Final = re.compile(rf"(?>{_MARK}{SPACES}(?={_MARK}))?+({_MARK}{SPACES}(?=\[{SPACES}\{{|\{{))").match
_CUT_ARRAY: Final = re.compile(rf"(?>{_MARK}{SPACES}){{1,2}}+(?:{cut(_OPENER)}|\[{SPACES}\Z)").match
_ITEM_END: Final = re.compile(rf'{SPACES}(?>,{SPACES}"id"{SPACES}:{SPACES}"([A-Za-z0-9]++)"{SPACES})?+\}}').match


class _MistralArrayParser(JsonArrayParser):
    openers: ClassVar[tuple[str, ...]] = (_OPENER,)
    closers: ClassVar = {_OPENER: ""}

    def plain_patterns(self) -> tuple[Match, Match]:
        """Compile the text around the arguments; the id may follow them."""
        return super().plain_patterns()[0], _ITEM_END


class MistralParser(NamedJsonParser):
    """Reads all of these forms; writes that of v13 and later, which has no place for an id."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("</s>",)
    openers: ClassVar[tuple[str, ...]] = (_OPENER,)
    body: ClassVar[str] = (
        rf"{_NAME}{_CUT_FOR_GOOD}|{_GAP}(?>{_MARK}{_GAP})?+"
        rf"(?:{cut(_OPENER)}|\[{SPACES}(?:\{{|\Z)|\{{{SPACES}(?:[\"'}}]|\Z)|{_CALL_ID}{_MARKED}|{_CUT}|"
        rf"{_NAME}(?:{_CALL_ID}{_ARGS}|{_CUT})|(?>{_NAME})?+{_CUT_BEHIND_MARK})"
    )
    head: ClassVar[str] = rf"((?>{_MARK}{_GAP}){{1,2}}+(?>({_NAME}))?+{_CALL_ID}(?(2){_ARGS}|{_MARKED}))"
    cut_head: ClassVar[str] = rf"(?>{_MARK}{_GAP}){{1,2}}+(?:{cut(_OPENER)}|({_NAME}{_CUT}|(?={_MARKS}){_CUT}))"
    breaks: ClassVar[tuple[str, ...]] = (_OPENER,)
    reasoning_tags: ClassVar[tuple[str, str] | None] = ("[THINK]", "[/THINK]")
    reasons_again: ClassVar[bool] = True
    reasoning_framing: ClassVar[tuple[str, str]] = ("", "")
    reasoning_end: ClassVar[str] = ""

    def prepare(self) -> None:
        """Compile the patterns for reading."""
        super().prepare()
        self._array = _MistralArrayParser()

    def block_marks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the marks around a call's name: both are special tokens, and nothing closes the arguments."""
        return self.openers, (_ARGUMENTS,)

    def read_block(self, scan: Scan, at: int, end: int = UNDECIDED) -> Wait:
        """Read a block like `read`, and report text that cannot be read as a call."""
        if end == UNDECIDED:
            end = yield from self._read_calls(scan, at)
        return end if end >= 0 else (yield from self._read_unread(scan, at))

    def _read_unread(self, scan: Scan, at: int) -> Wait:
        """Report an invalid name or arguments, up to the next call; -1 for marks in prose, with space around."""
        body = at + len(_OPENER)
        if (yield from sees(scan, _OPENER, body)):
            body += len(_OPENER)
        found = _BLOCK_MARKS.sure(scan.text, body) if scan.final else (yield from _BLOCK_MARKS.seek(scan, body))
        if found is None or found[0] == _OPENER or scan.is_quoted(at, at + len(_OPENER)):
            return -1
        name = scan.text[body : found.start()]
        if not name or name != name.strip():
            return -1
        reason = unread_reason(_OPENER, name, _ARGUMENTS)
        found = yield from self._ends.marks.seek(scan, found.end())
        end = len(scan.text) if found is None else found.start()
        scan.drafts.append(Draft(at, end, INVALID_JSON, reason=reason))
        return end

    def is_left(self, scan: Scan, at: int, end: int) -> bool:  # noqa: ARG002 - the base's signature
        """Whether a call was read: no mark follows its arguments."""
        return end >= 0

    def read_now(self, scan: Scan, at: int) -> int:
        """Read an array of calls, or one call with its name before the arguments."""
        if array := _ARRAY(scan.text, at):
            return self._array.read_now(scan, array.start(1))
        end = self._read_plain(scan, at)
        return end if end >= 0 else UNDECIDED

    def _read_call(self, scan: Scan, at: int) -> Wait:
        """Read an array of calls, or one call with its name before the arguments."""
        if not scan.final:
            yield from wait(scan, _CUT_ARRAY, at)
        if array := _ARRAY(scan.text, at):
            return (yield from self._array.read(scan, array.start(1)))
        return (yield from super()._read_call(scan, at))

    def _read_other(self, scan: Scan, head: re.Match[str]) -> Wait:
        """Read arguments that are JSON in a string, as templates that dump a string twice write them."""
        start, at = head.start(1), head.end()
        if scan.text[at] != '"':
            yield from wait(scan, _CUT_NUMBER, at)
            word = _WORD(scan.text, at)
            assert word is not None
            return self._hand_in(scan, head, _word_for_arguments(start, at, word[0]))
        while not (found := _STRING(scan.text, at)) and not scan.final:
            yield '"'
        draft = Draft(start, len(scan.text), TRUNCATED, reason="the text ends inside the call")
        if found:
            draft = Draft(start, found.end())
            set_arguments(draft, scan.text, _value_or_text(found[0]), -1, -1)
        mark = None if draft.is_good else self._ends.marks.search(scan.text, at, draft.end)
        if mark:  # if a quote is missing, the string does not reach into the next call
            draft = broken_call(start, mark.start(), INVALID_JSON, JsonError("a string does not end", at))
        return self._hand_in(scan, head, draft)

    def draft(self, scan: Scan, head: re.Match[str], end: int) -> Draft:  # noqa: ARG002 - the base's signature
        """Read the id as well, if there is one."""
        return Draft(head.start(1), end, name=head[2], id=head[3])

    def accepts_id(self, written: str) -> bool:
        """Accept the ids that Mistral's servers accept."""
        return _MODEL_ID(written) is not None

    def make_id(self, name: str, arguments: str, salt: int) -> str:
        """Make an id of nine letters and digits from the call."""
        seed = f"{salt} {name} {arguments}".encode("utf-8", "surrogatepass")
        return f"{crc32(seed) << 4 | adler32(seed) & 15:09x}"

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write the name and the arguments."""
        return f"{_OPENER}{call.name}[ARGS]{call.arguments}"


def _word_for_arguments(start: int, at: int, word: str) -> Draft:
    """Read null as no arguments, like all families."""
    if word == "null":
        return Draft(start, at + len(word), arguments="{}", value={})
    return Draft(start, at + len(word), INVALID_JSON, reason=f"expected an object as arguments, got {word}")


def _value_or_text(text: str) -> Any:
    try:
        return value_at(text, 0)[0]
    except JsonError:
        return text
