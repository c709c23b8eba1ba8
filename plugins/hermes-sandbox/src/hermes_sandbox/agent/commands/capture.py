"""Keeps the head and the tail of a command's output, in constant memory."""

from __future__ import annotations


class Ring:
    """The first and the last `limit` bytes of a stream, and an exact count of all of them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes | memoryview) -> None:
        """Add the next bytes of the stream."""
        self.total += len(data)
        room = self.limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self.limit :] if self.limit else b""
        if len(self._tail) > 2 * self.limit:
            # The tail is cut only at twice the limit, which keeps the cost per byte constant.
            del self._tail[: -self.limit]

    def parts(self) -> tuple[bytes, bytes]:
        """Return head and tail. The number of bytes between them is `total` minus their lengths."""
        start = max(0, len(self._tail) - self.limit)
        return bytes(self._head), bytes(self._tail[start:])


class Capture:
    """The output of one command: stdout and stderr, or one stream that is both."""

    def __init__(self, limit: int, *, merge_stderr: bool) -> None:
        self._rings = [Ring(limit) for _ in range(1 if merge_stderr else 2)]

    def add(self, stream: int, data: bytes | memoryview) -> None:
        """Add bytes of stdout (0) or stderr (1)."""
        self._rings[-stream].add(data)  # -1 is the last ring, which is stderr's even if it is the only one

    def report(self) -> tuple[list[list[int]], bytes]:
        """Return `[head, tail, total]` lengths of each stream, and the bytes of all in that order."""
        layout = []
        pieces = []
        for ring in self._rings:
            head, tail = ring.parts()
            layout.append([len(head), len(tail), ring.total])
            pieces += [head, tail]
        return layout, b"".join(pieces)
