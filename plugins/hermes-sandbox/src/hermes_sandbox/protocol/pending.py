"""What has been asked of an agent and not been answered yet."""

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
"""Characters of an answer in parts that are held in memory, and entries of one part."""
_FIELDS, _LONGEST = 16, 4096
"""Values of one entry, and characters of one of them."""


class Download:
    """A file's bytes as they arrive, held once: `io.BytesIO` hands its buffer over without copying it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._content = io.BytesIO()
        self._digest = hashlib.sha256()

    def add(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            FrameError: They are more than was asked for.
        """
        if self._content.tell() + len(data) > self._limit:
            raise FrameError(f"more than the {self._limit} bytes of a file that were asked for")
        self._digest.update(data)
        self._content.write(data)

    def result(self, sha256: str, path: str) -> bytes:
        """Return all of it.

        Raises:
            BackendError: It is not what was sent.
        """
        found = self._digest.hexdigest()
        if found != sha256:
            raise BackendError(f"{path} was damaged on its way: wanted {sha256}, found {found}")
        return self._content.getvalue()


@dataclass(slots=True)
class Pending:
    """One question: the future of its answer, the slot it is about, and what has come before the answer."""

    future: asyncio.Future[tuple[dict[str, Any], bytes]]
    slot: int | None
    parts: list[Any] = field(default_factory=list)
    size: int = 0
    file: Download | None = None

    def add(self, part: Any) -> None:
        """Keep a part of the answer; of more than the directory of 150,000 files has, none, and the question fails.

        Raises:
            FrameError: It is no list of entries.
        """
        if self.future.done():
            return
        if not isinstance(part, list) or len(part) > _ENTRIES or not all(map(_is_entry, part)):
            raise FrameError(f"a part of an answer that no agent gives, of type {type(part).__name__}")
        self.size += len(repr(part))
        self.parts.append(part)
        if self.size > _PARTS:
            self.parts.clear()
            self.future.set_exception(OSError(errno.EFBIG, "It has more entries than can be listed at once"))


def _is_entry(value: Any) -> bool:
    """Tell whether it is a flat dict: lists in lists have fifty times the size that they had on their way."""
    return (
        isinstance(value, dict)
        and len(value) <= _FIELDS
        and all(item is None or isinstance(item, str | int | float) for item in value.values())
        and all(len(item) <= _LONGEST for item in value.values() if isinstance(item, str))
    )


def fail_all(pending: Iterable[Pending], reason: str) -> None:
    """Raise `SandboxLostError` for whoever still waits."""
    for waiting in pending:
        if not waiting.future.done():
            waiting.future.set_exception(SandboxLostError(reason))


def as_exception(error: Mapping[str, Any]) -> Exception:
    """Return what an agent has answered as what its caller is to catch."""
    code, text = error["errno"], error["text"]
    if error.get("lost"):
        return SandboxLostError(f"the sandbox is lost: {text}")
    return ValueError(text) if code is None else OSError(code, text)
