"""Copies of files and trees, a piece per request: the client sets the pace, and nothing is buffered."""

from __future__ import annotations

import errno
import os

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING
from hermes_sandbox.agent.file_access.files import require_replaceable
from hermes_sandbox.agent.file_access.packing import Packer
from hermes_sandbox.agent.file_access.unpacking import Unpacker
from hermes_sandbox.agent.slot import Slot
from hermes_sandbox.agent.wire import FrameError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Copies:
    """The copies of one slot in progress, by the client's names for them."""

    def __init__(self) -> None:
        self.outgoing: dict[str, Packer] = {}
        self.incoming: dict[str, Unpacker] = {}

    def busy(self) -> bool:
        """Tell whether a copy is in progress."""
        return bool(self.outgoing or self.incoming)

    def drop(self, name: str) -> None:
        """End a copy; an incomplete file is deleted."""
        packer = self.outgoing.pop(name, None)
        if packer is not None:
            packer.close()
        unpacker = self.incoming.pop(name, None)
        if unpacker is not None:
            unpacker.abort()

    def close(self) -> None:
        """End all of them."""
        for name in (*self.outgoing, *self.incoming):
            self.drop(name)


def _copies(slot: Slot) -> Copies:
    found = slot.features.get("copies")
    if found is None:
        found = slot.features["copies"] = Copies()
    assert isinstance(found, Copies)
    return found


def _no_copy(name: str) -> OSError:
    return OSError(errno.EBADF, f"The copy {name} has ended")


def pack(slot: Slot, request: dict[str, Any], _body: bytes) -> dict[str, Any]:
    """Prepare a copy of the target of a path, or of a symlink itself."""
    packer = Packer(
        slot.path(request["path"]),
        follow=request["follow"],
        max_bytes=request["max_bytes"],
        max_entries=request["max_entries"],
    )
    _copies(slot).outgoing[request["copy"]] = packer
    return {"single": packer.single}


def take(slot: Slot, request: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Send the next piece of a prepared copy; the last one comes with the hash."""
    name = request["copy"]
    packer = _copies(slot).outgoing.get(name)
    if packer is None:
        raise _no_copy(name)
    try:
        piece = packer.take()
    except BaseException:
        _copies(slot).drop(name)
        raise
    yield {"ok": {"end": packer.ended, "sha256": packer.digest.hexdigest() if packer.ended else None}}, piece


def unpack(slot: Slot, request: dict[str, Any], _body: bytes) -> dict[str, Any]:
    """Prepare the target of a copy; a symlink there is followed, as a shell would."""
    path = os.path.realpath(slot.path(request["path"]))
    if request["single"]:
        require_replaceable(path)
    unpacker = Unpacker(path)
    unpacker.expect(single=request["single"])
    _copies(slot).incoming[request["copy"]] = unpacker
    return {}


def give(slot: Slot, request: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Receive the next piece of a copy."""
    name = request["copy"]
    unpacker = _copies(slot).incoming.get(name)
    if unpacker is None:
        raise _no_copy(name)
    try:
        unpacker.add(body)
    except FrameError as error:
        _copies(slot).drop(name)
        raise OSError(errno.EPROTO, str(error)) from error
    except BaseException:
        _copies(slot).drop(name)
        raise
    return {}


def finish(slot: Slot, request: dict[str, Any], _body: bytes) -> dict[str, Any]:
    """End a copy that has arrived completely."""
    name = request["copy"]
    unpacker = _copies(slot).incoming.get(name)
    if unpacker is None:
        raise _no_copy(name)
    try:
        unpacker.commit(request["sha256"])
    except FrameError as error:
        raise OSError(errno.EIO, str(error)) from error
    finally:
        _copies(slot).drop(name)
    return {}


def drop(slot: Slot, request: dict[str, Any], _body: bytes) -> dict[str, Any]:
    """End a copy, complete or not."""
    _copies(slot).drop(request["copy"])
    return {}


CALLS = {"pack": pack, "unpack": unpack, "give": give, "finish": finish, "drop": drop}
STREAMS = {"take": take}
