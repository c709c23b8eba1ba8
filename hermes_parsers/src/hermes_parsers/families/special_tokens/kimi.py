"""Kimi K2, K2-Thinking and K2.5: the id of a call holds its name.

`<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}<|tool_call_end|>` in a section; some checkpoints write
the section's marks in the singular, and models forget them. The number counts the calls of a conversation. The source
is the models' chat templates and Moonshot's notes on tool calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers.engine.scanning.scan import Draft, Scan, cut
from hermes_parsers.families.special_tokens.kimi_ids import name_in, own_form
from hermes_parsers.families.special_tokens.named_json import END, SPACES, NamedJsonParser, behind
from hermes_parsers.schemas import known_names, tools_that_take

if TYPE_CHECKING:
    from hermes_parsers.engine.rendering import WrittenCall

_SECTIONS: Final = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>")
_SECTION_ENDS: Final = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
_CALL: Final = "<|tool_call_begin|>"
_CALL_END: Final = "<|tool_call_end|>"
_ARGUMENTS: Final = "<|tool_call_argument_begin|>"

_ID: Final = r"[^\s<>{}\[\]\"]{1,256}+(?>[ ]{1,2}+(?=[#:\d])[^\s<>{}\[\]\"]{1,32}+){0,8}+"
_BEFORE: Final = rf"(?:{'|'.join(map(re.escape, _SECTIONS))}){SPACES}"
_MARK: Final = rf"(?>{re.escape(_CALL)}{SPACES}){{0,2}}+"
_IS_ID: Final = re.compile(_ID).fullmatch
_CUT_ARGUMENTS: Final = cut(_ARGUMENTS)
_CUT_FOR_GOOD: Final = _CUT_ARGUMENTS.replace(r"\Z", END)


class KimiParser(NamedJsonParser):
    """Calls whose name is taken from the id."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|im_end|>",)
    openers: ClassVar[tuple[str, ...]] = (*_SECTIONS, _CALL)
    # At the end of the text, a section's mark and a word are prose; after the mark of a call the word is the id.
    body: ClassVar[str] = (
        rf"{SPACES}{_MARK}(?:{cut(_CALL)}|{_ID}{SPACES}(?:{re.escape(_ARGUMENTS)}|{_CUT_ARGUMENTS}))|"
        rf"{behind(_CALL)}{_ID}{SPACES}{_CUT_FOR_GOOD}"
    )
    head: ClassVar[str] = rf"(?>{_BEFORE})?+({_MARK}({_ID}){SPACES}{re.escape(_ARGUMENTS)}{SPACES})"
    cut_head: ClassVar[str] = (
        rf"(?>{_BEFORE})?+({_MARK}(?:{cut(_CALL)}|"
        rf"{_ID}{SPACES}(?:{_CUT_ARGUMENTS}|{re.escape(_ARGUMENTS)}{SPACES}\Z)))"
    )
    opener: ClassVar[str] = _CALL
    closers: ClassVar[tuple[str, ...]] = (_CALL_END,)
    breaks: ClassVar[tuple[str, ...]] = (*_SECTIONS, _CALL, *_SECTION_ENDS)
    section_closers: ClassVar[tuple[str, ...]] = _SECTION_ENDS
    reasoning_framing: ClassVar[tuple[str, str]] = ("", "")
    reasoning_end: ClassVar[str] = ""

    def draft(self, scan: Scan, head: re.Match[str], end: int) -> Draft:
        """Take the name from the id."""
        return Draft(head.start(1), end, name=name_in(head[2], known_names(scan.tools)), id=head[2])

    def finish(self, scan: Scan, draft: Draft) -> Draft:
        """Name a call whose id holds no name after the only tool that accepts its arguments."""
        if draft.name is not None or not draft.is_good:
            return draft
        fitting = tools_that_take(scan.tools, draft.value)
        if len(fitting) == 1:
            draft.name = fitting[0]
            draft.reason = draft.reason or f"the id {draft.id!r} holds no name; only this tool takes these arguments"
            return draft
        found = "no tools were given" if not scan.tools else f"{len(fitting)} tools take these arguments"
        return draft.fail(AttemptStatus.MISSING_NAME, f"the id {draft.id!r} holds no name, and {found}")

    def own_id(self, written: str, name: str) -> str | None:
        """Return an id in the model's form, with the number that the model wrote."""
        return own_form(written, name)

    def make_id(self, name: str, arguments: str, salt: int) -> str:  # noqa: ARG002 - the base's signature
        """Make an id in the model's form."""
        return f"functions.{name}:{salt}"

    def write_calls(self, calls: Sequence[WrittenCall]) -> str:
        """Write the section; ids that hold the name are written unchanged, others get a number."""
        ids = {call.id for call in calls if _holds_name(call)}
        written = []
        for index, call in enumerate(calls):
            call_id = call.id if _holds_name(call) else self._free_id(call.name, index, ids)
            ids.add(call_id)
            written.append(f"{_CALL}{call_id}{_ARGUMENTS}{call.arguments}{_CALL_END}")
        return f"{_SECTIONS[0]}{''.join(written)}{_SECTION_ENDS[0]}"

    def _free_id(self, name: str, index: int, ids: set[str]) -> str:
        while (made := self.make_id(name, "", index)) in ids:
            index += 1
        return made


def _holds_name(call: WrittenCall) -> bool:
    return _IS_ID(call.id) is not None and name_in(call.id, None) == call.name
