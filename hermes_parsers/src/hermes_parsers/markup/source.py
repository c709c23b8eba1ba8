"""Text that may still grow, and tags with a name in them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from hermes_parsers.engine.scanning.scan import SPACE

Match = Callable[[str, int], re.Match[str] | None]
LONGEST_MARK: Final = 64
_NAME_END: Final = re.compile("[\"']")
_BLANK: Final = re.compile(r"\s")
_LETTER: Final = re.compile(r"\w")
_KEY: Final = re.compile(r"([^<>\n]+)")
_TYPE_NAME: Final = re.compile(r"[^<>\n]*")
_SPACES: Final = re.compile(r"\s*")


class IncompleteError(Exception):
    """More text could change the decision; `wakes` is the mark to wait for, "" for any text.

    Readers of this package are plain functions of the text so far. They are called again when more has arrived, and
    raise this instead of looking at the end of the text. Control flow only; callers never see it.
    """

    def __init__(self, wakes: str = "") -> None:
        super().__init__(wakes)
        self.wakes = wakes


class Tag:
    """An opening tag: alternating literals and patterns; the first group is the name, the second an attribute.

    `optional` is a literal that may follow. Every pattern is a run of characters of one class, so matching is linear
    and its unfinished forms are known. `unpadded` is the pattern for a name without space around it, `rest` the one for
    the text after the opening, and `self_close` the end of a tag without content, "" for none. `doubled` is a mark
    inside that may appear twice, the second time in the attribute; "" for none.
    """

    __slots__ = (
        "doubled",
        "find_all",
        "groups",
        "match",
        "opening",
        "optional",
        "partial",
        "pattern",
        "rest",
        "self_close",
        "unpadded",
    )

    def __init__(self, opening: str, *pieces: str | re.Pattern[str], optional: str = "") -> None:
        self.opening = opening
        self.optional = optional
        self.doubled = ""
        whole = [re.escape(opening), *map(_whole, pieces), f"(?:{re.escape(optional)})?"]
        self.pattern = "".join(whole)
        self.rest = "".join(whole[1:])
        self.self_close = f"/{pieces[-1]}" if isinstance(pieces[-1], str) else ""
        name = next(piece.pattern for piece in pieces if isinstance(piece, re.Pattern) and piece.groups)
        self.unpadded = self.pattern.replace(name, rf"(?!\s){name}(?<!\s)", 1)
        self.match = re.compile(self.pattern).match
        self.find_all = re.compile(self.pattern).finditer
        self.groups = re.compile(self.pattern).groups
        unfinished = []
        for index, piece in enumerate((*pieces, optional), 1):
            before = "".join(whole[:index])
            end = piece.pattern if isinstance(piece, re.Pattern) else beginnings(piece)
            unfinished.append(re.sub(r"\((?!\?)", "(?:", f"{before}(?:{end})?") + r"\Z")
        self.partial: Match = re.compile("|".join(unfinished if optional else unfinished[:-1])).match

    def closes_itself(self, found: re.Match[str]) -> bool:
        """Whether a match of this tag is self-closing (`<invoke name="f"/>`)."""
        return bool(self.self_close) and found[0].endswith(self.self_close)


class KeyTag(Tag):
    """A key between two marks (the closing one may appear twice), and the mark that opens its value.

    Args:
        opening: What opens the key.
        closing: What closes it.
        value: What opens the value.
        kind: Marks around an optional type before that.
    """

    __slots__ = ()

    def __init__(self, opening: str, closing: str, value: str, kind: tuple[str, str] | None = None) -> None:
        head, again = (opening, _KEY, closing, _SPACES), (closing, _SPACES)
        typed = (kind[0], _TYPE_NAME, kind[1], _SPACES) if kind else ()
        said = rf"(?:{re.escape(kind[0])}[^<>\n]*{re.escape(kind[1])}\s*)?" if kind else ""
        strict = Tag(*head, *([re.compile(f"({said})")] if kind else []), value)
        super().__init__(*head, re.compile(rf"((?:{re.escape(closing)}\s*)?{said})"), value)
        self.doubled = closing
        self.unpadded = strict.unpadded
        # A mark that is cut off does not begin either of the two pieces around it.
        forms = [Tag(*head, *more, *between, value) for more in ((), again) for between in dict.fromkeys(((), typed))]
        self.partial = lambda text, at: next(filter(None, (form.partial(text, at) for form in forms)), None)


def _whole(piece: str | re.Pattern[str]) -> str:
    return piece.pattern if isinstance(piece, re.Pattern) else re.escape(piece)


def text_without(*marks: str) -> str:
    """Return a pattern for text without certain marks, which all begin with the same character.

    It does not match text with too many of that character, because a regular expression stores a position for each.
    """
    first = re.escape(marks[0][0])
    rests = "|".join(re.escape(mark[1:]) for mark in marks)
    return f"[^{first}]*(?:{first}(?!{rests})[^{first}]*){{0,200}}"


def beginnings(literal: str) -> str:
    """Return a pattern of all proper prefixes of a literal, including the empty one."""
    pattern = ""
    for char in reversed(literal[:-1]):
        pattern = f"(?:{re.escape(char)}{pattern})?"
    return pattern


class Source:
    """The text so far, and whether more can arrive."""

    __slots__ = ("final", "text")

    def __init__(self, text: str, *, final: bool) -> None:
        self.text = text
        self.final = final

    def space(self, at: int) -> int:
        """Return the place of the next character that is not white space, or the end of the final text."""
        end = SPACE(self.text, at).end()  # type: ignore[union-attr]  # the pattern matches everywhere
        if end == len(self.text) and not self.final:
            raise IncompleteError
        return end

    def sees(self, mark: str, at: int) -> bool:
        """Whether a mark begins here."""
        if self.text.startswith(mark, at):
            return True
        if not self.final and len(self.text) - at < len(mark) and mark.startswith(self.text[at:]):
            raise IncompleteError
        return False

    def sees_one(self, marks: tuple[str, ...], at: int) -> bool:
        """Whether one of several marks begins here."""
        if self.text.startswith(marks, at):
            return True
        return not self.final and self.sees_any(marks, at) is not None

    def is_cut_mark(self, marks: tuple[str, ...], at: int) -> bool:
        """Whether the final text ends inside one of several marks, or before it."""
        if not self.final or len(self.text) - at > LONGEST_MARK:
            return False
        rest = self.text[at:]
        return any(mark.startswith(rest) for mark in marks)

    def sees_any(self, marks: tuple[str, ...], at: int) -> str | None:
        """Return the mark that begins here."""
        return next((mark for mark in marks if self.sees(mark, at)), None)

    def tag(self, tag: Tag, at: int) -> re.Match[str] | None:
        """Return the tag that begins here."""
        found = tag.match(self.text, at)
        if self.final or (found is not None and not tag.optional):
            return found
        if tag.partial(self.text, at) is not None:
            raise IncompleteError
        return found

    def is_cut_tag(self, tag: Tag, at: int) -> bool:
        """Whether the final text ends inside a tag, rather than in prose that looks like the beginning of one."""
        if not self.final or not self.text.startswith(tag.opening, at) or tag.partial(self.text, at) is None:
            return False
        name = _NAME_END.split(self.text[at + len(tag.opening) :].lstrip("\n\"'"), maxsplit=1)[0]
        # A complete mark may be the last word of a sentence about it.
        is_named = not tag.opening.endswith(">") or _LETTER.search(name) is not None
        return is_named and _BLANK.search(name) is None
