"""Encodes untrusted text with a private copy of the tokenizer that knows no control tokens."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, Final

from hermes_core.tokens.vocabulary import is_blank

_REPLACEMENT: Final = "\ufffd"


class PlainEncoder:
    """Has up to three private tokenizers, which differ in what they put before a text's first word.

    Switching a shared one between two ways of encoding would race with other threads that use it.
    """

    def __init__(self, data: Mapping[str, Any], control_ids: frozenset[int]) -> None:
        from tokenizers import Tokenizer

        self._forbidden = control_ids
        start = _without_control_tokens(data)
        inner = _with_prefix_scheme(start, never=("first",))
        continued = _without_prefix(_with_prefix_scheme(start, never=("first", "always")))
        made: dict[str, Any] = {}
        for each in (start, inner, continued):
            key = json.dumps([each["normalizer"], each["pre_tokenizer"]])
            made[key] = made.get(key) or Tokenizer.from_str(json.dumps(each))
        self._start, self._inner, self._continued = (
            made[json.dumps([each["normalizer"], each["pre_tokenizer"]])] for each in (start, inner, continued)
        )

    def encode(self, text: str, *, at_start: bool = False, continued: bool = False) -> list[int]:
        """Return ids of which none is a control id."""
        tokenizer = self._continued if continued else self._start if at_start else self._inner
        try:
            encoding = tokenizer.encode(text, add_special_tokens=False)
        except TypeError:  # a lone surrogate is no text to the library
            clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return self.encode(clean, at_start=at_start, continued=continued)
        ids: list[int] = encoding.ids
        if self._forbidden.isdisjoint(ids):
            return ids
        return self._divided(text, encoding, tokenizer)

    def _divided(self, text: str, encoding: Any, tokenizer: Any) -> list[int]:
        """Cut the first control token's text in two and encode each side alone.

        A vocabulary may hold `</s>` as an ordinary piece, which no list of added tokens tells.
        """
        place = next(index for index, token in enumerate(encoding.ids) if token in self._forbidden)
        start, end = encoding.offsets[place]
        if end - start < 2:
            return [token for token in encoding.ids if token not in self._forbidden]
        head, tail = text[: start + 1], text[start + 1 :]
        left = tokenizer.encode(head, add_special_tokens=False)
        first = list(left.ids) if self._forbidden.isdisjoint(left.ids) else self._divided(head, left, tokenizer)
        return first + self.encode(tail, continued=True)


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
    """Return the tokenizer so that a text which continues another gets no space before it."""
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
