"""Digests of items of JSON values and sets, to recognise them after a restart."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hermes_core.contracts.model import encode


class ItemDigests:
    """Digests of the items of one process, each in its state on first sight.

    The author's code may change an item, and a cycled dataset returns the same object again.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, str]] = {}

    def digest(self, item: Any) -> str:
        """Return an item's digest, or "" if it cannot be compared; the item is kept so that its `id()` stays unique."""
        if id(item) not in self._known:
            text = _text(item).encode("utf-8", "replace")
            self._known[id(item)] = (item, hashlib.sha256(text).hexdigest()[:16] if text else "")
        return self._known[id(item)][1]


def is_json(value: Any) -> bool:
    """Return whether a value survives a round trip through JSON."""
    try:
        return bool(json.loads(encode(value)) == value)
    except (TypeError, ValueError, RecursionError):
        return False


def _text(item: Any) -> str:
    """Return an item as text that is equal in every process, or "" if it contains images or other objects."""
    try:
        return json.dumps(item, default=_sorted_members, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return ""


def _sorted_members(value: Any) -> list[str]:
    """Return the members of a set as sorted texts; raise `TypeError` for anything else."""
    if not isinstance(value, set | frozenset):
        raise TypeError(type(value).__name__)
    return sorted(json.dumps(member, default=_sorted_members, sort_keys=True) for member in value)
