"""Lists of calls written as Python: Llama 3.2, ToolACE and Llama 4, without and with marks around the list."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import Any, ClassVar, Final

from hermes_parsers.coercion import known_names
from hermes_parsers.engine.declared import declared_parameters, lacks_texts
from hermes_parsers.engine.literals import LiteralError
from hermes_parsers.engine.parser import ScanningParser
from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.engine.scan import (
    INVALID_JSON,
    OK,
    REPAIRED,
    TRUNCATED,
    UNDECIDED,
    Draft,
    Scan,
    Wait,
    cut,
    skip_space,
)
from hermes_parsers.engine.stream import ScanStream
from hermes_parsers.families.brackets import (
    goes_on_behind,
    is_code_before,
    is_code_behind,
    is_whole,
    judge_extra,
    pass_run,
)
from hermes_parsers.families.fences import CUT_FENCE_LINE, FENCE_LINE, FencedListStream
from hermes_parsers.families.loose_quotes import LooseCall
from hermes_parsers.families.python_call import (
    ARGUMENTS_OPEN,
    KEYWORD,
    NAME,
    SPACES,
    Ahead,
    PythonCall,
    Walk,
    read_tidy_call,
)
from hermes_parsers.writing import dumps

_CUT_ARGUMENTS: Final = rf"\((?:{SPACES}(?:{KEYWORD}{SPACES}=?)?)?\Z"
_BARE: Final = rf"\[{SPACES}(?={NAME}{ARGUMENTS_OPEN})"
_CUT_BARE: Final = rf"\[{SPACES}(?:{NAME}(?:{_CUT_ARGUMENTS})?)?\Z"
MARKED: Final = rf"{SPACES}(?>\[{SPACES})?+"
"""What may stand between an opening mark and the first call."""
# What may stand between two calls by mistake: at most a few words.
_BEYOND: Final = r"""[^\[\](){}'"]{0,80}+"""
_GOES_ON: Final = re.compile(rf"({_BEYOND}){ARGUMENTS_OPEN}")
_CUT_GOES_ON: Final = re.compile(rf"{_BEYOND}(?:{_CUT_ARGUMENTS})?\Z")
_LAST_NAME: Final = re.compile(r"\w[\w.-]*\Z")
# How many brackets and strings a broken call may have while its end is looked for: after a few such calls, fewer.
_FEW: Final = 8
_MANY: Final = 512
_FEWER: Final = 64
_STRING_ARGUMENT: Final = re.compile(rf"""{SPACES}{KEYWORD}{SPACES}=(?!=){SPACES}["']""")
_BRACKETS: Final = re.compile(r"[)}]*+")
_LINE_ENDS: Final = re.compile(r"[ \t]*+(?:[\r\n<]|\Z)")
_CUT_LINE: Final = re.compile(r"[ \t]*+\Z")

_Follow = tuple[str, int]
"""What follows a call, and where: the "next" one, the "end" of the list, a list left "open" by a missing mark, the end
of the text ("cut", or "begun" inside a name), or "junk"."""


class PythonicParser(ScanningParser):
    """`[f(a='x', n=1), g()]`, anywhere in a text.

    Keywords tell a list of calls from other code in prose; what has positional arguments is text.
    """

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|eot_id|>", "<|eom_id|>")
    stream_type: ClassVar[type[ScanStream]] = FencedListStream
    pattern: ClassVar[str] = rf"{_BARE}|{_CUT_BARE}|{FENCE_LINE}(?:{_BARE}|{_CUT_BARE}|\Z)|{CUT_FENCE_LINE}"
    head: ClassVar[re.Pattern[str]] = re.compile(_BARE)
    """What must stand where a list begins, up to the first call."""
    separator: ClassVar[str] = ","
    closer: ClassVar[str] = ""
    """The mark behind the list."""
    quotes_loosely: ClassVar[bool] = True
    """Whether the template may leave quotes inside of texts unescaped."""
    needs_closer: ClassVar[bool] = False
    """Whether the closing mark ends the list; otherwise its bracket does."""

    def block_marks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the marks around a list, where the format has some."""
        return (self.openers, (self.closer,)) if self.closer else ((), ())

    def prepare(self) -> None:
        """Compile what reading takes."""
        mark = re.escape(self.closer) or "(?!)"
        self._next = re.compile(
            rf"{SPACES}(?:({self.separator}{SPACES}(?={NAME}\())|,?+{SPACES}\](?>{SPACES}({mark}))?+|({mark}))"
        ).match
        self._cut_next = re.compile(rf"{SPACES}(?:{self.separator}{SPACES}({NAME})?|,{SPACES})?\Z").match
        self._cut_mark = re.compile(SPACES + cut(self.closer) if self.closer else "(?!)").match
        marks = [re.escape(mark) for mark in (self.closer, *self.openers) if mark and self.needs_closer]
        ends = [rf"\)({SPACES},{SPACES})(?=({NAME}){ARGUMENTS_OPEN})", *marks]
        if not self.needs_closer:
            ends.append(rf"\){SPACES}\](?:{SPACES}{mark}|(?=[ \t]*+[\r\n]))")
        self._resume = re.compile("|".join(ends))
        self._stop = re.compile(rf"[)\]]|{mark}").search

    def read_now(self, scan: Scan, at: int) -> int:
        """Read a list as templates write it, or a first call that cannot be read before the next list."""
        text = scan.text
        head = self.head.match(text, at)
        is_bare = text.startswith("[", at)
        if head is None or (is_bare and is_code_before(scan, at)):
            return -1
        drafts, place, has_bracket = list[Draft](), head.end(), "[" in head[0]
        while (draft := read_tidy_call(text, at, place)) is not None:
            if scan.tools and lacks_texts(draft.value, declared_parameters(scan.tools, draft.name)):
                return UNDECIDED
            drafts.append(draft)
            found, at = self._follow(scan, draft.end, has_bracket=has_bracket) or ("cut", at)
            place = at
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
        """Read a call that cannot be read, where it ends at the next list since nothing else could end it."""
        call = PythonCall(scan.text, at, scan.tools)
        end = scan.text.find(self.openers[0], call.opened)
        if end < 0 or self._stop(scan.text, call.opened, end) is not None:
            return UNDECIDED
        error = call.advance(scan.text, lenient=scan.lenient)
        # The mark may also stand in a string that could be read.
        if error is None or call.at > end:
            return UNDECIDED
        scan.drafts.append(Draft(start, end, INVALID_JSON, call.name, reason=str(error)))
        return end

    def read(self, scan: Scan, at: int) -> Wait:
        """Read the list that begins here; a call that cannot be read does not cost the others."""
        head = self.head.match(scan.text, at)
        is_bare = scan.text.startswith("[", at)
        if head is None or (is_bare and is_code_before(scan, at)):
            return -1
        begin = start = at
        at, faults, has_bracket = head.end(), 0, "[" in head[0]
        ahead = Ahead(self.openers[0] if self.needs_closer else ""), Ahead(self.closer)
        # What stands behind a list without marks may show that it is none.
        drafts = list[Draft]() if is_bare else scan.drafts
        while True:
            most = _MANY if faults < _FEW else _FEWER
            draft, follow = yield from self._read_call(
                scan, start, at, ahead, most, is_first=start == begin, has_bracket=has_bracket
            )
            if follow is None:
                follow = yield from self._follows(scan, draft.end, has_bracket=has_bracket)
            if follow[0] == "junk":
                follow = yield from self._beyond(scan, draft, draft.end, is_first=start == begin)
            found, at = follow
            if found != "next":
                break
            drafts.append(draft)
            start, faults = at, faults + (not draft.is_good)
        if found == "text" or (is_bare and (yield from self._is_other(scan, begin, [*drafts, draft], follow))):
            scan.resume = at
            return -1
        if is_bare:
            scan.drafts += drafts
        return _finish(scan, draft, found, at)

    def _is_other(self, scan: Scan, begin: int, drafts: list[Draft], follow: _Follow) -> Generator[str, None, bool]:
        """Whether what surrounds a list without marks shows that it is none."""
        found, at = follow
        if found == "end" and (yield from is_code_behind(scan, at, is_list=True)):
            return True
        # Where the tools are known, a list without any of them is one only if nothing else is there.
        known = known_names(scan.tools) if scan.tools else None
        if not known or any(draft.name in known for draft in drafts):
            return False
        return not (yield from is_whole(scan, begin, len(scan.text) if found in {"begun", "cut"} else at))

    def _read_call(
        self, scan: Scan, start: int, at: int, ahead: Sequence[Ahead], most: int, *, is_first: bool, has_bracket: bool
    ) -> Generator[str, None, tuple[Draft, _Follow | None]]:
        """Read any call, and what follows it where it is broken."""
        call = PythonCall(scan.text, at, scan.tools)
        error = call.advance(scan.text, lenient=scan.lenient)
        while error is not None and error.is_truncated and not scan.final:
            yield ")"
            error = call.advance(scan.text, lenient=scan.lenient)
        if error is None:
            draft = _draft(call, start)
            behind = yield from self._follows(scan, draft.end, has_bracket=has_bracket)
            # A quote may also have ended the call too soon, or with a bracket behind it the whole list.
            is_open = self.needs_closer and behind[0] == "open"
            if behind[0] != "junk" and not is_open:
                return draft, behind
            loose = yield from self._read_loosely(scan, start, call, ahead, goes_on=is_open)
            return (draft, behind) if loose is None else (loose, None)
        loose = yield from self._read_loosely(scan, start, call, ahead)
        if loose is not None:
            return loose, None
        walk = Walk(call.opened, ahead[0], self.closer if self.needs_closer else "", most)
        while not walk.advance(scan.text, final=scan.final):
            yield walk.wait
        draft = Draft(start, walk.at, INVALID_JSON, call.name, reason=str(error))
        if walk.found in {"call", "list"}:
            follow = yield from self._behind_broken(scan, draft, walk, is_first=is_first)
            if follow is not None:
                return draft, follow
        while walk.found == "deep" and self.needs_closer and not scan.final:
            if self._find_end(scan, call.at, len(scan.text)) is not None:
                break
            yield ""
        return draft, self._resynchronise(scan, draft, call, error, walk, is_first=is_first)

    def _read_loosely(
        self, scan: Scan, start: int, call: PythonCall, ahead: Sequence[Ahead], *, goes_on: bool = False
    ) -> Generator[str, None, Draft | None]:
        """Read a call again that a quote in a text broke, once its list has ended; None where that is not the cause.

        A call that `goes_on` behind what looks like the list's end must reach up to the closing mark.
        """
        if not self.quotes_loosely or not _has_quotes(scan.text, call):
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
        # Each of them may be looked through to the end of its list.
        if scan.faults >= _FEW or scan.text.find(")", call.opened, limit) < 0:
            return None
        known = known_names(scan.tools) if scan.tools else None
        loose = LooseCall(
            scan.text, call.opened, limit, self.closer, known=known, schemas=call.schemas, ends_at_mark=goes_on
        )
        if not loose.read() or (goes_on and loose.at <= call.at):
            scan.faults += 1
            return None
        draft = Draft(start, loose.at, OK, call.name, dumps(loose.values), loose.values)
        draft.reason = "quotes inside a text were taken as text"
        return draft

    def _follow(self, scan: Scan, at: int, *, has_bracket: bool) -> _Follow | None:
        """Tell what follows a call; None where only more text can show it."""
        found = self._next(scan.text, at)
        if found is None:
            return self._follow_cut(scan, at)
        end = found.end()
        if found[1] is not None:
            return "next", end
        if found[3] is not None:
            return "open" if has_bracket else "end", end
        if found[2] is None and not scan.final and self._cut_mark(scan.text, end):
            return None
        return "open" if self.needs_closer and found[2] is None else "end", end

    def _follow_cut(self, scan: Scan, at: int) -> _Follow | None:
        last = self._cut_next(scan.text, at)
        if not scan.final:
            return None if last or self._cut_mark(scan.text, at) else ("junk", at)
        if last is None:
            return "junk", at
        return ("begun", last.start(1)) if last[1] else ("cut", len(scan.text))

    def _follows(self, scan: Scan, at: int, *, has_bracket: bool = True) -> Generator[str, None, _Follow]:
        while (follow := self._follow(scan, at, has_bracket=has_bracket)) is None:
            yield ""
        return follow

    def _beyond(self, scan: Scan, draft: Draft, at: int, *, is_first: bool) -> Generator[str, None, _Follow]:
        """Decide what a whole call is that nothing known follows."""
        if _is_bare(scan, draft) and (yield from is_code_behind(scan, at, is_list=False)):
            return "text", at
        after = yield from skip_space(scan, at)
        behind = yield from pass_run(scan, _BRACKETS, after)
        if behind > after:
            follow = yield from self._follows(scan, behind)
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
            _cut(draft, "something stands between this call and the next")
            return "next", found.start() + name.start()
        is_line = "\n" in scan.text[at:after] or scan.text.startswith("<", after)
        if is_first and not self.needs_closer and not is_line and not _is_known(scan, draft.name):
            return "text", at
        return "open", at

    def _behind_broken(
        self, scan: Scan, draft: Draft, walk: Walk, *, is_first: bool
    ) -> Generator[str, None, _Follow | None]:
        """Tell what follows a broken call whose brackets balance; None where nothing known does."""
        follow = yield from self._follows(scan, walk.at, has_bracket=walk.found == "call")
        if follow[0] == "junk":
            is_call = walk.found == "call" and _is_bare(scan, draft)
            is_code = is_call and (yield from is_code_behind(scan, walk.at, is_list=False))
            return ("text", walk.at) if is_code else None
        if is_first and not self.needs_closer and not (yield from self._is_attempt(scan, draft, follow)):
            return "text", walk.at
        return follow

    def _is_attempt(self, scan: Scan, draft: Draft, follow: _Follow) -> Generator[str, None, bool]:
        """Whether a list whose first call is none is one all the same, rather than code in a sentence."""
        if _is_known(scan, draft.name):
            return True
        if known_names(scan.tools):
            return False
        while not scan.final and _CUT_LINE.match(scan.text, follow[1]):
            yield ""
        return follow[0] != "end" or _LINE_ENDS.match(scan.text, follow[1]) is not None

    def _resynchronise(
        self, scan: Scan, draft: Draft, call: PythonCall, error: LiteralError, walk: Walk, *, is_first: bool
    ) -> _Follow:
        """Look for the next call where strings mean nothing any more, since a quote is missing or too many."""
        text, found = scan.text, None
        limit = len(text) if self.needs_closer and walk.found == "deep" else walk.at
        if self.needs_closer or not error.is_truncated:
            found = self._find_end(scan, call.at, limit)
        if found is not None:
            is_next, is_opener = found[1] is not None, found[0] in self.openers
            draft.end = found.start(1) if is_next else found.start() if is_opener else found.end()
            return "next" if is_next else "open" if is_opener else "end", found.end() if is_next else draft.end
        if walk.found != "end":
            # What is nested so deeply is hardly code in a sentence.
            may_be_text = is_first and not self.needs_closer and walk.found != "deep"
            return "text" if may_be_text and not _is_known(scan, draft.name) else "open", walk.at
        draft.status, draft.end = TRUNCATED, len(text)
        draft.reason = "the text ends inside the call" + ("" if error.is_truncated else f": {draft.reason}")
        return "open", len(text)

    def _find_end(self, scan: Scan, at: int, limit: int) -> re.Match[str] | None:
        known = known_names(scan.tools) if scan.tools else None
        found = self._resume.search(scan.text, at, limit)
        while found and found[2] and known and found[2] not in known:
            # A string may hold code; only a tool's name shows that this is no part of it.
            found = self._resume.search(scan.text, found.end(), limit)
        return found

    def write_calls(self, calls: Sequence[WrittenCall]) -> str:
        """Write the list."""
        return f"[{', '.join([self.write_call(call, index) for index, call in enumerate(calls)])}]"

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write one call as Python."""
        return f"{call.name}({', '.join([f'{key}={self.write_value(value)}' for key, value in call.value.items()])})"

    def write_value(self, value: Any) -> str:
        """Write a literal; the published templates write strings without escapes, which no parser could read back."""
        return repr(value)


def _draft(call: PythonCall, start: int) -> Draft:
    arguments = dumps(call.values) if call.values else "{}"
    draft = Draft(start, call.at, OK, call.name, arguments, call.values)
    if call.repairs:
        draft.fail(REPAIRED, f"repaired: {', '.join(call.repairs)}")
    told = [draft.reason, *call.notes]
    if call.repeated:
        told.append(f"the last value counts of what is given twice: {', '.join(call.repeated)}")
    draft.reason = "; ".join(filter(None, told))
    return draft


def _has_quotes(text: str, call: PythonCall) -> bool:
    """Whether a text stood in a call as far as it could be read, or begins where it could not."""
    read = call.opened, call.at
    return text.find("'", *read) >= 0 or text.find('"', *read) >= 0 or _STRING_ARGUMENT.match(text, call.at) is not None


def _cut(draft: Draft, reason: str) -> None:
    """Say that the closing mark is missing, beside what there was to say of a good call."""
    told = f"; {draft.reason}" if draft.reason else ""
    draft.cut(reason + told)


def _is_bare(scan: Scan, draft: Draft) -> bool:
    """Whether this is the first call of a list without marks."""
    return scan.text.startswith("[", draft.start)


def _finish(scan: Scan, draft: Draft, found: str, at: int) -> int:
    """Hand in the last draft of a list, and the one that has only begun behind it."""
    if found == "end":
        draft.end = at
    elif found in {"open", "cut"}:
        _cut(draft, "the closing mark of the list is missing")
        draft.end = max(draft.end, at) if found == "open" else draft.end
    scan.drafts.append(draft)
    if found == "begun":
        begun = Draft(at, len(scan.text), TRUNCATED, reason="the text ends inside the name of a call")
        scan.drafts.append(begun)
        return begun.end
    return at


def _is_known(scan: Scan, name: str | None) -> bool:
    return bool(scan.tools) and name in (known_names(scan.tools) or ())


class Llama4PythonicParser(PythonicParser):
    """The same with strings in double quotes; the list may stand between `<|python_start|>` and `<|python_end|>`."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|eot|>", "<|eom|>")
    openers: ClassVar[tuple[str, ...]] = ("<|python_start|>",)
    body: ClassVar[str] = rf"{SPACES}(?:{_BARE}|{_CUT_BARE}|\Z)"
    head: ClassVar[re.Pattern[str]] = re.compile(rf"(?><\|python_start\|>{SPACES})?+{_BARE}")
    closer: ClassVar[str] = "<|python_end|>"

    def write_value(self, value: Any) -> str:
        """Write a literal, strings in double quotes."""
        return dumps(value) if isinstance(value, str) else repr(value)
