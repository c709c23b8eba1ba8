"""The last part of an endless stream of bytes, read by position."""

from __future__ import annotations


class TailRing:
    """Keeps the last `limit` bytes and counts all of them exactly."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        self._data += data
        if len(self._data) > 2 * self.limit:
            # Cutting only when twice the limit is reached keeps the cost per byte constant.
            del self._data[: -self.limit]

    def read(self, offset: int, size: int) -> tuple[int, bytes]:
        """Return where the piece really starts and at most `size` bytes; a negative offset counts from the end."""
        wanted = self.total + offset if offset < 0 else offset
        oldest = self.total - min(len(self._data), self.limit)
        start = min(max(wanted, oldest), self.total)
        begin = start - (self.total - len(self._data))
        return start, bytes(self._data[begin : begin + size])
