r"""DeepSeek V3, R1 and V3.1: `<｜tool▁call▁begin｜>`, the name, `<｜tool▁sep｜>`, the arguments.

V3-0324 and R1-0528 write `function<｜tool▁sep｜>name`, then the arguments in a code fence; V3.1 writes
`name<｜tool▁sep｜>{…}`. The text itself shows which form it has: models under either name use both. The source is the
models' chat templates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from hermes_parsers.engine.scanning.scan import Draft, Scan, cut
from hermes_parsers.families.special_tokens.named_json import END, FENCE, SPACES, NamedJsonParser, behind

if TYPE_CHECKING:
    from hermes_parsers.engine.rendering import WrittenCall

_SECTION: Final = "<｜tool▁calls▁begin｜>"
_SECTION_END: Final = "<｜tool▁calls▁end｜>"
_CALL: Final = "<｜tool▁call▁begin｜>"
_CALL_END: Final = "<｜tool▁call▁end｜>"
_SEPARATOR: Final = "<｜tool▁sep｜>"
_TYPE: Final = "function"

_NAME: Final = r"[^\s<>`{}\[\]\"]{1,256}+"
_BEFORE: Final = rf"(?>{_SECTION}{SPACES})?+"
_MARK: Final = rf"(?>{_CALL}{SPACES}){{0,2}}+"
_CUT_SEPARATOR: Final = cut(_SEPARATOR).replace(r"\Z", END)
_FENCE: Final = f"{FENCE}json"


class DeepseekV3Parser(NamedJsonParser):
    """V3-0324 and R1-0528; reads V3.1 as well."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<｜end▁of▁sentence｜>",)
    openers: ClassVar[tuple[str, ...]] = (_SECTION, _CALL)
    # At the end of the text, a section's mark and a word are prose; after the mark of a call the word is the name.
    body: ClassVar[str] = (
        rf"{SPACES}{_MARK}(?:{cut(_CALL)}|{_NAME}{SPACES}(?:{_SEPARATOR}|{cut(_SEPARATOR)}))|"
        rf"{behind(_CALL)}{_NAME}{SPACES}{_CUT_SEPARATOR}"
    )
    head: ClassVar[str] = (
        rf"{_BEFORE}({_MARK}({_NAME}){SPACES}{_SEPARATOR}{SPACES}"
        rf"(?>({_NAME}){SPACES}(?={FENCE}|[{{\[]))?+(?>{FENCE}(?>json)?+{SPACES})?+)"
    )
    cut_head: ClassVar[str] = (
        rf"{_BEFORE}({_MARK}(?:{cut(_CALL)}|{_NAME}{SPACES}(?:{cut(_SEPARATOR)}|{_SEPARATOR}{SPACES}"
        rf"(?>{_NAME}{SPACES})?+(?:{cut(_FENCE)}|{FENCE}(?>json)?+{SPACES}\Z))))"
    )
    opener: ClassVar[str] = _CALL
    closers: ClassVar[tuple[str, ...]] = (_CALL_END,)
    breaks: ClassVar[tuple[str, ...]] = (_SECTION, _CALL, _SECTION_END)
    section_closers: ClassVar[tuple[str, ...]] = (_SECTION_END,)
    is_fenced: ClassVar[bool] = True
    between: ClassVar[str] = "\n"

    def draft(self, scan: Scan, head: re.Match[str], end: int) -> Draft:  # noqa: ARG002 - the base's signature
        """Return the name after the separator if there is one: the text before it is then the call's type."""
        # Before a fence, a type alone is a call without a name.
        is_type = head[2] == _TYPE and FENCE in head[0]
        return Draft(head.start(1), end, name=head[3] or (None if is_type else head[2]))

    def write_calls(self, calls: Sequence[WrittenCall]) -> str:
        """Write the section."""
        return f"{_SECTION}{super().write_calls(calls)}{_SECTION_END}"

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write a call with its type and the arguments in a fence."""
        return f"{_CALL}{_TYPE}{_SEPARATOR}{call.name}\n{_FENCE}\n{call.arguments}\n{FENCE}{_CALL_END}"


class DeepseekV31Parser(DeepseekV3Parser):
    """V3.1 and V3.1-Terminus; reads V3 as well."""

    between: ClassVar[str] = ""
    reasoning_framing: ClassVar[tuple[str, str]] = ("", "")
    reasoning_end: ClassVar[str] = ""

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write a call on one line."""
        return f"{_CALL}{call.name}{_SEPARATOR}{call.arguments}{_CALL_END}"
