"""Pass on an agent's stream and take single frames out of it."""

from __future__ import annotations

from collections.abc import Callable

from hermes_sandbox.remote import PREFIX, FrameError, lengths

Bytes = bytes | bytearray | memoryview


class FrameSieve:
    """Passes on a stream without delay, except for frames with a `wanted` header.

    It buffers an incomplete frame header, and a wanted frame until it is complete; it does not inspect bodies. Invalid
    data is passed on with everything after it, because the reader reports the error.

    Args:
        push: Called with the data that is passed on, whose buffer is valid during the call only.
        wanted: Decides, from its JSON header, whether a frame is taken out.
        take: Called with each frame that was taken out.
    """

    def __init__(
        self,
        push: Callable[[bytes | memoryview], None],
        *,
        wanted: Callable[[bytes], bool],
        take: Callable[[bytes], None],
    ) -> None:
        self._push = push
        self._wanted = wanted
        self._take = take
        self._head = bytearray()
        self._left = 0
        self._taking: bytearray | None = None
        self._framed = True

    def feed(self, data: Bytes) -> None:
        """Process the stream's next bytes."""
        view = memoryview(data)
        try:
            while view and self._framed:
                view = view[self._step(view) :]
        except FrameError:
            self._framed = False
            self.flush()
        if len(view):
            self._push(view)

    def flush(self) -> None:
        """Pass on an incomplete frame, because the stream has ended or is not valid."""
        rest, self._taking, self._head = (self._taking or b"") + self._head, None, bytearray()
        if rest:
            self._push(bytes(rest))

    def _step(self, view: memoryview) -> int:
        """Process at least one of the next bytes, and return how many were processed."""
        if self._taking is not None:
            return self._collect(self._taking, view)
        return (0 if self._head else self._run(view)) or self._gather(view)

    def _run(self, view: memoryview) -> int:
        """Pass on, in one piece, the data before a wanted or incomplete header."""
        at = min(self._left, len(view))
        left = self._left - at
        while at < len(view):
            head = _head_size(view[at:])
            if head > len(view) - at or self._wanted(bytes(view[at + PREFIX.size : at + head])):
                break
            frame = head + _body_size(view[at:])
            left = max(0, at + frame - len(view))
            at += frame - left
        self._left = left
        if at:
            self._push(view[:at])
        return at

    def _gather(self, view: memoryview) -> int:
        """Collect the head of a frame, and once it is complete decide whether the frame is wanted."""
        # A copy, so that data which turns out not to be a frame is passed on unchanged.
        head = self._head if len(self._head) >= PREFIX.size else bytearray(self._head)
        at = 0
        while at < len(view) and (lacking := _head_size(head) - len(head)):
            piece = view[at : at + lacking]
            head += piece
            at += len(piece)
        if len(head) < _head_size(head):
            self._head = head
            return at
        self._head = bytearray()
        self._left = _body_size(head)
        if self._wanted(bytes(head[PREFIX.size :])):
            self._taking = head
            self._collect(head, view[:0])
        else:
            self._push(bytes(head))
        return at

    def _collect(self, frame: bytearray, view: memoryview) -> int:
        """Add to the body of a wanted frame."""
        size = min(self._left, len(view))
        frame += view[:size]
        self._left -= size
        if not self._left:
            self._taking = None
            self._take(bytes(frame))
        return size


def _head_size(data: Bytes) -> int:
    """Return the total length of prefix and header, if the start of the frame contains it."""
    head, _ = lengths(bytes(data[: PREFIX.size]).ljust(PREFIX.size, b"\0"))
    return PREFIX.size + (head if len(data) >= PREFIX.size else 0)


def _body_size(data: Bytes) -> int:
    return lengths(bytes(data[: PREFIX.size]))[1]
