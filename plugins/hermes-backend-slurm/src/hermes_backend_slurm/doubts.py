"""Hold back replies that report an end by SIGTERM, until it is known whether Slurm has sent it to end the step."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final

from hermes_backend_slurm.frames import FrameSieve
from hermes_sandbox.backends import CallbackReader
from hermes_sandbox.remote import PREFIX, FrameError, decode_header, lengths

_TERMINATED: Final = 143
_KEPT: Final = 1 << 24
"""Bytes of held replies above which the step's stream is not read."""
_REMEMBERED: Final = 1 << 12
"""How many processes are remembered as ended by themselves."""


class Doubts:
    """Passes on an agent's stream, but holds doubtful replies back to wait for Slurm's message.

    A reply is doubtful if it reports exit code 143. Slurm's message does not come through the stream, and can arrive
    later. Everything else in the stream, of other sandboxes and of the same one, is passed on at once. A background
    process is doubted once, not whenever it is listed.

    Args:
        reader: The receiver of the stream.
        transport: The source of the stream, paused while too much is held.
        seconds: How long a reply is held back.
    """

    def __init__(self, reader: CallbackReader, transport: asyncio.ReadTransport, *, seconds: float) -> None:
        self._reader = reader
        self._transport = transport
        self._seconds = seconds
        self._sieve = FrameSieve(reader.push, wanted=self._is_doubtful, take=self._keep)
        self._waiting: deque[tuple[bytes, asyncio.TimerHandle]] = deque()
        self._size = 0
        self._believed: dict[Hashable, None] = {}
        self._justified = False

    def feed(self, data: bytes | memoryview) -> None:
        """Process the stream's next bytes."""
        self._sieve.feed(data)

    def justify(self) -> None:
        """Drop every doubtful reply, held or still to come, because Slurm has ended the step."""
        self._justified = True
        while self._waiting:
            self._waiting.popleft()[1].cancel()
        self._size = 0
        self._transport.resume_reading()

    def dispel(self) -> None:
        """Pass on all held replies, because the stream has ended without a message from Slurm."""
        self._sieve.flush()
        while self._waiting:
            self._waiting[0][1].cancel()
            self._believe()

    def _is_doubtful(self, text: bytes) -> bool:
        if str(_TERMINATED).encode() not in text:
            return False  # the usual case; only other headers are parsed
        return any(end not in self._believed for end in _ends(text))

    def _keep(self, frame: bytes) -> None:
        if self._justified:
            return
        self._size += len(frame)
        timer = asyncio.get_running_loop().call_later(self._seconds, self._believe)
        self._waiting.append((frame, timer))
        if self._size > _KEPT:
            self._transport.pause_reading()

    def _believe(self) -> None:
        # All replies are held equally long, so the first one is due.
        frame, _ = self._waiting.popleft()
        self._size -= len(frame)
        if self._size <= _KEPT:
            self._transport.resume_reading()
        head, _ = lengths(frame[: PREFIX.size])
        self._believed.update(dict.fromkeys(_ends(frame[PREFIX.size : PREFIX.size + head])))
        while len(self._believed) > _REMEMBERED:
            del self._believed[next(iter(self._believed))]
        self._reader.push(frame)


def _ends(text: bytes) -> Iterator[Hashable]:
    """Yield a unique key for each command that a frame reports as ended by SIGTERM."""
    try:
        header = decode_header(text)
    except FrameError:
        return  # the reader of the stream reports the error
    number, answer = header.get("id"), header.get("ok")
    if "event" in header and header.get("exit_code") == _TERMINATED:
        yield header.get("slot"), header.get("job")
    if not isinstance(answer, Mapping):
        return
    told = answer.get("jobs")
    for one in (answer, *(told if isinstance(told, list) else ())):
        if isinstance(one, Mapping) and one.get("exit_code") == _TERMINATED:
            yield _name(one, number)


def _name(told: Mapping[str, Any], number: object) -> Hashable:
    # A reply about a foreground command has no process id, and comes once.
    return (told["id"], told["pid"], told["started_at"]) if "pid" in told else ("answer", number)
