"""The hosts of backend `local`: a directory, and one agent process at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_sandbox.agent.boot.zygote import FIRST_PASSED
from hermes_sandbox.agent.processes import read_process
from hermes_sandbox.backend import bubblewrap
from hermes_sandbox.backend.hosts.host import SandboxHost
from hermes_sandbox.backend.options import ENVIRONMENT
from hermes_sandbox.local.cgroups import Group
from hermes_sandbox.local.files import delete_tree, restore_directories
from hermes_sandbox.local.kill import kill_processes
from hermes_sandbox.local.limits import Limits
from hermes_sandbox.local.options import LocalOptions
from hermes_sandbox.local.spawn import start_confined
from hermes_sandbox.local.zygote import Zygote
from hermes_sandbox.protocol.agent_process import AgentProcess, kill_and_wait, read_all
from hermes_sandbox.protocol.bootstrap import PYTHON_FLAGS
from hermes_sandbox.protocol.fd_limits import system_error
from hermes_sandbox.protocol.streams import AgentStream

_GRACE: Final = 6.0
"""Seconds that an agent gets to end everything by itself; it gives up after five."""
_UNKILLABLE: Final = 20.0
"""Seconds without any running process of a killed sandbox; on a busy machine their end takes time."""


class LocalHost(SandboxHost):
    """Base of both levels: a directory, and one agent process at a time."""

    def __init__(
        self,
        root: Path,
        sandbox_id: str,
        options: LocalOptions,
        limits: Limits,
        group: Group | None,
        *,
        zygote: Zygote,
    ) -> None:
        self.bash = options.bash
        self.provenance = {"limits": dict(limits.enforced)} if limits.enforced else {}
        self._root = root
        self._id = sandbox_id
        self._options = options
        self._limits = limits
        self._group = group
        self._zygote = zygote
        self._agent: AgentProcess | None = None

    def slot_fields(self) -> Mapping[str, Any]:
        """Return the fields that say who bounds the processes: the control group or, without one, the agent."""
        return {"processes": 0} if "pids" in self._limits.enforced else {"may_group": False}

    async def _start(
        self, argv: Sequence[str], path: str, *, uid: int | None = None, pass_fds: Sequence[int] = ()
    ) -> AgentProcess:
        """Start a program that is not forked by the zygote."""
        environment = self._environment(path)
        if self._group is None and self._limits.address_space is None:
            return await AgentProcess.start(argv, environment=environment, uid=uid, pass_fds=pass_fds)
        return await start_confined(
            argv,
            group=self._group,
            address_space=self._limits.address_space,
            environment=environment,
            bash=self.bash,
            uid=uid,
            pass_fds=pass_fds,
        )

    def _environment(self, path: str) -> Mapping[str, str]:
        return {"PATH": path, "LANG": "C.UTF-8", "HERMES_SANDBOX": f"{self._id}.0"}

    async def destroy(self) -> None:
        """Remove the group and the directory."""
        if self._group is not None:
            await self._group.remove()
        await delete_tree(self._root)


class LocalPlainHost(LocalHost):
    """Commands run as the caller's user, with directories of their own."""

    def __init__(
        self,
        root: Path,
        sandbox_id: str,
        options: LocalOptions,
        limits: Limits,
        group: Group | None,
        *,
        zygote: Zygote,
    ) -> None:
        super().__init__(root, sandbox_id, options, limits, group, zygote=zygote)
        self.workspace = str(root / "workspace")
        self.environment = {"PATH": options.path, "HOME": str(root / "home"), "TMPDIR": str(root / "tmp")}
        self._has_served = False
        self._lost_track = False

    async def start_agent(self) -> AgentStream:
        """Start an agent as the caller's user; a command may have destroyed the directories since the last one."""
        if self._lost_track:
            raise SandboxLostError(
                "the agent was killed; not everything it started can be found",
                hint="--isolation bwrap keeps what runs in a sandbox together",
            )
        # A new one for every agent: files that a command put into the old one cannot pass for saved state.
        self.state_dir = str(self._root / f"state-{os.urandom(8).hex()}")
        if self._has_served:
            await asyncio.to_thread(restore_directories, self._root)
        self._has_served = True
        self._agent = await self._zygote.fork(self._id, self._group, self._limits.address_space)
        if self._agent is None:
            self._agent = await self._start([self._zygote.python, *PYTHON_FLAGS], self._options.path)
        return self._agent.stream

    async def stop_all(self) -> None:
        """Close the agent's input, on which it ends everything; survivors of a killed agent are found by its mark.

        Raises:
            BackendError: Something cannot be killed.
        """
        agent, self._agent = self._agent, None
        if agent is None:
            return
        if self._group is not None:
            # An agent that had to find all of them itself would take long while a crowd uses the processors.
            self._group.forbid()
            self._group.kill_but(agent.pid)
        agent.stream.writer.close()
        # An agent that ended well has seen its last descendant die. A killed one has lost track of them.
        # If a group has ended the others, only a busy machine delays the agent.
        ended_well = await agent.end(_GRACE if self._group is None else _UNKILLABLE)
        if self._group is not None and not await self._group.end():
            raise BackendError(f"processes of sandbox {self._id} cannot be killed")
        if not ended_well:
            # A process that may write to control groups, such as root, can leave its own; only a living agent finds it.
            self._lost_track = True
            await kill_processes(self._id, self._root)


class LocalBubblewrapHost(LocalHost):
    """Commands see a read-only system and their own directories, without capabilities."""

    is_recoverable = True

    def __init__(
        self,
        root: Path,
        sandbox_id: str,
        options: LocalOptions,
        limits: Limits,
        group: Group | None,
        *,
        zygote: Zygote,
        network: bool,
        uid: int,
    ) -> None:
        super().__init__(root, sandbox_id, options, limits, group, zygote=zygote)
        self.workspace = bubblewrap.WORKSPACE
        self.state_dir = bubblewrap.STATE + "/state"
        self.environment = {"PATH": options.path, "HOME": bubblewrap.HOME, "TMPDIR": "/tmp"}  # noqa: S108 - inside
        self.provenance = {**self.provenance, "uid": uid}
        self._network = network
        self._uid = uid if os.geteuid() == 0 and uid else None
        self._init: int | None = None
        self._frozen = False

    async def freeze(self) -> None:
        """Show the workspace read-only from the next agent on."""
        self._frozen = True

    async def start_agent(self) -> AgentStream:
        """Start a Python inside new namespaces."""
        said = await self._launch(self._launch_by_zygote)
        if self._agent is None:
            said = await self._launch(self._launch_from_here)
        assert self._agent is not None
        # Empty when bubblewrap failed; its message is kept then, and the stream ends.
        self._init = _hold(json.loads(said)["child-pid"], self._agent.pid) if said else None
        return self._agent.stream

    async def _launch(self, start: Callable[[int], Awaitable[AgentProcess | None]]) -> bytes:
        """Start bubblewrap, and return what it says of itself; each try has a pipe of its own for that."""
        try:
            info, writer = os.pipe()
        except OSError as error:
            raise system_error("bubblewrap cannot be started", error) from error
        try:
            self._agent = await start(writer)
        except BackendError:
            os.close(info)
            raise
        except BaseException:
            os.close(info)
            await run_uncancelled(kill_processes(self._id, self._root))
            raise
        finally:
            os.close(writer)
        if self._agent is None:
            os.close(info)
            return b""
        return await read_all(info, self._options.setup_timeout)

    async def _launch_by_zygote(self, info_fd: int) -> AgentProcess | None:
        return await self._zygote.run(
            self._command_line(FIRST_PASSED),
            self._group,
            self._limits.address_space,
            environment=self._environment(ENVIRONMENT["PATH"]),
            uid=self._uid,
            pass_fds=(info_fd,),
        )

    async def _launch_from_here(self, info_fd: int) -> AgentProcess:
        argv = self._command_line(info_fd)
        return await self._start(argv, ENVIRONMENT["PATH"], uid=self._uid, pass_fds=(info_fd,))

    def _command_line(self, info_fd: int) -> Sequence[str]:
        python = self._options.python or shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
        return bubblewrap.command_line(
            [python, *PYTHON_FLAGS],
            self._root,
            network=self._network,
            info_fd=info_fd,
            frozen=self._frozen,
            scratch_limit=self._limits.scratch,
            read_only_root=self._limits.disk is not None,
        )

    async def stop_all(self) -> None:
        """End the first process of the namespace; no other outlives it.

        Raises:
            BackendError: It cannot be killed.
        """
        agent, self._agent = self._agent, None
        init, self._init = self._init, None
        if agent is None:
            return
        agent.stream.writer.close()
        try:
            if init is None:
                # Cut off while bubblewrap was starting: its child waits for it to set up the namespaces, and would wait
                # forever as an orphan, since it asks to die with its parent only afterwards.
                await kill_processes(self._id, self._root, known=agent.pid)
            # The first process of a PID namespace ends all others, and is gone only after them.
            elif not await kill_and_wait(init, _UNKILLABLE):
                raise BackendError(f"the first process of sandbox {self._id} cannot be killed")
        finally:
            await agent.end(_GRACE)


def _hold(pid: int, parent: int) -> int | None:
    """Return a pidfd of a child of `parent`, which never refers to another process. Return None if it has ended."""
    with contextlib.ExitStack() as unless_held, contextlib.suppress(ProcessLookupError):
        held = os.pidfd_open(pid)
        unless_held.callback(os.close, held)
        process = read_process(pid)
        if process is not None and process.parent == parent:
            unless_held.pop_all()
            return held
    return None
