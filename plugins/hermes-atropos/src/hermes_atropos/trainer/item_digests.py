"""Digests of items that are JSON (and sets), to know them again after a restart."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hermes_core.contracts.model import encode


class ItemDigests:
    """Digests of the items of one process, each as it was when it first came.

    An author's own code may change an item that it plays, and a dataset that is cycled through gives it again.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, str]] = {}

    def digest(self, item: Any) -> str:
        """Return an item's digest, "" where it cannot be compared; the item is kept, so that no other has its id."""
        if id(item) not in self._known:
            text = _text(item).encode("utf-8", "replace")
            self._known[id(item)] = (item, hashlib.sha256(text).hexdigest()[:16] if text else "")
        return self._known[id(item)][1]


def is_json(value: Any) -> bool:
    """Tell whether a value can be written as JSON and read again as the same."""
    try:
        return bool(json.loads(encode(value)) == value)
    except (TypeError, ValueError, RecursionError):
        return False


def _text(item: Any) -> str:
    """Return an item as text that is the same in each process, "" where it holds what has none: images, objects."""
    try:
        return json.dumps(item, default=_sorted_members, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return ""


def _sorted_members(value: Any) -> list[str]:
    """Return the members of a set as texts, in order; raises `TypeError` for anything else."""
    if not isinstance(value, set | frozenset):
        raise TypeError(type(value).__name__)
    return sorted(json.dumps(member, default=_sorted_members, sort_keys=True) for member in value)
