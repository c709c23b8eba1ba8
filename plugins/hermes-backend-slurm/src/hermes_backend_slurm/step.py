"""A program on a node, as a step of the allocation with piped standard input and output."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Self

from hermes_backend_slurm.commands import end
from hermes_backend_slurm.doubts import Doubts
from hermes_backend_slurm.failures import tail, without_noise
from hermes_core.contracts.errors import BackendError
from hermes_sandbox.backends import AgentStream, CallbackReader, open_callback_reader, system_error

_ENDING: Final = re.compile(r"CANCELLED|Force Terminated|Job step aborted|Node failure")
"""Slurm's messages when it ends a step. Its SIGTERM also reaches the commands in the sandboxes; a command that it ends
must not be reported as one that ended by itself. The agent ignores the signal, and has KillWait (30 s) to end
everything."""
DOUBT: Final = 1.0
"""Seconds for which a reply that reports an end by this signal is held back until Slurm's message arrives."""
_EXPLAINING: Final = 1.0
_KEPT: Final = 1 << 14


class StepProgram:
    """A running srun. If its stream ends unexpectedly, Slurm's message becomes the reason."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        stream: AgentStream,
        cancel: Callable[[], Awaitable[None]],
        *,
        doubt: float = DOUBT,
    ) -> None:
        self._process = process
        self._cancel = cancel
        self._ending: asyncio.Future[bool] | None = None
        self._said = ""
        self._reader = CallbackReader()
        self._doubts = self._connect(stream, doubt)
        self._listening = asyncio.ensure_future(self._listen())
        self._explaining: asyncio.Future[None] | None = None
        self.stream = AgentStream(self._reader, stream.writer, self._diagnose)

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        cancel: Callable[[], Awaitable[None]],
        doubt: float = DOUBT,
    ) -> Self:
        """Start srun; `cancel` ends the step if srun has not ended it, `doubt` is in seconds."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=asyncio.subprocess.PIPE,
                    env=environment,
                    cwd="/",
                    start_new_session=True,
                )
        except BaseException as error:
            ours.close()
            if isinstance(error, OSError):
                raise system_error("srun cannot be started", error) from error
            raise
        try:
            reader, writer = await open_callback_reader(ours)
        except BaseException:
            ours.close()
            await end(process)
            raise
        return cls(process, AgentStream(reader, writer), cancel, doubt=doubt)

    def _connect(self, stream: AgentStream, doubt: float) -> Doubts:
        inner, transport = stream.reader, stream.writer.transport
        assert isinstance(inner, CallbackReader)
        assert isinstance(transport, asyncio.Transport)
        self._reader.set_transport(transport)
        doubts = Doubts(self._reader, transport, seconds=doubt)

        def over(error: OSError | None) -> None:
            self._explaining = asyncio.ensure_future(self._explain(error))

        inner.subscribe(doubts.feed, over)
        return doubts

    @property
    def _ended_by_slurm(self) -> bool:
        return _ENDING.search(self._said) is not None

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        # Not by lines: a line without an end would stop this reader, and then srun.
        while data := await self._process.stderr.read(_KEPT):
            said = (self._said + data.decode(errors="replace")).splitlines(keepends=True)
            self._said = "".join(without_noise(said))[-_KEPT:]
            if self._ended_by_slurm:
                self._doubts.justify()
                self._reader.finish(ConnectionResetError(tail(self._said)))

    async def _diagnose(self) -> str:
        # Standard error is complete once srun has ended; until then, return what has arrived.
        await asyncio.wait((self._listening,), timeout=_EXPLAINING)
        return self._said

    async def _explain(self, error: OSError | None) -> None:
        said = await self._diagnose()
        self._doubts.dispel()
        self._reader.finish(ConnectionResetError(tail(said)) if said.strip() else error)

    @property
    def over(self) -> bool:
        """Whether it is known that the program has ended, successfully or not."""
        return self._ending is not None and self._ending.done()

    async def wait(self, seconds: float) -> bool:
        """Wait for the program's end, and end it after `seconds`; return True if it ended by itself with status 0."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end(seconds))
        return await asyncio.shield(self._ending)

    async def _end(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            pass
        well = self._process.returncode == 0 and not self._ended_by_slurm
        self.stream.writer.close()
        await end(self._process)
        await asyncio.wait({self._listening} | ({self._explaining} if self._explaining else set()))
        if not well:
            try:
                await self._cancel()
            except BackendError:
                # Without slurmctld nothing can be cancelled, but the agent ends anyway once its srun has ended.
                return False
        return well
