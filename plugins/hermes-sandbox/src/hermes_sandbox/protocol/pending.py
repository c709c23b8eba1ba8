"""Requests to an agent that are not answered yet."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_sandbox.agent.wire import FrameError

_PARTS, _ENTRIES = 16 << 20, 1000
"""Limits of an answer in parts: characters held in memory, and entries of one part."""
_FIELDS, _LONGEST = 16, 4096
"""Limits of one entry: values, and characters of one value."""


class Download:
    """Collects a file's bytes in one copy: `io.BytesIO` returns its buffer without copying it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._content = io.BytesIO()
        self._digest = hashlib.sha256()

    def add(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            FrameError: There are more than requested.
        """
        if self._content.tell() + len(data) > self._limit:
            raise FrameError(f"more than the requested {self._limit} bytes of a file")
        self._digest.update(data)
        self._content.write(data)

    def result(self, sha256: str, path: str) -> bytes:
        """Return all of it.

        Raises:
            BackendError: The hash differs.
        """
        found = self._digest.hexdigest()
        if found != sha256:
            raise BackendError(f"{path} was damaged in transit: expected hash {sha256}, got {found}")
        return self._content.getvalue()


@dataclass(slots=True)
class Pending:
    """One request: the future of its answer, its slot, and the parts that came before the answer."""

    future: asyncio.Future[tuple[dict[str, Any], bytes]]
    slot: int | None
    parts: list[Any] = field(default_factory=list)
    size: int = 0
    file: Download | None = None

    def add(self, part: Any) -> None:
        """Keep a part of the answer. If all parts have too many characters (about 150,000 files), fail the request.

        Raises:
            FrameError: It is not a list of entries.
        """
        if self.future.done():
            return
        if not isinstance(part, list) or len(part) > _ENTRIES or not all(map(_is_entry, part)):
            raise FrameError(f"expected a list of entries as part of an answer, got {type(part).__name__}")
        self.size += len(repr(part))
        self.parts.append(part)
        if self.size > _PARTS:
            self.parts.clear()
            self.future.set_exception(OSError(errno.EFBIG, "It has more entries than can be listed at once"))


def _is_entry(value: Any) -> bool:
    """Tell whether it is a flat dict: nested lists need fifty times the memory of their bytes."""
    return (
        isinstance(value, dict)
        and len(value) <= _FIELDS
        and all(item is None or isinstance(item, str | int | float) for item in value.values())
        and all(len(item) <= _LONGEST for item in value.values() if isinstance(item, str))
    )


def fail_all(pending: Iterable[Pending], reason: str) -> None:
    """Fail all pending requests with `SandboxLostError`."""
    for waiting in pending:
        if not waiting.future.done():
            waiting.future.set_exception(SandboxLostError(reason))


def as_exception(error: Mapping[str, Any]) -> Exception:
    """Return an agent's error answer as an exception for the caller."""
    code, text = error["errno"], error["text"]
    if error.get("lost"):
        return SandboxLostError(f"the sandbox is lost: {text}")
    return ValueError(text) if code is None else OSError(code, text)
