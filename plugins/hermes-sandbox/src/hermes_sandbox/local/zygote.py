"""Forks agents from a warm Python, so that none of them has to start a Python and to import its modules."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hermes_core.cancellation import run_uncancelled
from hermes_sandbox.agent.boot.zygote import ANSWER, NO_MARK, REQUEST, pack_program
from hermes_sandbox.agent.processes import MARKER, read_process
from hermes_sandbox.local.cgroups import Group
from hermes_sandbox.protocol.agent_process import (
    AgentProcess,
    Child,
    Ends,
    ForkedChild,
    end_child,
    open_ends,
    read_errors,
    spawn,
)
from hermes_sandbox.protocol.bootstrap import ZYGOTE_FLAGS, agent_message
from hermes_sandbox.protocol.fd_limits import is_exhaustion, system_error
from hermes_sandbox.protocol.push_reader import open_callback_reader
from hermes_sandbox.protocol.streams import ByteReader

_GRACE: Final = 6.0
"""Seconds that a zygote gets to end by itself."""
_FULL: Final = 0.01
"""Seconds to wait while there are as many requests before the zygote as its socket holds."""
_LOOK: Final = 0.5
"""Seconds between looks whether a zygote that does not answer was stopped."""
_log = logging.getLogger(__name__)


class Zygote:
    """The zygote of one backend, started with the first agent and again when it is gone.

    The agents are children of this process, and outlive the zygote. See `hermes_sandbox.agent.boot.zygote`.

    Args:
        python: Its program.
        path: PATH in its environment.
        patience: Seconds in which it must have forked an agent.
    """

    def __init__(self, python: str, path: str, patience: float) -> None:
        self.python = python
        self._environment = {"PATH": path, "LANG": "C.UTF-8", MARKER: NO_MARK}
        self._patience = patience
        self._running: _Running | None = None
        self._is_useless = False

    async def fork(self, sandbox_id: str, group: Group | None, address_space: int | None) -> AgentProcess | None:
        """Return a new agent that enters a control group; None, with a warning, if none can be forked.

        `address_space` bounds the memory that each process may map, in bytes. An agent that cannot enter the group
        ends. When cancelled, nothing is left behind.

        Raises:
            BackendError: The group is gone, or there is a lack of descriptors.
        """
        return await self._request(_Request(sandbox_id, group, address_space))

    async def run(
        self,
        argv: Sequence[str],
        group: Group | None,
        address_space: int | None,
        *,
        environment: Mapping[str, str],
        uid: int | None = None,
        further: Sequence[int] = (),
    ) -> AgentProcess | None:
        """Return a process of another program, otherwise as `fork` does; it gets `further` descriptors from 3 on.

        It costs less than to start it from here, where much memory may have to be forked for that. Its parent, for
        `PR_SET_PDEATHSIG`, is the thread that has started the zygote, and `fork` and `run` use a zygote only there.
        """
        program = pack_program(argv, environment, uid)
        return await self._request(_Request("", group, address_space, program, further))

    async def _request(self, request: _Request) -> AgentProcess | None:
        if self._is_useless:
            return None
        forking = asyncio.ensure_future(self._fork(request))
        try:
            return await run_uncancelled(forking)
        except asyncio.CancelledError:
            if not forking.cancelled() and forking.exception() is None:
                agent = forking.result()
                if agent is not None:
                    agent.stream.writer.transport.abort()
                    # A program may not notice the end of its stream.
                    await run_uncancelled(agent.end(0.0 if request.program else _GRACE))
            raise

    async def _fork(self, request: _Request) -> AgentProcess | None:
        running = None
        with request.open_lists() as lists:
            try:
                with open_ends() as ends:
                    running = self._start()
                    async with asyncio.timeout(self._patience):
                        return await running.fork(request, ends, lists)
            except (OSError, EOFError) as error:  # TimeoutError is an OSError
                if isinstance(error, OSError) and is_exhaustion(error):
                    raise system_error("an agent cannot be started", error) from error
                await self._give_up(running, error)
                return None

    def _start(self) -> _Running:
        if self._running is None or not self._running.is_usable():
            self._running = _Running(self.python, self._environment)
        return self._running

    async def _give_up(self, running: _Running | None, error: OSError | EOFError) -> None:
        """Let agents be started in another way: this one or, by a zygote that has never forked any, all of them."""
        self._is_useless = self._is_useless or running is None or not running.has_forked
        if running is None:
            why = str(error)
        else:
            if running is self._running:
                self._running = None
            await running.end(0.0)
            said = running.read_errors().strip()
            why = said.splitlines()[-1] if said else self._describe(error)
        _log.warning(
            "%s starts a Python of its own instead of being forked by the zygote, which takes longer: %s",
            "each agent" if self._is_useless else "one agent",
            why,
        )

    def _describe(self, error: OSError | EOFError) -> str:
        if isinstance(error, EOFError):
            return "the zygote has ended"
        return f"no answer within {self._patience:g} s" if isinstance(error, TimeoutError) else str(error)

    async def aclose(self) -> None:
        """End the zygote; its agents stay, and the next `fork` starts another one."""
        running, self._running = self._running, None
        if running is not None:
            await running.end(_GRACE)


@dataclass(frozen=True, slots=True)
class _Request:
    """What to start; an agent if there is no `program`."""

    sandbox_id: str
    group: Group | None
    address_space: int | None
    program: bytes = b""
    further: Sequence[int] = ()

    @contextlib.contextmanager
    def open_lists(self) -> Iterator[Sequence[int]]:
        """Open the group's lists of processes within the block."""
        try:
            lists = [] if self.group is None else self.group.open_lists()
        except OSError as error:
            raise system_error("the sandbox's control group cannot be entered", error) from error
        try:
            yield lists
        finally:
            for each in lists:
                os.close(each)

    def send(self, control: socket.socket, ends: Ends, lists: Sequence[int]) -> None:
        """Send it; raises BlockingIOError if there is no room for it."""
        head = REQUEST.pack(self.sandbox_id.encode(), self.address_space or 0, len(lists), len(self.program))
        socket.send_fds(control, [head + self.program], [ends.theirs.fileno(), ends.errors, *self.further, *lists])


class _Running:
    """One zygote; ended with this object, and with this process."""

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        self.has_forked = False
        self._thread = threading.current_thread()
        with open_ends() as ends:
            self._process: Child = spawn(
                [python, *ZYGOTE_FLAGS], ends.theirs.fileno(), ends.errors, environment=environment
            )
        self._control, self._errors = ends.ours, ends.errors
        self._control.setblocking(False)
        self._finalize = weakref.finalize(self, _kill, self._process, self._control, self._errors)
        self._sending = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        await asyncio.get_running_loop().sock_sendall(self._control, await asyncio.to_thread(agent_message))

    def is_usable(self) -> bool:
        """Tell whether it lives, belongs to this thread, and does not depend on an event loop that is gone."""
        is_sent = self._sending.done() or self._sending.get_loop() is asyncio.get_running_loop()
        return is_sent and self._thread is threading.current_thread() and self._process.poll() is None

    async def fork(self, request: _Request, ends: Ends, lists: Sequence[int]) -> AgentProcess:
        """Return a new process with these ends.

        Raises:
            OSError: It was not forked.
            EOFError: The zygote is gone.
        """
        await asyncio.shield(self._sending)
        while True:
            try:
                request.send(self._control, ends, lists)
                break
            except BlockingIOError:
                await asyncio.sleep(_FULL)
        ends.theirs.close()  # so that the stream ends with the agent, or with a zygote that does not answer
        reader, writer = await open_callback_reader(ends.ours)
        try:
            pid = await self._read_answer(reader)
        except BaseException:
            writer.transport.abort()
            raise
        if pid < 0:
            writer.transport.abort()
            raise OSError(-pid, os.strerror(-pid))
        self.has_forked = True
        return AgentProcess(ForkedChild(pid), reader, writer, ends.errors, is_agent=not request.program)

    async def _read_answer(self, reader: ByteReader) -> int:
        looking = asyncio.ensure_future(self._kill_when_stopped())
        try:
            [pid] = ANSWER.unpack(await reader.readexactly(ANSWER.size))
        finally:
            looking.cancel()
        return int(pid)

    async def _kill_when_stopped(self) -> None:
        """Kill a stopped zygote: without isolation a sandbox can stop it, and nothing would let it go on."""
        while True:
            await asyncio.sleep(_LOOK)
            if (process := read_process(self._process.pid)) is not None and process.state in "Tt":
                self._process.kill()

    async def end(self, grace: float) -> None:
        """Close its input, on which it ends; kill it after `grace` seconds."""
        self._sending.cancel()
        self._control.close()
        await run_uncancelled(end_child(self._process, grace))

    def read_errors(self) -> str:
        """Return the end of its standard error."""
        return read_errors(self._errors)


def _kill(process: Child, control: socket.socket, errors: int) -> None:
    control.close()
    os.close(errors)
    process.kill()
    process.wait()
