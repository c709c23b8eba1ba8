"""Encodes untrusted text with a private copy of the tokenizer that knows no control tokens."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from hermes_tokens.vocabulary import is_blank


class PlainEncoder:
    """Encodes with up to three private tokenizers, which differ in what they put before a text's first word.

    Switching a shared tokenizer between two ways of encoding would race with other threads.
    """

    def __init__(self, data: Mapping[str, Any], control_ids: frozenset[int]) -> None:
        self._forbidden = control_ids
        start = _without_control_tokens(data)
        inner = _with_prefix_scheme(start, never=("first",))
        continued = _without_prefix(_with_prefix_scheme(start, never=("first", "always")))
        made: dict[str, _Private] = {}
        for each in (start, inner, continued):
            key = _key(each)
            made[key] = made.get(key) or _Private.of(each)
        self._start, self._inner, self._continued = (made[_key(each)] for each in (start, inner, continued))

    def encode(self, text: str, *, at_start: bool = False, continued: bool = False) -> list[int]:
        """Encode the text without control ids."""
        encoder = self._continued if continued else self._start if at_start else self._inner
        text = _valid(text)
        ids, spans = encoder.encode(text)
        if self._forbidden.isdisjoint(ids):
            return ids
        return self._divide(text, ids, spans, encoder)

    def _divide(self, text: str, ids: Sequence[int], spans: _Spans, encoder: _Private) -> list[int]:
        """Split the text of every control token and encode the parts separately, as often as necessary.

        A vocabulary may hold `</s>` as an ordinary piece that is not in the list of added tokens.
        """
        found = (span for token, span in zip(ids, spans(), strict=True) if token in self._forbidden)
        cuts = [start + 1 for start, end in found if end - start > 1]
        if not cuts:  # one character that is a control token: it cannot be text
            return [token for token in ids if token not in self._forbidden]
        waiting = [(text[start:end], self._continued) for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]
        waiting = [*reversed(waiting), (text[: cuts[0]], encoder)]
        done: list[int] = []
        while waiting:
            part, encoder = waiting.pop()
            ids, spans = encoder.encode(part)
            if self._forbidden.isdisjoint(ids):
                done += ids
            else:  # the part is shorter than the text, so this ends
                done += self._divide(part, ids, spans, encoder)
        return done


# Read on demand: they cost more than the ids.
_Spans = Callable[[], Sequence[tuple[int, int]]]


class _Private:
    """A private tokenizer; it renumbers added tokens, so their ids are mapped back to the model's."""

    def __init__(self, tokenizer: Any, renumbered: Mapping[int, int]) -> None:
        self._tokenizer = tokenizer
        self._renumbered = renumbered

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_str(json.dumps(data))
        wanted = {entry["content"]: entry["id"] for entry in data["added_tokens"]}
        given = {number: token.content for number, token in tokenizer.get_added_tokens_decoder().items()}
        return cls(tokenizer, {number: wanted[text] for number, text in given.items() if wanted[text] != number})

    def encode(self, text: str) -> tuple[list[int], _Spans]:
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        if self._renumbered:
            ids = [self._renumbered.get(token, token) for token in ids]
        return ids, lambda: encoding.offsets


def _valid(text: str) -> str:
    """Replace lone surrogates, which the library refuses or drops, depending on its version."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _key(data: Mapping[str, Any]) -> str:
    return json.dumps([data["normalizer"], data["pre_tokenizer"]])


def _without_control_tokens(data: Mapping[str, Any]) -> dict[str, Any]:
    kept = [entry for entry in data["added_tokens"] if is_blank(entry["content"])]
    return {**data, "added_tokens": kept, "post_processor": None, "truncation": None, "padding": None}


def _with_prefix_scheme(data: Mapping[str, Any], *, never: tuple[str, ...]) -> dict[str, Any]:
    """Return the tokenizer with the named schemes of Metaspace switched off.

    `first` means the first word of the whole text: a piece in the middle is encoded alone and is not that.
    """
    changed = copy.deepcopy(data["pre_tokenizer"])
    for part in _parts(changed, "pretokenizers"):
        if part["type"] == "Metaspace" and part.get("prepend_scheme") in never:
            part["prepend_scheme"] = "never"
    return {**data, "pre_tokenizer": changed}


def _without_prefix(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokenizer without a prefix space, for a text that continues another."""
    normalizer, pre_tokenizer = copy.deepcopy(data["normalizer"]), copy.deepcopy(data["pre_tokenizer"])
    for part in _parts(normalizer, "normalizers"):
        if part["type"] == "Prepend":
            part["prepend"] = ""
    for part in _parts(pre_tokenizer, "pretokenizers"):
        if part["type"] == "ByteLevel":
            part["add_prefix_space"] = False
    return {**data, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer}


def _parts(component: dict[str, Any] | None, inner: str) -> list[dict[str, Any]]:
    if component is None:
        return []
    if component["type"] != "Sequence":
        return [component]
    return [part for each in component[inner] for part in _parts(each, inner)]
