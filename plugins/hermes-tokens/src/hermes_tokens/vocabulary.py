"""Added tokens: which of them are control tokens, and where they occur in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

# SentencePiece's character for a space.
_SPACE: Final = "\u2581"
_BYTE: Final = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlToken:
    """An added token; `lstrip` and `rstrip`: it absorbs the white space before or after it.

    `special`: it is not text, and servers omit it from theirs.
    """

    id: int
    text: str
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    special: bool = False

    @classmethod
    def of(cls, entry: dict[str, Any]) -> ControlToken:
        """Read an entry of `added_tokens` in tokenizer.json."""
        flags = {name: bool(entry.get(name)) for name in ("lstrip", "rstrip", "single_word", "special")}
        return cls(id=entry["id"], text=entry["content"], **flags)


def is_blank(text: str) -> bool:
    """Return whether an added token is only white space, which does not make it a control token."""
    return not text.replace(_SPACE, " ").strip()


def text_ids(data: Mapping[str, Any]) -> set[int]:
    """Return the ids of added tokens that represent text: an unknown character or a single byte.

    `data` is tokenizer.json's content.
    """
    model = data["model"]
    unknown = model.get("unk_token")
    numbers = {model["unk_id"]} if model.get("unk_id") is not None else set()
    for entry in data["added_tokens"]:
        is_byte = model.get("byte_fallback") and _BYTE.fullmatch(entry["content"])
        if is_byte or (unknown is not None and entry["content"] == unknown):
            numbers.add(entry["id"])
    return numbers


class ControlTokens:
    """Finds control tokens as the tokenizer does: leftmost first, then longest."""

    def __init__(self, tokens: Iterable[ControlToken]) -> None:
        self.by_text = {token.text: token for token in tokens}
        self.by_id = {token.id: token for token in self.by_text.values()}
        longest_first = sorted(self.by_text, key=len, reverse=True)
        self._find = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def part(self, text: str, mark: str) -> str:
        """Return the text with the mark inserted into every control token.

        A plain word is unchanged: it may be the type of a parameter, which a template tests.
        """
        parts, place = list[str](), 0
        while found := self._find.search(text, place):
            is_word = found.group().isalnum()
            # One character cannot be split; as in other untrusted text, it is dropped.
            end = found.start() + (is_word or len(found.group()) > 1)
            parts.append(text[place:end] + ("" if is_word else mark))
            place = found.start() + 1
        return "".join([*parts, text[place:]])

    def split(self, text: str) -> Iterator[str | ControlToken]:
        """Yield control tokens and the text between them; no piece is empty and no white space is lost."""
        done = 0
        for match in self._find.finditer(text):
            token = self.by_text[match.group()]
            if token.single_word and _within_word(text, match):
                continue
            if match.start() > done:
                yield text[done : match.start()]
            yield token
            done = match.end()
        if done < len(text):
            yield text[done:]


def _within_word(text: str, match: re.Match[str]) -> bool:
    around = text[match.start() - 1 : match.start()] + text[match.end() : match.end() + 1]
    return any(character.isalnum() or character == "_" for character in around)
