"""The caller's end of an agent's stream: numbered requests, heartbeat, cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_sandbox.agent.wire import (
    CHUNK,
    MAX_BODY,
    PREFIX,
    PROTOCOL,
    Decoder,
    decode_header,
    encode_head,
    lengths,
)
from hermes_sandbox.protocol.bootstrap import agent_message
from hermes_sandbox.protocol.pending import Download, Pending, as_exception, fail_all
from hermes_sandbox.protocol.push_reader import CallbackReader
from hermes_sandbox.protocol.streams import AgentStream, ByteReader

_ACKNOWLEDGE: Final = 10.0
"""Seconds in which a cancelled request must end in the sandbox; ending its processes takes 2.5 at most."""
_SMALL: Final = 1 << 14
"""Bodies below this many bytes are copied behind their header, larger ones are written separately."""
_CLOSING: Final = 3.0
"""Seconds to close a stream; if it takes longer, it ends with the agent's process."""


EventHandler = Callable[[dict[str, Any], bytes], None]
"""Called with the header and the body of an unsolicited frame; must not block."""


class AgentClient:
    """Sends requests to an agent and matches its answers; a lost agent fails every request at once.

    `greeting` describes the agent: pid, uid, python, protocol, can_setuid, shielded, open_sockets (why).

    Args:
        stream: The connection.
        patience: Seconds of silence during a request after which the agent counts as lost.
    """

    def __init__(self, stream: AgentStream, *, patience: float = 20.0) -> None:
        self.greeting: Mapping[str, Any] = {}
        self._stream = stream
        self._patience = patience
        self._pending: dict[int, Pending] = {}
        self._number = 0
        self._slots = 0
        self._events: dict[tuple[str, int | None], EventHandler] = {}
        self._lost: str | None = None
        self._heard = 0.0
        self._beat: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder()
        self._reader = self._begin(stream.reader)

    @classmethod
    async def connect(
        cls, stream: AgentStream, hello: Mapping[str, Any], *, timeout: float, patience: float = 20.0
    ) -> AgentClient:
        """Send the agent's program, unless it is there, and exchange greetings.

        Raises:
            BackendError: Nothing answered, or something other than an agent.
        """
        client = cls(stream, patience=max(patience, timeout))
        try:
            # Inside the `try`: when this is cancelled, no other code closes the stream yet.
            if not stream.is_agent:
                stream.writer.write(await asyncio.to_thread(agent_message))
            # A separate deadline: a cancelled request would wait for a confirmation from an agent that gives none.
            answer, _ = await client.request({"op": "hello", **hello}, deadline=timeout)
        except (SandboxLostError, OSError) as error:
            await client.aclose()
            output = (await stream.diagnose()).strip()
            detail = f"; its output: {output[-2000:]}" if output else ""
            raise BackendError(_why_not_started(error, timeout, stream.where) + detail) from error
        except BaseException:
            await client.aclose()
            raise
        if answer["protocol"] != PROTOCOL:
            await client.aclose()
            raise BackendError(f"expected an agent of protocol {PROTOCOL}, got {answer['protocol']}")
        client.greeting = answer
        client._rest(patience)
        return client

    def next_slot(self) -> int:
        """Return a number that no slot of this agent ever had."""
        self._slots += 1
        return self._slots

    @property
    def lost(self) -> str | None:
        """Why the agent is lost; None while it is usable."""
        return self._lost

    def on_event(self, name: str, handler: EventHandler, *, slot: int | None = None) -> None:
        """Call `handler` for every unsolicited frame of this name, from one slot or the agent as a whole (None)."""
        self._events[name, slot] = handler

    def forget_event(self, name: str, *, slot: int | None = None) -> None:
        """Remove a handler, if there is one; frames without a handler are dropped."""
        self._events.pop((name, slot), None)

    def notify(self, header: Mapping[str, Any], body: bytes | memoryview = b"") -> None:
        """Send a frame that gets no answer.

        Raises:
            SandboxLostError: The agent is lost.
        """
        if self._lost is not None:
            raise SandboxLostError(self._lost)
        self._send({**header, "id": 0}, body)

    async def drain(self) -> None:
        """Wait until the transport has room for more; ends also when the agent is lost."""
        drained = asyncio.ensure_future(self._stream.writer.drain())
        try:
            await asyncio.wait((drained, self._reader), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not drained.cancel():
                with contextlib.suppress(ConnectionError):
                    drained.result()

    def _rest(self, patience: float) -> None:
        # The next check was planned with the patience of the start; without a request none is needed.
        self._patience = patience
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None

    async def request(
        self,
        header: Mapping[str, Any],
        body: bytes = b"",
        *,
        deadline: float | None = None,
        overdue: Callable[[str], None] | None = None,
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request and return the answer; when cancelled, return only after the agent has stopped the work.

        After `deadline` seconds without an answer, `overdue` is called with the reason; without it, the agent is lost.
        """
        number, pending = self._start(header, body)
        alarm = deadline and self._loop.call_later(deadline, overdue or self.fail, f"no answer within {deadline:.0f} s")
        try:
            return await self._finish(number, pending)
        finally:
            if alarm:
                alarm.cancel()

    async def collect(self, header: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        """Send a request and return the answer with the parts that preceded it."""
        number, pending = self._start(header, b"")
        answer, _ = await self._finish(number, pending)
        return answer, pending.parts

    async def download(self, header: Mapping[str, Any], limit: int) -> bytes:
        """Return at most `limit` bytes of a file, checked against the hash that comes last."""
        number, pending = self._start(header, b"")
        pending.file = Download(limit)
        answer, _ = await self._finish(number, pending)
        return pending.file.result(answer["sha256"], header["path"])

    async def upload(self, header: Mapping[str, Any], data: bytes) -> None:
        """Send a file in pieces, with its hash."""
        view = memoryview(data)
        digest = hashlib.sha256(view[:CHUNK])  # after all pieces: the agent does not wait for it
        opening = {**header, "sha256": digest.hexdigest() if len(view) <= CHUNK else None}
        number, pending = self._start(opening, view[:CHUNK])
        try:
            for start in range(CHUNK, len(view), CHUNK):
                await self._room(pending)
                if pending.future.done():
                    break
                piece = view[start : start + CHUNK]
                digest.update(piece)
                last = start + CHUNK >= len(view)
                self._send({"id": number, "op": "data", "sha256": digest.hexdigest() if last else None}, piece)
        except asyncio.CancelledError:
            await self._withdraw(number, pending)
            raise
        except ConnectionError as error:
            self.fail(f"the stream broke: {error}")
        await self._finish(number, pending)

    async def _room(self, pending: Pending) -> None:
        # A stopped agent reads nothing: the wait for room ends when the request fails.
        drained = asyncio.ensure_future(self._stream.writer.drain())
        try:
            await asyncio.wait((drained, pending.future), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not drained.cancel():
                drained.result()

    def _start(self, header: Mapping[str, Any], body: bytes | memoryview) -> tuple[int, Pending]:
        if self._lost is not None:
            raise SandboxLostError(self._lost)
        self._number += 1
        number = self._number
        self._send({**header, "id": number}, body)
        pending = Pending(self._loop.create_future(), header.get("slot"))
        self._pending[number] = pending
        if self._beat is None:
            self._heard = self._loop.time()
            self._beat = self._loop.call_later(self._patience / 4, self._check_silence)
        return number, pending

    def _send(self, header: Mapping[str, Any], body: bytes | memoryview) -> None:
        head = encode_head(header, len(body))
        if len(body) < _SMALL:
            self._stream.writer.write(head + body)
        else:
            self._stream.writer.write(head)
            self._stream.writer.write(body)

    async def _finish(self, number: int, pending: Pending) -> tuple[dict[str, Any], bytes]:
        try:
            return await pending.future
        except asyncio.CancelledError:
            await self._withdraw(number, pending)
            raise

    async def _withdraw(self, number: int, pending: Pending) -> None:
        if self._pending.get(number) is not pending:
            return
        if pending.future.cancelled():
            # The caller has gone; from now on only the confirmation of the stop is awaited.
            pending.future = self._loop.create_future()
        # After a second cancellation the answer is not awaited any more, which is not an error.
        pending.future.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._send({"id": 0, "op": "cancel", "target": number}, b"")
        done, _ = await asyncio.wait((pending.future,), timeout=_ACKNOWLEDGE)
        if not done:
            self.fail(f"a cancelled request was not stopped within {_ACKNOWLEDGE:g} s")

    def _check_silence(self) -> None:
        self._beat = None
        if not self._pending:
            return
        if (silent := self._loop.time() - self._heard) >= self._patience:
            self.fail(f"the agent{self._stream.where} has been silent for {silent:.0f} s")
            return
        self._send({"id": 0, "op": "ping"}, b"")
        self._beat = self._loop.call_later(self._patience / 4, self._check_silence)

    def _begin(self, reader: ByteReader) -> asyncio.Future[None]:
        if not isinstance(reader, CallbackReader):
            return self._loop.create_task(self._read(reader))
        self._reader = self._loop.create_future()
        reader.subscribe(self._take, self._note_end)
        return self._reader

    def _take(self, data: bytes | memoryview) -> None:
        try:
            for header, body in self._decoder.feed(data):
                self._receive(header, body)
        except Exception as error:  # noqa: BLE001 - an agent that the model has replaced may send anything
            self._break(f"the agent's stream is broken: {error}")

    def _note_end(self, error: OSError | None) -> None:
        rest = self._decoder.rest()
        said = f" after {rest!r}" if rest else ""
        self._break(f"the agent's stream is broken: {error}" if error is not None else f"the agent has gone{said}")

    def _break(self, reason: str) -> None:
        self.fail(reason)
        if not self._reader.done():
            self._reader.set_result(None)

    async def _read(self, reader: ByteReader) -> None:
        try:
            while True:
                head, size = lengths(await reader.readexactly(PREFIX.size))
                header = decode_header(await reader.readexactly(head))
                self._receive(header, await reader.readexactly(size) if size else b"")
        except asyncio.IncompleteReadError as error:
            rest = f" after {error.partial[:200]!r}" if error.partial else ""
            self.fail(f"the agent has gone{rest}")
        except Exception as error:  # noqa: BLE001 - as above
            self.fail(f"the agent's stream is broken: {error}")

    def _receive(self, header: dict[str, Any], body: bytes) -> None:
        self._heard = self._loop.time()
        number = header["id"]
        if "event" in header:
            self._dispatch(header, body)
            return
        if "part" in header:
            pending = self._pending.get(number)
            if pending is not None and pending.file is not None:
                pending.file.add(body)
            elif pending is not None:
                pending.add(header["part"])
            return
        pending = self._pending.get(number)
        if pending is not None and not pending.future.done():
            if "error" in header:
                pending.future.set_exception(as_exception(header["error"]))
            else:
                pending.future.set_result((dict(header["ok"]), body))
        self._pending.pop(number, None)  # not before: a senseless answer must fail its caller

    def _dispatch(self, header: dict[str, Any], body: bytes) -> None:
        name, slot = header["event"], header.get("slot") or None
        handler = self._events.get((name, slot))
        if handler is not None:
            handler(header, body)

    def fail(self, reason: str) -> None:
        """Declare the agent lost: pending and further requests raise `SandboxLostError`."""
        if self._lost is None:
            self._lost = f"the sandbox is lost: {reason}"
        pending, self._pending = self._pending, {}
        fail_all(pending.values(), self._lost)
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        # Not only closed: that would wait until the agent has read everything sent before.
        # Only once: asyncio's pipes fail on a second abort.
        transport = self._stream.writer.transport
        if not transport.is_closing():
            transport.abort()

    def fail_slot(self, slot: int, reason: str) -> None:
        """Fail the requests of one slot, and no others."""
        mine = {number: pending for number, pending in self._pending.items() if pending.slot == slot}
        for number in mine:
            del self._pending[number]
        fail_all(mine.values(), reason)

    async def restart(self, *, deadline: float = 20.0) -> AgentStream:
        """End every other process inside, and return the stream of a new Python that waits for an agent.

        Raises:
            SandboxLostError: That failed; the agent is lost.
        """
        try:
            answer, _ = await self.request({"op": "restart"}, deadline=deadline)
        except OSError as error:
            self.fail(f"it could not be started again: {error}")
            raise SandboxLostError(str(self._lost)) from error
        if not answer["clean"]:
            self.fail("processes inside cannot be killed")
            raise SandboxLostError(str(self._lost))
        self._lost = "the agent was started again"
        pending, self._pending = self._pending, {}
        fail_all(pending.values(), self._lost)
        self._rest(self._patience)
        await self._stop_reading()
        return self._stream

    async def aclose(self) -> None:
        """Close the stream; the agent then kills everything and exits."""
        self.fail("it was closed")
        self._stream.writer.close()
        await self._stop_reading()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSING):
                await self._stream.writer.wait_closed()

    async def _stop_reading(self) -> None:
        if isinstance(self._stream.reader, CallbackReader):
            self._stream.reader.unsubscribe()
        self._reader.cancel()
        await asyncio.wait((self._reader,))


def _why_not_started(error: Exception, timeout: float, where: str) -> str:
    if isinstance(error, OSError):
        return f"the agent started but cannot set its limits: {error}"
    why = f"within {timeout:g} s" if "no answer within" in str(error) else f"({error})"
    return f"the agent{where} did not start {why}"


def require_fits(data: bytes, what: str) -> None:
    """Raise ValueError for data that is too large for one frame."""
    limit = MAX_BODY - CHUNK
    if len(data) > limit:
        raise ValueError(f"{what} may have {limit} bytes, got {len(data)}; write a file and read it in the command")
