"""Items compared across two starts: by what they say, whatever they are made of."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final

from hermes_core.contracts.model import encode

_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


class ItemDigests:
    """Digests of the items of one process, each as it was when it first came.

    An author's own code may change an item that it plays, and a dataset that is cycled through gives it again.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, str]] = {}

    def digest(self, item: Any) -> str:
        """Return an item's digest; the item is kept, so that no other object has its id."""
        if id(item) not in self._known:
            self._known[id(item)] = (item, hashlib.sha256(_text(item).encode("utf-8", "replace")).hexdigest()[:16])
        return self._known[id(item)][1]


def is_json(value: Any) -> bool:
    """Tell whether a value can be written as JSON and read again as the same."""
    try:
        return bool(json.loads(encode(value)) == value)
    except (TypeError, ValueError, RecursionError):
        return False


def _text(item: Any) -> str:
    try:
        return json.dumps(item, default=_plain, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return _plain(item)


def _plain(value: Any) -> str:
    """Return the `repr` of a value without what differs in each process: addresses, and the order of a set."""
    text = repr(sorted(map(repr, value))) if isinstance(value, set | frozenset) else repr(value)
    return _ADDRESS.sub("", text)
