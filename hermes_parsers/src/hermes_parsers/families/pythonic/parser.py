"""Lists of calls written as Python: Llama 3.2, ToolACE and Llama 4, without and with marks around the list."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.engine.scanning.parser import ScanningParser
from hermes_parsers.engine.scanning.scan import (
    INVALID_JSON,
    OK,
    REPAIRED,
    TRUNCATED,
    UNDECIDED,
    Draft,
    Scan,
    Wait,
    skip_space,
)
from hermes_parsers.engine.scanning.stream import ScanStream
from hermes_parsers.engine.values.declared_texts import declared_parameters, lacks_texts
from hermes_parsers.engine.values.quoted_strings import LiteralError
from hermes_parsers.families.framing.brackets import (
    ListStream,
    goes_on_behind,
    is_code_behind,
    is_whole,
    judge_extra,
    pass_run,
)
from hermes_parsers.families.framing.code_fences import CUT_FENCE_LINE, FENCE, FENCE_LINE, fence_line, read_fenced
from hermes_parsers.families.pythonic.call_syntax import (
    ARGUMENTS_OPEN,
    NAME,
    SPACES,
    Ahead,
    PythonCall,
    Walk,
    read_tidy_call,
)
from hermes_parsers.families.pythonic.list_syntax import (
    BARE,
    CUT_ARGUMENTS,
    CUT_BARE,
    CUT_TAGGED,
    FURTHER,
    TAGGED,
    Follow,
    Following,
    cut_short,
    is_code,
    judge_depth,
    lists_opened,
    read_item,
    second_end,
    wait_for_second_end,
)
from hermes_parsers.families.pythonic.unescaped_quotes import has_quotes, read_loosely
from hermes_parsers.schemas import known_names
from hermes_parsers.writing import dumps

MARKED: Final = rf"{SPACES}(?>\[{SPACES})?+"
"""The text allowed between an opening mark and the first call."""
# The text accepted between two calls, written by mistake: at most a few words.
_BEYOND: Final = r"""[^\[\](){}'"]{0,80}+"""
_GOES_ON: Final = re.compile(rf"({_BEYOND}){ARGUMENTS_OPEN}")
_CUT_GOES_ON: Final = re.compile(rf"{_BEYOND}(?:{CUT_ARGUMENTS})?\Z")
_LAST_NAME: Final = re.compile(r"\w[\w.-]*\Z")
# The number of brackets and strings of a broken call that are searched for its end; fewer after some such calls.
_FEW: Final = 8
_MANY: Final = 512
_FEWER: Final = 64
_BRACKETS: Final = re.compile(r"[)}]*+")
_LINE_ENDS: Final = re.compile(r"[ \t]*+(?:[\r\n<]|\Z)")
_CUT_LINE: Final = re.compile(r"[ \t]*+\Z")


class PythonicParser(ScanningParser):
    """`[f(a='x', n=1), g()]`, anywhere in a text.

    Keywords distinguish a list of calls from other code in prose; a list with positional arguments is text.
    """

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|eot_id|>", "<|eom_id|>")
    stream_type: ClassVar[type[ScanStream]] = ListStream
    pattern: ClassVar[str] = (
        rf"{BARE}|{CUT_BARE}|{TAGGED}{BARE}|{CUT_TAGGED}|{FENCE_LINE}(?:{BARE}|{CUT_BARE}|\Z)|{CUT_FENCE_LINE}"
    )
    head: ClassVar[re.Pattern[str]] = re.compile(rf"(?>{TAGGED})?+{BARE}")
    """The beginning of a list, up to the first call."""
    separator: ClassVar[str] = ","
    closer: ClassVar[str] = ""
    """The mark after the list."""
    quotes_loosely: ClassVar[bool] = True
    """Whether the template may leave quotes inside strings unescaped."""
    needs_closer: ClassVar[bool] = False
    """Whether the closing mark ends the list; otherwise its bracket does."""

    def block_marks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the marks around a list, if the format has any."""
        return (self.openers, (self.closer,)) if self.closer else ((), ())

    def prepare(self) -> None:
        """Compile the patterns for reading."""
        mark = re.escape(self.closer) or "(?!)"
        self._following = Following(self.separator, self.closer, needs_closer=self.needs_closer)
        marks = [re.escape(mark) for mark in (self.closer, *self.openers) if mark and self.needs_closer]
        ends = [rf"\)({SPACES},{SPACES})(?=({NAME}){ARGUMENTS_OPEN})", *marks]
        if not self.needs_closer:
            ends.append(rf"\){SPACES}\](?>{SPACES}\])*+(?:{SPACES}{mark}|(?=[ \t]*+[\r\n]))")
        self._resume = re.compile("|".join(ends))
        self._stop = re.compile(rf"[)\]]|{mark}").search

    def read_now(self, scan: Scan, at: int) -> int:
        """Read a list written like the template's, or an unreadable first call before the next list."""
        text = scan.text
        head = self.head.match(text, at)
        is_bare = text.startswith("[", at)
        if head is None or (is_bare and is_code(scan, at, head.end())):
            return UNDECIDED if text.startswith(FENCE, at) else -1
        drafts, place, depth = list[Draft](), head.end(), head[0].count("[")
        while (draft := read_tidy_call(text, at, place)) is not None:
            if scan.tools and lacks_texts(draft.value, declared_parameters(scan.tools, draft.name)):
                return UNDECIDED
            drafts.append(draft)
            found, at = self._following.tell(scan, draft.end, depth) or ("cut", at)
            place = at
            depth += lists_opened(text[draft.end : at])
            if found == "end" and not self.needs_closer and (depth or self._may_be_cut(text, at)):
                return UNDECIDED
            if found == "end" and (not is_bare or self._is_plainly_a_list(scan, drafts, at)):
                draft.end = at
                scan.drafts += drafts
                return at
            if found != "next":
                return UNDECIDED
        return self._read_stump(scan, at, place) if self.needs_closer and not drafts else UNDECIDED

    def _is_plainly_a_list(self, scan: Scan, drafts: list[Draft], end: int) -> bool:
        if goes_on_behind(scan.text, end, is_list=True):
            return False
        return not scan.tools or any(_is_known(scan, draft.name) for draft in drafts)

    def _read_stump(self, scan: Scan, start: int, at: int) -> int:
        """Read an unreadable call that ends at the next list, because nothing else could end it."""
        call = PythonCall(scan.text, at, scan.tools)
        end = scan.text.find(self.openers[0], call.opened)
        if end < 0 or self._stop(scan.text, call.opened, end) is not None:
            return UNDECIDED
        error = call.advance(scan.text, lenient=scan.lenient)
        # The mark may also be in a string that can be read.
        if error is None or call.at > end:
            return UNDECIDED
        scan.drafts.append(Draft(start, end, INVALID_JSON, call.name, reason=str(error)))
        return end

    def read(self, scan: Scan, at: int) -> Wait:
        """Read the list that begins here, or those in a fence."""
        if fence := fence_line(scan.text, at):
            read = partial(self._read_list, scan, is_fenced=True)
            return (yield from read_fenced(scan, at, fence.end(), read, FURTHER))
        return (yield from self._read_list(scan, at, scan.drafts))

    def _read_list(self, scan: Scan, at: int, told: list[Draft], *, is_fenced: bool = False) -> Wait:
        """Add the calls of a list; an unreadable call does not affect the others."""
        head = self.head.match(scan.text, at)
        is_bare = scan.text.startswith("[", at)
        if head is None or (is_bare and not is_fenced and is_code(scan, at, head.end())):
            return -1
        begin = start = at
        at, faults, depth, is_first = head.end(), 0, head[0].count("["), True
        ahead = Ahead(self.openers[0] if self.needs_closer else ""), Ahead(self.closer)
        # The text after a list without marks may show that it is not a list of calls.
        drafts = list[Draft]() if is_bare else told
        while True:
            most = _MANY if faults < _FEW else _FEWER
            draft, follow = yield from self._read_call(scan, start, at, ahead, most, depth=depth, is_first=is_first)
            if follow is None or follow[0] == "junk":
                draft, depth, follow = yield from self._pass_items(scan, drafts, draft, depth, is_first=is_first)
            found, at = follow
            depth += lists_opened(scan.text[draft.end : at])
            if found != "next":
                break
            drafts.append(draft)
            start, faults, is_first = at, faults + (not draft.is_good), False
        if found == "text" or (is_bare and (yield from self._is_other(scan, begin, [*drafts, draft], follow))):
            scan.resume = at
            return -1
        if is_bare:
            told += drafts
        if found == "end" and not self.needs_closer:
            judge_depth(draft, depth)
        return _finish(scan, told, draft, found, at)

    def _pass_items(
        self, scan: Scan, drafts: list[Draft], draft: Draft, depth: int, *, is_first: bool
    ) -> Generator[str, None, tuple[Draft, int, Follow]]:
        """Add a call and the text after it that is not a call, except the last.

        Return the last, the open lists, and what follows.
        """
        words = not is_first or _is_known(scan, draft.name)
        while (follow := (yield from self._following.wait(scan, draft.end, depth)))[0] == "junk":
            if self.needs_closer or not (item := (yield from read_item(scan, draft.end, depth, words=words))):
                return draft, depth, (yield from self._beyond(scan, draft, draft.end, depth, is_first=is_first))
            drafts.append(draft)
            depth += lists_opened(scan.text[draft.end : item.start])
            draft, is_first = item, False
        return draft, depth, follow

    def _may_be_cut(self, text: str, end: int) -> bool:
        """Whether the text after a list shows that a quote in a string may have ended it too early."""
        return not (self.closer and text.endswith(self.closer, 0, end)) and second_end(text, end) >= 0

    def _is_other(self, scan: Scan, begin: int, drafts: list[Draft], follow: Follow) -> Generator[str, None, bool]:
        """Whether the text around a list without marks shows that it is not a list of calls."""
        found, at = follow
        if found == "end" and (yield from is_code_behind(scan, at, is_list=True)):
            return True
        # If the tools are known, a list that calls none of them counts only if there is no other text.
        known = known_names(scan.tools) if scan.tools else None
        if not known or any(draft.name in known for draft in drafts):
            return False
        return not (yield from is_whole(scan, begin, len(scan.text) if found in {"begun", "cut"} else at))

    def _read_call(
        self, scan: Scan, start: int, at: int, ahead: Sequence[Ahead], most: int, *, depth: int, is_first: bool
    ) -> Generator[str, None, tuple[Draft, Follow | None]]:
        """Read any call, and for a broken one also what follows."""
        call = PythonCall(scan.text, at, scan.tools)
        error = call.advance(scan.text, lenient=scan.lenient)
        while error is not None and error.is_truncated and not scan.final:
            yield ")"
            error = call.advance(scan.text, lenient=scan.lenient)
        if error is None:
            return (yield from self._read_good(scan, start, call, ahead, depth))
        loose = yield from self._read_loosely(scan, start, call, ahead)
        if loose is not None:
            return loose, None
        walk = Walk(call.opened, ahead[0], self.closer if self.needs_closer else "", most)
        while not walk.advance(scan.text, final=scan.final):
            yield walk.wait
        draft = Draft(start, walk.at, INVALID_JSON, call.name, reason=str(error))
        if walk.found in {"call", "list"}:
            follow = yield from self._behind_broken(scan, draft, walk, depth, is_first=is_first)
            if follow is not None:
                return draft, follow
        while walk.found == "deep" and self.needs_closer and not scan.final:
            if self._find_end(scan, call.at, len(scan.text)) is not None:
                break
            yield ""
        return draft, self._resynchronise(scan, draft, call, error, walk, is_first=is_first)

    def _read_good(
        self, scan: Scan, start: int, call: PythonCall, ahead: Sequence[Ahead], depth: int
    ) -> Generator[str, None, tuple[Draft, Follow | None]]:
        """Accept a call that was read, unless a quote ended it (or, with a bracket, the whole list) too early."""
        draft = _draft(call, start)
        behind = yield from self._following.wait(scan, draft.end, depth)
        if behind[0] == "end" and not self.needs_closer:
            return (yield from self._read_cut(scan, draft, call, behind))
        is_open = self.needs_closer and behind[0] == "open"
        if behind[0] != "junk" and not is_open:
            return draft, behind
        loose = yield from self._read_loosely(scan, start, call, ahead, goes_on=is_open)
        return (draft, behind) if loose is None else (loose, None)

    def _read_cut(
        self, scan: Scan, draft: Draft, call: PythonCall, behind: Follow
    ) -> Generator[str, None, tuple[Draft, Follow | None]]:
        """Read a call again whose list ends a second time on the same line; if that fails, the call must not run."""
        end = behind[1]
        if not has_quotes(scan.text, call) or (self.closer and scan.text.endswith(self.closer, 0, end)):
            return draft, behind
        if (again := (yield from wait_for_second_end(scan, end))) < 0:
            return draft, behind
        while (line := scan.text.find("\n", again)) < 0 and not scan.final:
            yield "\n"
        limit = len(scan.text) if line < 0 else line
        if scan.faults < _FEW and (loose := read_loosely(scan, draft.start, call, limit, self.closer, beyond=end)):
            return loose, None
        reason = "the list ends twice: a quote in a string may have ended the call too early"
        return Draft(draft.start, again, INVALID_JSON, call.name, reason=reason), ("end", again)

    def _read_loosely(
        self, scan: Scan, start: int, call: PythonCall, ahead: Sequence[Ahead], *, goes_on: bool = False
    ) -> Generator[str, None, Draft | None]:
        """Read a call again that a quote in a string broke, once its list has ended; None if that is not the cause.

        A call that `goes_on` after an apparent end of the list must reach up to the closing mark.
        """
        if not self.quotes_loosely or not has_quotes(scan.text, call):
            return None
        while not (ends := [end for mark in ahead if (end := mark.find(scan.text, call.opened)) >= 0]):
            if scan.final:
                break
            yield ""
        end = min(ends, default=len(scan.text))
        is_closed = bool(self.closer) and scan.text.startswith(self.closer, end)
        limit = end + len(self.closer) if is_closed else end
        if goes_on and not is_closed:
            return None
        # Each of them may be searched to the end of its list.
        if scan.faults >= _FEW or scan.text.find(")", call.opened, limit) < 0:
            return None
        beyond = call.at if goes_on else -1
        return read_loosely(scan, start, call, limit, self.closer, beyond=beyond, ends_at_mark=goes_on)

    def _beyond(self, scan: Scan, draft: Draft, at: int, depth: int, *, is_first: bool) -> Generator[str, None, Follow]:
        """Decide about a complete call that no expected text follows."""
        if _is_bare(scan, draft) and (yield from is_code_behind(scan, at, is_list=False)):
            return "text", at
        after = yield from skip_space(scan, at)
        behind = yield from pass_run(scan, _BRACKETS, after)
        if behind > after:
            follow = yield from self._following.wait(scan, behind, max(depth, 1))
            if follow[0] != "junk":
                draft.end = behind
                judge_extra(scan, draft)
                return follow
        while (found := _GOES_ON.match(scan.text, at)) is None:
            if scan.final or _CUT_GOES_ON.match(scan.text, at) is None:
                break
            yield ""
        name = _LAST_NAME.search(found[1]) if found else None
        if found and name:
            cut_short(draft, "expected the next call right after this one, got other text")
            return "next", found.start() + name.start()
        is_line = "\n" in scan.text[at:after] or scan.text.startswith("<", after)
        if is_first and not self.needs_closer and not is_line and not _is_known(scan, draft.name):
            return "text", at
        return "open", at

    def _behind_broken(
        self, scan: Scan, draft: Draft, walk: Walk, depth: int, *, is_first: bool
    ) -> Generator[str, None, Follow | None]:
        """Tell what follows a broken call whose brackets balance; None if it is nothing expected."""
        # The mark that ends such a walk needs no bracket before it.
        depth = 0 if self.needs_closer and walk.found == "list" else max(depth, int(self.needs_closer))
        follow = yield from self._following.wait(scan, walk.at, depth)
        if follow[0] == "junk":
            is_call = walk.found == "call" and _is_bare(scan, draft)
            is_code = is_call and (yield from is_code_behind(scan, walk.at, is_list=False))
            return ("text", walk.at) if is_code else None
        if is_first and not self.needs_closer and not (yield from self._is_attempt(scan, draft, follow)):
            return "text", walk.at
        return follow

    def _is_attempt(self, scan: Scan, draft: Draft, follow: Follow) -> Generator[str, None, bool]:
        """Whether a list with an unreadable first call is still a list of calls, rather than code in a sentence."""
        if _is_known(scan, draft.name):
            return True
        if known_names(scan.tools):
            return False
        while not scan.final and _CUT_LINE.match(scan.text, follow[1]):
            yield ""
        return follow[0] != "end" or _LINE_ENDS.match(scan.text, follow[1]) is not None

    def _resynchronise(
        self, scan: Scan, draft: Draft, call: PythonCall, error: LiteralError, walk: Walk, *, is_first: bool
    ) -> Follow:
        """Find the next call where strings cannot be trusted, because a quote is missing or surplus."""
        text, found = scan.text, None
        limit = len(text) if self.needs_closer and walk.found == "deep" else walk.at
        if self.needs_closer or not error.is_truncated:
            found = self._find_end(scan, call.at, limit)
        if found is not None:
            is_next, is_opener = found[1] is not None, found[0] in self.openers
            draft.end = found.start(1) if is_next else found.start() if is_opener else found.end()
            return "next" if is_next else "open" if is_opener else "end", found.end() if is_next else draft.end
        if walk.found != "end":
            # A list nested this deep is unlikely to be code in a sentence.
            may_be_text = is_first and not self.needs_closer and walk.found != "deep"
            return "text" if may_be_text and not _is_known(scan, draft.name) else "open", walk.at
        draft.status, draft.end = TRUNCATED, len(text)
        draft.reason = "the text ends inside the call" + ("" if error.is_truncated else f": {draft.reason}")
        return "open", len(text)

    def _find_end(self, scan: Scan, at: int, limit: int) -> re.Match[str] | None:
        known = known_names(scan.tools) if scan.tools else None
        found = self._resume.search(scan.text, at, limit)
        while found and found[2] and known and found[2] not in known:
            # A string may contain code; only a tool's name shows that this is not part of it.
            found = self._resume.search(scan.text, found.end(), limit)
        return found

    def write_calls(self, calls: Sequence[WrittenCall]) -> str:
        """Write the list."""
        return f"[{', '.join([self.write_call(call, index) for index, call in enumerate(calls)])}]"

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write one call as Python."""
        return f"{call.name}({', '.join([f'{key}={self.write_value(value)}' for key, value in call.value.items()])})"

    def write_value(self, value: Any) -> str:
        """Write a literal with escapes; the published templates write strings without, which cannot be read back."""
        return repr(value)


def _draft(call: PythonCall, start: int) -> Draft:
    arguments = dumps(call.values) if call.values else "{}"
    draft = Draft(start, call.at, OK, call.name, arguments, call.values)
    if call.repairs:
        draft.fail(REPAIRED, f"repaired: {', '.join(call.repairs)}")
    told = [draft.reason, *call.notes]
    if call.repeated:
        told.append(f"given more than once, the last value counts: {', '.join(call.repeated)}")
    draft.reason = "; ".join(filter(None, told))
    return draft


def _is_bare(scan: Scan, draft: Draft) -> bool:
    """Whether this is the first call of a list without marks."""
    return scan.text.startswith("[", draft.start)


def _finish(scan: Scan, drafts: list[Draft], draft: Draft, found: str, at: int) -> int:
    """Add the last draft of a list, and an unfinished one after it."""
    if found == "end":
        draft.end = at
    elif found in {"open", "cut"}:
        cut_short(draft, "the closing mark of the list is missing")
        draft.end = max(draft.end, at) if found == "open" else draft.end
    drafts.append(draft)
    if found == "begun":
        begun = Draft(at, len(scan.text), TRUNCATED, reason="the text ends inside the name of a call")
        drafts.append(begun)
        return begun.end
    return at


def _is_known(scan: Scan, name: str | None) -> bool:
    return bool(scan.tools) and name in (known_names(scan.tools) or ())


class Llama4PythonicParser(PythonicParser):
    """The same with strings in double quotes; the list may stand between `<|python_start|>` and `<|python_end|>`."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|eot|>", "<|eom|>")
    openers: ClassVar[tuple[str, ...]] = ("<|python_start|>",)
    body: ClassVar[str] = rf"{SPACES}(?:{BARE}|{CUT_BARE}|\Z)"
    head: ClassVar[re.Pattern[str]] = re.compile(rf"(?><\|python_start\|>{SPACES}|{TAGGED})?+{BARE}")
    closer: ClassVar[str] = "<|python_end|>"

    def write_value(self, value: Any) -> str:
        """Write a literal, strings in double quotes."""
        return dumps(value) if isinstance(value, str) else repr(value)
