"""Forks agents from a warm Python, so that none of them has to start a Python and to import its modules."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import select
import socket
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

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

_GRACE: Final = 6.0
"""Seconds that a zygote or an agent gets to end by itself."""
_RETRY: Final = 0.01
"""Seconds between tries to send a request while the zygote's socket is full of others."""
_CHECK: Final = 0.5
"""Seconds between checks whether a zygote that does not answer was stopped."""
_LATE: Final = 1.0
"""Seconds to wait, without the event loop, for the answer to a request whose event loop ends."""
_LIMITS: Final = tuple(value for name, value in sorted(vars(resource).items()) if name.startswith("RLIMIT_"))
_log = logging.getLogger(__name__)


class Zygote:
    """The zygote of one backend, started with the first agent and again when it is gone.

    What it starts are children of this process, and outlive the zygote. They have the limits, the user and the priority
    of this process: when these change, a new zygote is started. See `hermes_sandbox.agent.boot.zygote`.

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
        self._has_forked = False
        self._is_given_up = False

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
        pass_fds: Sequence[int] = (),
    ) -> AgentProcess | None:
        """Return a process of another program, otherwise as `fork` does; `pass_fds` have the numbers from 3 on in it.

        To start it from here would copy the tables of all memory of this process if it gets another user. It dies with
        the thread that has started the zygote; a call from another thread starts a new one, and the old one ends.
        """
        program = pack_program(argv, environment, uid)
        return await self._request(_Request("", group, address_space, program, pass_fds))

    async def _request(self, request: _Request) -> AgentProcess | None:
        if self._is_given_up:
            return None
        work = asyncio.ensure_future(self._serve(request))
        try:
            return await run_uncancelled(work)
        except asyncio.CancelledError:
            agent = None if work.cancelled() or work.exception() else work.result()
            if agent is not None:
                agent.stream.writer.transport.abort()
                # A program may not notice the end of its stream.
                await run_uncancelled(agent.end(0.0 if request.program else _GRACE))
            raise

    async def _serve(self, request: _Request) -> AgentProcess | None:
        running = None
        with request.open_lists() as lists:
            try:
                with open_ends() as ends:
                    running = self._find_running(request)
                    async with asyncio.timeout(self._patience):
                        agent = await running.ask(request, ends, lists)
                    self._has_forked = True
                    return agent
            except OSError as error:  # TimeoutError is one
                if is_exhaustion(error):
                    raise system_error("an agent cannot be started", error) from error
                await self._give_up(running, error)
                return None

    def _find_running(self, request: _Request) -> _Running:
        if self._running is not None and not self._running.can_serve(request):
            self._running.kill()
            self._running = None
        if self._running is None:
            self._running = _Running(self.python, self._environment)
        return self._running

    async def _give_up(self, running: _Running | None, error: OSError) -> None:
        """End a zygote that does not serve, and warn. One that has never forked anything is not tried again."""
        is_known, self._is_given_up = self._is_given_up, not self._has_forked
        why = f"no answer within {self._patience:g} s" if isinstance(error, TimeoutError) else str(error)
        if running is not None:
            if running is self._running:
                self._running = None
            await running.end(0.0)
            why = (running.read_errors().strip().splitlines() or [why])[-1]
        if is_known:
            return
        _log.warning(
            "%s starts a Python of its own instead of being forked by the zygote, which takes longer: %s",
            "each agent" if self._is_given_up else "one agent",
            why,
        )

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
    pass_fds: Sequence[int] = ()

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
        """Send it; raises BlockingIOError if there is no room for it now."""
        head = REQUEST.pack(self.sandbox_id.encode(), self.address_space or 0, len(lists), len(self.program))
        descriptors = [ends.theirs.fileno(), ends.errors, *self.pass_fds, *lists]
        if socket.send_fds(control, [head + self.program], descriptors) != len(head) + len(self.program):
            raise OSError("a request is larger than the zygote's socket")


class _Running:
    """One zygote; ended with this object, and with this process."""

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        self._thread = threading.current_thread()
        self._settings = _settings()
        with open_ends() as ends:
            self._process: Child = spawn(
                [python, *ZYGOTE_FLAGS], ends.theirs.fileno(), ends.errors, environment=environment
            )
        self._control, self._errors = ends.ours, ends.errors
        self._control.setblocking(False)
        self._finalize = weakref.finalize(self, _kill, self._process, self._control, self._errors)
        self._sending = asyncio.ensure_future(self._send_agent())

    async def _send_agent(self) -> None:
        await asyncio.get_running_loop().sock_sendall(self._control, await asyncio.to_thread(agent_message))

    def can_serve(self, request: _Request) -> bool:
        """Tell whether it lives, has or gets its modules, and would start things as this process would."""
        if self._process.poll() is not None or self._settings != _settings():
            return False
        gets_modules = not self._sending.done() and self._sending.get_loop() is asyncio.get_running_loop()
        is_parent = not request.program or self._thread is threading.current_thread()
        return is_parent and (gets_modules or self._has_modules())

    def _has_modules(self) -> bool:
        sending = self._sending
        return sending.done() and not sending.cancelled() and sending.exception() is None

    async def ask(self, request: _Request, ends: Ends, lists: Sequence[int]) -> AgentProcess:
        """Return a new process with these ends.

        Raises:
            OSError: It was not started.
        """
        watching = asyncio.ensure_future(self._kill_when_stopped())
        try:
            if not self._sending.done():
                await asyncio.wait((self._sending,))  # not awaited itself: it is cancelled if another request gives up
            if not self._has_modules():
                raise OSError("the zygote did not get its modules")
            while True:
                try:
                    request.send(self._control, ends, lists)
                    break
                except BlockingIOError:
                    await asyncio.sleep(_RETRY)
            ends.theirs.close()  # so that the stream ends with the process, or with a zygote that does not answer
            child = await _read_child(ends.ours)
        finally:
            watching.cancel()
        reader, writer = await open_callback_reader(ends.ours)
        return AgentProcess(child, reader, writer, ends.errors, is_agent=not request.program)

    async def _kill_when_stopped(self) -> None:
        """Kill a stopped zygote: without isolation a sandbox can stop it, and nothing would let it go on."""
        while True:
            await asyncio.sleep(_CHECK)
            if (process := read_process(self._process.pid)) is not None and process.state in "Tt":
                self._process.kill()

    async def end(self, grace: float) -> None:
        """Close its input, on which it ends; kill it after `grace` seconds."""
        if not self._sending.done() and self._sending.get_loop() is asyncio.get_running_loop():
            self._sending.cancel()
        self._control.close()
        await run_uncancelled(end_child(self._process, grace))

    def kill(self) -> None:
        """End it at once, from any thread and event loop."""
        self._finalize()

    def read_errors(self) -> str:
        """Return the end of its standard error."""
        return read_errors(self._errors) if self._finalize.alive else ""


async def _read_child(stream: socket.socket) -> ForkedChild:
    """Return the process that answers on a stream.

    Raises:
        OSError: There is none.
    """
    stream.setblocking(False)
    try:
        answer = await asyncio.get_running_loop().sock_recv(stream, ANSWER.size)
    except asyncio.CancelledError:
        # The event loop ends. The process must be known all the same, or nothing would ever wait for its end.
        if select.select([stream], [], [], _LATE)[0]:
            with contextlib.suppress(OSError):  # there is none; the cancellation is to be told
                _child_of(stream.recv(ANSWER.size))
        raise
    return _child_of(answer)


def _child_of(answer: bytes) -> ForkedChild:
    if len(answer) < ANSWER.size:
        raise OSError("the zygote has ended")
    [pid] = ANSWER.unpack(answer)
    if pid < 0:
        raise OSError(-pid, os.strerror(-pid))
    return ForkedChild(pid)


def _settings() -> tuple[Any, ...]:
    """Return what a process inherits from the one that starts it, as far as it may change."""
    limits = [resource.getrlimit(kind) for kind in _LIMITS]
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    return os.getresuid(), os.getresgid(), limits, priority, os.sched_getaffinity(0)


def _kill(process: Child, control: socket.socket, errors: int) -> None:
    control.close()
    os.close(errors)
    with contextlib.suppress(PermissionError):  # this process has given up root; the zygote ends with its input
        process.kill()
    process.wait()
