"""The driver for Harmony: headers and end marks around every message."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from hermes_core.contracts.parsing import ParseMode, ToolSchema
from hermes_parsers.engine.scanning.scan import MISSING_NAME, SPACE, TRUNCATED, Draft, cut, skip_space
from hermes_parsers.engine.scanning.spans import Span
from hermes_parsers.engine.scanning.stream import ScanStream
from hermes_parsers.families.special_tokens.named_json import END, SPACES, wait

if TYPE_CHECKING:
    from hermes_parsers.engine.scanning.parser import ScanningParser

START: Final = "<|start|>"
CHANNEL: Final = "<|channel|>"
MESSAGE: Final = "<|message|>"
CALL_END: Final = "<|call|>"
ENDS: Final = (CALL_END, "<|end|>", "<|return|>")

_TOKENS: Final = (START, CHANNEL, "<|constrain|>", MESSAGE)
_WORDS: Final = r"[^<\n]{0,256}+"
_ROLE: Final = r"(?>assistant)?+[ \t]*+(?>to=[^\s<]{0,256}+)?+\s*+"
"""Matches the possible beginnings of a text whose prompt ends with `<|start|>assistant` or `<|start|>`."""
_FIRST: Final = (
    rf"(?><\|(?:channel|constrain)\|>{_WORDS}(?>\n\s*+(?=<|{END}))?+|<\|start\|>(?>{_ROLE}(?=<|{END})|{_WORDS}))"
)
_PIECES: Final = rf"(?>{_FIRST}){{0,8}}+"
_BEGUN: Final = rf"{_FIRST}(?>{_FIRST}){{0,7}}+"
_MESSAGE: Final = re.escape(MESSAGE)


def _beginnings(marks: Sequence[str]) -> str:
    sizes = {mark[1:size] for mark in marks for size in range(1, len(mark))}
    return f"<(?:{'|'.join(re.escape(rest) for rest in sorted(sizes, key=len, reverse=True))})"


_PARTIAL: Final = _beginnings(_TOKENS)
# Each alternative begins with the same character, which makes the search fast.
PATTERN: Final = rf"{_BEGUN}(?:{_MESSAGE}|(?>{_PARTIAL})?+{END})|{_MESSAGE}|{_PARTIAL}\Z"
HEAD: Final = rf"{SPACES}({_ROLE}{_PIECES}{_MESSAGE}{SPACES})"
CUT_HEAD: Final = rf"{SPACES}({_ROLE}{_PIECES}(?:(?>{_PARTIAL})?+\Z|{_MESSAGE}{SPACES}\Z))"
_TO: Final = r"to=(?!(?:assistant|user|all)[\s<])([^\s<]++)"
USUAL_HEAD: Final = (
    rf" ?+((?><\|start\|>assistant(?: |(?=<)))?+(?>{_TO})?+<\|channel\|>(?:commentary|analysis)(?> {_TO})?+ ?+"
    rf"(?>(?><\|constrain\|>)?+json)?+{_MESSAGE})(?=\{{)"
)
"""The header of a call in the forms that the model writes; the name is the second or third group."""
# The fixed words come first, with lookbehinds for what may precede them, which makes the search fast.
RECIPIENT: Final = re.compile(r"to=(?<![^\s>]to=)([^\s<]++)").search

_USUAL_HEAD: Final = re.compile(USUAL_HEAD).match
_HEADER: Final = re.compile(rf"{_PIECES}{_MESSAGE}").match
_CUT_HEADER: Final = re.compile(rf"(?>{_BEGUN})?+(?>{_PARTIAL})?+\Z").match
_CHANNEL_AND_WORD: Final = r"(?:analysis|commentary|final)[ ]++[a-z=]*+"
_USUAL_CUT_HEADER: Final = re.compile(
    rf"(?><\|start\|>[a-z]*+)?+(?><\|channel\|>(?>{_CHANNEL_AND_WORD}|[a-z]*+[ ]?+))?+(?>{_PARTIAL})?+\Z"
).match
_ROLE_ONLY: Final = re.compile(rf"{SPACES}{_ROLE}").fullmatch
_CUT_ROLE: Final = re.compile(
    rf"{SPACES}(?:{cut('assistant')}|(?>assistant)?+[ \t]*+(?:{cut('to=')}|(?>to=[^\s<]{{0,256}}+)?+\s*+\Z))"
).match
_USUAL: Final = r"(?:<\|start\|>\s*assistant\b|<\|channel\|>\s*(?:analysis|commentary|final)\b)"
_IS_USUAL: Final = re.compile(_USUAL).match
_BREAK: Final = re.compile(rf"<\|(?:call|end|return)\|>|(?={_USUAL}){_BEGUN}{_MESSAGE}").search
_CUT_BREAK: Final = re.compile(rf"{_BEGUN}(?>{_PARTIAL})?+\Z|{_beginnings((*_TOKENS, *ENDS))}\Z").search
_REASONING: Final = re.compile(r"<\|channel\|>\s*analysis\b").search
_FINAL: Final = re.compile(r"<\|channel\|>\s*final\b").search
_MEANS_CALL: Final = re.compile(
    r"(?<![^\s>])to=(?:[\s<]|\Z)|<\|constrain\|>|<\|channel\|>\s*commentary\s[^<]*\bjson\b"
).search
"""Parts that only the header of a call has: `to=`, even without a recipient, or the type of the arguments."""
_MAY_BE_ARGUMENTS: Final = ("{", "[", '"', "<")
_END: Final = re.compile(r"<\|(?:call|end|return)\|>").match
_NO_TOOLS: Final = ("assistant", "user", "all")


class HarmonyStream(ScanStream):
    """Treats the text around messages as framing, and tells the messages apart by their headers."""

    own_blocks: ClassVar[bool] = True

    def __init__(self, parser: ScanningParser, tools: Sequence[ToolSchema] | None, mode: ParseMode) -> None:
        super().__init__(parser, tools, mode)
        self._is_text = False
        """Whether the open message is content."""
        self._framing: Span | None = None
        """The last separate segment of framing."""

    def _block(self, told: int, start: int) -> Generator[str, None, int]:
        scan = self._scan
        if told == start and (usual := _USUAL_HEAD(scan.text, start)) and (usual[2] or usual[3]):
            self._is_text = False
            return (yield from super()._block(told, start))
        if ended := _END(scan.text, start):
            return self._end(told, start, ended.end())
        is_first = self._is_between() and (told == start or _ROLE_ONLY(scan.text, told, start) is not None)
        header = _HEADER(scan.text, start)
        if not header:
            yield from wait(scan, _CUT_HEADER, start)
            header = _HEADER(scan.text, start)
        if header:
            return (yield from self._message(told, start, header, is_first=is_first))
        return (yield from self._cut(told, start, is_first=is_first))

    def _cut(self, told: int, start: int, *, is_first: bool) -> Generator[str, None, int]:
        """Read a header that the end of the text cut off, unless it belongs to prose."""
        text = self._scan.text
        if not _CUT_HEADER(text, start):
            return -1
        begin = told if is_first else start
        if _names_tool(text[begin:]):
            return (yield from super()._block(told, begin))
        if _means_call(text[begin:]):
            self._report(told, begin, len(text), "the text ends inside the header of a call").status = TRUNCATED
            return len(text)
        if not is_first or not _USUAL_CUT_HEADER(text, start):
            return -1
        self._frame(told, len(text))
        return len(text)

    def _message(self, told: int, start: int, header: re.Match[str], *, is_first: bool) -> Generator[str, None, int]:
        """Begin a message, or read it if it is a call or reasoning; return where that ended."""
        if not is_first and not _IS_USUAL(header[0]):  # in the middle of text, a malformed one is text about headers
            return -1
        begin, end = told if is_first else start, header.end()
        words = self._scan.text[begin:end]
        if _names_tool(words):
            self._is_text = False
            return (yield from super()._block(told, begin))
        if not _FINAL(words) and (after := (yield from self._nameless(told, begin, end))) >= 0:
            self._is_text = False
            return after
        self._text(told, begin)
        self._is_text = not _REASONING(words)
        if not self._is_text:
            return (yield from self._reasoning(begin, end))
        self._frame(begin, end)
        return end

    def _nameless(self, told: int, begin: int, body: int) -> Generator[str, None, int]:
        """Report a message that is a call by its header or end mark but names no tool; -1 if it is not one.

        Only possible arguments are held back until the end mark: other text is emitted as it arrives.
        """
        scan = self._scan
        is_meant = _means_call(scan.text[begin:body])
        at = body if is_meant else (yield from skip_space(scan, body))
        if not is_meant and not scan.text.startswith(_MAY_BE_ARGUMENTS, at):
            return -1
        found = yield from self._find_end(body)
        if not is_meant and (found is None or found[0] != CALL_END):
            return -1
        end = self._ends_at(found)[1]
        self._report(told, begin, end, "the header of the call names no tool")
        return end

    def _report(self, told: int, start: int, end: int, reason: str) -> Draft:
        """Accept an attempt without a tool's name."""
        draft = Draft(start, end, MISSING_NAME, reason=reason)
        self._take(draft, told, start, is_first=True)
        return draft

    def _end(self, told: int, start: int, after: int) -> int:
        """End the open message; an end mark elsewhere is text."""
        if self._is_text and self._scan.text.startswith(CALL_END, start):
            self._report(told, start, after, "a message ends as a call does, and its header names no tool")
        elif self._is_text:
            self._text(told, start)
            self._frame(start, after)
        elif self._spans and self._is_between(told, start):
            self._frame(told, after)
        else:
            return -1
        self._is_text = False
        return after

    def _is_between(self, start: int = 0, end: int = 0) -> bool:
        """Whether this place is between messages, or before the first, with at most space from `start` to `end`."""
        is_outside = not self._is_text and (not self._spans or self._spans[-1].kind != "text")
        return is_outside and _end_of_space(self._scan.text, start) >= end

    def _frame(self, start: int, end: int) -> None:
        """Add framing to the reasoning or the call before it, or as a separate segment."""
        if self._spans and self._spans[-1].kind != "text":
            self._spans[-1].end = self._base + end
        else:
            self._framing = Span("reasoning", self._base + start, self._base + end)
            self._spans.append(self._framing)

    def _join(self) -> None:
        """Let the last segment take over the framing before it."""
        if len(self._spans) > 1 and self._spans[-2] is self._framing:
            self._spans[-1].start = self._framing.start
            del self._spans[-2]

    def _take(self, draft: Draft, told: int, start: int, *, is_first: bool) -> None:
        super()._take(draft, told, start, is_first=is_first)
        self._join()

    def _reasoning(self, told: int, body: int) -> Generator[str, None, int]:
        scan = self._scan
        found = yield from self._find_end(body)
        stop, end = self._ends_at(found)
        is_call = found is not None and found[0] == CALL_END
        self._add_thought(self._base + told, self._base + (stop if is_call else end), scan.text[body:stop])
        self._join()
        if is_call:
            self._report(stop, stop, end, "a message ends as a call does, and its header names no tool")
        return end

    def _find_end(self, at: int) -> Generator[str, None, re.Match[str] | None]:
        """Return the end mark of a message with text from `at`, or the next header; None at the end of the text."""
        scan = self._scan
        while (found := _BREAK(scan.text, at)) is None and not scan.final:
            begun = _CUT_BREAK(scan.text, at)
            at = len(scan.text) if begun is None else begun.start()
            yield ">"
        return found

    def _ends_at(self, found: re.Match[str] | None) -> tuple[int, int]:
        """Return where a message's text ends, and the message."""
        if found is None:
            return len(self._scan.text), len(self._scan.text)
        return found.start(), found.end() if found[0] in ENDS else found.start()

    def _let_go(self, told: int) -> tuple[int, int]:
        scan = self._scan
        if not self._is_between() or not _CUT_ROLE(scan.text, told):
            return super()._let_go(told)
        self._base += told
        scan.last_told = scan.text[told - 1] if told else scan.last_told
        scan.text = scan.text[told:]
        scan.resume = 0
        return 0, max(0, len(scan.text) - self._parser.marks.longest)


def _end_of_space(text: str, at: int) -> int:
    return SPACE(text, at).end()  # type: ignore[union-attr]  # the pattern matches everywhere


def _names_tool(header: str) -> bool:
    recipient = RECIPIENT(header)
    return recipient is not None and recipient[1] not in _NO_TOOLS


def _means_call(header: str) -> bool:
    """Whether a header without a recipient still belongs to a call."""
    return _FINAL(header) is None and _MEANS_CALL(header) is not None
