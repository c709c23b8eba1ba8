"""The marks of a dialect of tagged parameters, as data."""

from __future__ import annotations

import re
from typing import Final

from hermes_parsers.markup.source import Tag

NAME: Final = re.compile(r"([^<>\n]*)")
KEY: Final = re.compile(r"([^<>\n]+)")
QUOTED: Final = re.compile(r"([^\"<>\n]*)")
QUOTED_KEY: Final = re.compile(r"([^\"<>\n]+)")
QUOTE: Final = re.compile("[\"']?")


def _attribute(size: str) -> re.Pattern[str]:
    """Return a pattern for the text of an attribute between two `QUOTE`s, which may be double, single or missing."""
    double, single = rf'(?<=")[^"<>\n]{size}(?="|\Z)', rf"(?<=')[^'<>\n]{size}(?='|\Z)"
    return re.compile(rf"({double}|{single}|(?<==)[^\s\"'<>]++)")


ANY_QUOTED: Final = (QUOTE, _attribute("*"), QUOTE)
ANY_QUOTED_KEY: Final = (QUOTE, _attribute("+"), QUOTE)
SPACES: Final = "[ \\t\\n\\r]*"
ATTRIBUTES: Final = re.compile(r"([^<>\n]*)")


class Dialect:
    """The marks of a format; `blocks` are the pairs of marks around one or more calls.

    Args:
        call: The tag that opens a call.
        call_close: The mark that ends it.
        parameter: The tag that opens a parameter.
        parameter_close: The mark that ends its value.
        blocks: Opening and closing marks around calls; the first pair is the one to write.
        prefix: The text before each call's tag.
        suffix: The text after each call's end.
        other_bodies: Other beginnings of a call's body, if a family's reader knows more than parameters.
        element: A pattern for a usual parameter, its name and its text, if values may contain tags.
        own_lines: Whether the template puts each parameter's tag on a separate line.
        is_common: Whether other text, such as XML or code, has tags like the call's.
    """

    __slots__ = (
        "block_closes",
        "blocks",
        "body_marks",
        "call",
        "call_close",
        "call_openers",
        "element",
        "is_block",
        "is_common",
        "openers",
        "own_lines",
        "parameter",
        "parameter_close",
        "prefix",
        "slips",
        "suffix",
        "tokens",
        "word",
    )

    def __init__(
        self,
        call: Tag,
        call_close: str,
        parameter: Tag,
        parameter_close: str,
        *,
        blocks: tuple[tuple[str, str], ...] = (),
        prefix: str = "",
        suffix: str = "",
        own_lines: bool = False,
        other_bodies: tuple[str, ...] = (),
        element: str = "",
        is_common: bool = False,
    ) -> None:
        self.call = call
        self.call_close = call_close
        self.parameter = parameter
        self.parameter_close = parameter_close
        self.blocks = blocks
        self.block_closes = tuple(dict.fromkeys(closing for _, closing in blocks))
        self.prefix = prefix
        self.suffix = suffix
        self.element = element
        self.is_block = call.opening.endswith(">") and not element
        """Whether the call's opening mark could also be one of a block."""
        self.word = "" if self.is_block else re.split("[ =]", call.opening[1:])[0]
        inner = (
            (parameter.opening, call_close) if self.is_block else (f"<{self.word}", call.opening[1:], parameter.opening)
        )
        self.slips = inner
        """The beginnings of a call with a slip in its tag, or without its tag."""
        self.own_lines = own_lines
        self.is_common = is_common
        within = {
            "open": (parameter.opening,),
            "close": (parameter_close,),
            "call": (call.opening,),
            "end": (call_close,),
        }
        around = {"block": tuple(dict.fromkeys(opening for opening, _ in blocks)), "block_end": self.block_closes}
        self.body_marks = (parameter.opening, call_close, *other_bodies)
        # A prefix is a mark and words; the mark alone shows that a call is meant.
        self.call_openers = (prefix[: prefix.find(">") + 1], call.opening) if prefix else (call.opening,)
        """The marks that may begin a call, in a block or without one."""
        self.openers = tuple(dict.fromkeys((*(mark for mark, _ in blocks), *self.call_openers)))
        """The marks that may begin a block, or a call without one."""
        self.tokens = _any_of(within | around).finditer

    def has_call_marks(self, value: str) -> bool:
        """Whether a value contains a call's tag or closing mark."""
        return self.call_close in value or self.call.opening in value


def invoke_dialect(
    mark: str, blocks: tuple[tuple[str, str], ...], *, own_lines: bool = True, prefix: str = "", suffix: str = ""
) -> Dialect:
    """Return the dialect of `<invoke name="…">` and `<parameter name="…">` with the model's mark in each tag."""
    return Dialect(
        Tag(f"<{mark}invoke name=", *ANY_QUOTED, ATTRIBUTES, ">"),
        f"</{mark}invoke>",
        Tag(f"<{mark}parameter name=", *ANY_QUOTED_KEY, ATTRIBUTES, ">"),
        f"</{mark}parameter>",
        blocks=blocks,
        own_lines=own_lines,
        prefix=prefix,
        suffix=suffix,
        is_common=not mark,
    )


def _any_of(kinds: dict[str, tuple[str, ...]]) -> re.Pattern[str]:
    """Return a pattern of marks by kind; their common beginning comes first, so the search can skip to it."""
    shared = _common_prefix([mark for marks in kinds.values() for mark in marks])
    groups = []
    for kind, marks in kinds.items():
        if marks:
            rests = "|".join(re.escape(mark[len(shared) :]) for mark in marks)
            groups.append(f"(?P<{kind}>{rests})")
    return re.compile(f"{re.escape(shared)}(?:{'|'.join(groups)})")


def _common_prefix(marks: list[str]) -> str:
    first, last = min(marks), max(marks)
    size = next((at for at, char in enumerate(first) if at == len(last) or char != last[at]), len(first))
    return first[:size]
