"""The host of one sandbox: its directory, and one instance at a time that writes into it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from hermes_backend_singularity.images.images import Image
from hermes_backend_singularity.instances.command_lines import (
    STATE,
    agent_arguments,
    as_root,
    environment_of,
    nest_message,
    shell_arguments,
    start_arguments,
    variable_arguments,
)
from hermes_backend_singularity.instances.instance import Instance, require_separation
from hermes_backend_singularity.instances.ownership import end_marked, forget_instance
from hermes_backend_singularity.options import SingularityOptions
from hermes_backend_singularity.runtime.failures import InstanceError, explain, last_words
from hermes_backend_singularity.runtime.program import Program
from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError, NoPythonError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.backends import AgentStream, SandboxHost
from hermes_sandbox.local import MARKER, AgentProcess, Group, delete_tree, read_table, with_descendants

_GRACE: Final = 3.0
_NO_PROGRAM: Final = re.compile(r'"?([^"\s:]+)"?: executable file not found')
_VARIABLE: Final = re.compile(r"[A-Za-z_]\w*=")
_HEADER: Final = 8


class InstanceHost(SandboxHost):
    """A directory with an overlay. Each start of an agent is a new instance over it, so that no process outlives one.

    Args:
        program: The program that starts instances.
        root: The directory.
        sandbox_id: The sandbox, which names the instance.
        image: The instance's image.
        spec: The sandbox's spec.
        options: The backend's options.
        group: The control group with its limits, or None.
        address_space: Limit of mapped memory per process in bytes, or None.
        is_bounded: Whether the group limits the number of processes.
        provenance: The facts to record.
    """

    is_recoverable = True

    def __init__(
        self,
        program: Program,
        root: Path,
        sandbox_id: str,
        image: Image,
        *,
        spec: SandboxSpec,
        options: SingularityOptions,
        group: Group | None,
        address_space: int | None,
        is_bounded: bool,
        provenance: Mapping[str, Any],
    ) -> None:
        self.workspace = options.workspace
        self.bash = options.bash
        self.state_dir = f"{STATE}/state"
        self.environment: Mapping[str, str] = dict(options.env)
        self.provenance = provenance
        self.on_no_python: Callable[[str, Mapping[str, str]], None] = lambda _why, _variables: None
        """Called with the reason and the commands' variables if the image turns out to have no Python."""
        self._program = program
        self._root = root
        self._id = sandbox_id
        self._image = image
        self._spec = spec
        self._options = options
        self._group = group
        self._address_space = address_space
        self._is_bounded = is_bounded
        self._instance: Instance | None = None
        self._agent: AgentProcess | None = None
        self._begun = False
        self._frozen = False
        self._given = False

    @property
    def serves_plain(self) -> bool:
        """Whether a shell can serve the sandbox: commands need another user than the shell, so only root can do it."""
        return self._options.plain == "auto" and as_root() and self._options.identity[0] != 0

    def slot_fields(self) -> Mapping[str, Any]:
        """Return the slot's fields: the commands' user, if it is not the agent's, and what limits their processes."""
        uid, gid = self._options.identity
        user = {"uid": uid, "gid": gid, "shared_user": True} if as_root() and uid else {}
        # A control group created by the agent would be left behind if its instance is killed.
        return {**user, **({"processes": 0} if self._is_bounded else {"may_group": False})}

    async def freeze(self) -> None:
        """Mount the workspace read-only from the next start of an agent on."""
        self._frozen = True

    async def start_agent(self) -> AgentStream:
        """Start an instance, and in it a Python that waits in separate namespaces for the agent's code."""
        await self._start_instance()
        agent = self._agent = await self._run_inside(agent_arguments(self._id, self._options))
        agent.stream.writer.write(
            nest_message(
                self._spec,
                self._options,
                frozen=self._frozen,
                give=not self._given and as_root(),
                address_space=self._address_space,
            )
        )
        report = await self._report(agent.stream)
        if "error" in report:
            raise explain(
                f"the agent's namespaces in an instance of {self._image.name} cannot be created", report["error"]
            )
        self._given = True
        self.environment = environment_of(report["environment"], self._options)
        self._confine(agent)
        return agent.stream

    async def _start_instance(self) -> None:
        self._begun = True
        self._instance = await Instance.start(
            self._program,
            start_arguments(self._root, self._image.path, self._id, spec=self._spec, options=self._options),
            sandbox_id=self._id,
            pid_file=self._root / "pid",
            seconds=self._options.start_timeout,
            image=self._image.name,
        )
        require_separation(self._instance.pid, network=self._spec.network == "full")

    async def _run_inside(self, arguments: list[str]) -> AgentProcess:
        environment = {**self._program.environment, MARKER: f"{self._id}.0"}
        return await AgentProcess.start([str(self._program.path), *arguments], environment=environment)

    async def _report(self, stream: AgentStream) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._options.setup_timeout):
                size = int(await stream.reader.readexactly(_HEADER), 16)
                report: dict[str, Any] = json.loads(await stream.reader.readexactly(size))
                return report
        except (asyncio.IncompleteReadError, TimeoutError, ValueError, OSError) as error:
            said = await stream.diagnose()
            if missing := _NO_PROGRAM.search(said):
                why = f"image {self._image.name} has no {missing[1]}"
                # A shell's session gets the variables before the shell is started.
                self.environment = environment_of(await self._variables(), self._options)
                self.on_no_python(why, self.environment)
                raise NoPythonError(why, hint="use an image with Python 3.8 or newer") from error
            raise InstanceError(
                f"no agent can be started in an instance of {self._image.name}: {last_words(said)}",
                hint=f"it needs Python 3.8 or newer with ctypes as {self._options.python}, and /bin/sh",
            ) from error

    def _confine(self, agent: AgentProcess) -> None:
        # This runs before the agent's code is sent, so nothing that the agent starts can be outside the group.
        # Processes that the program starts during a pass are found by the next pass; those in the group start others
        # there.
        inside: set[int] = set()
        while self._group is not None and (new := with_descendants(read_table(), [agent.pid]) - inside):
            for pid in new:
                # A process of the program may have ended meanwhile.
                with contextlib.suppress(ProcessLookupError):
                    self._group.add(pid)
            inside |= new

    async def start_shell(self) -> AgentStream:
        """Start an instance and a shell in it.

        Raises:
            SandboxRefusedError: The commands would have the shell's user, or memory is limited per process.
        """
        if not self.serves_plain:
            raise SandboxRefusedError(
                f"a shell cannot serve image {self._image.name} safely: its commands would be the same user",
                hint="use an image with Python 3.8 or newer, or run as root without the backend's option user: root",
            )
        if self._address_space is not None:
            raise SandboxRefusedError(
                "a memory limit of each process needs an agent", hint="use an image with Python 3.8 or newer"
            )
        await self.stop_all()
        await self._start_instance()
        agent = self._agent = await self._run_inside(shell_arguments(self._id, self._options))
        self._confine(agent)
        return agent.stream

    async def _variables(self) -> dict[str, str]:
        seconds = self._options.setup_timeout
        ran = await run_uncancelled(asyncio.to_thread(self._program.run, variable_arguments(self._id), seconds=seconds))
        lines = ran.said.splitlines() if ran.code == 0 else []
        return dict(line.split("=", 1) for line in lines if _VARIABLE.match(line))

    async def stop_all(self) -> None:
        """End the instance and all processes in it; its files stay."""
        if self._group is not None:
            self._group.forbid()
        agent, self._agent = self._agent, None
        instance, self._instance = self._instance, None
        begun, self._begun = self._begun, False
        if agent is not None:
            agent.stream.writer.close()
        try:
            if instance is not None:
                await instance.end()
            elif begun:
                # The start of the instance was interrupted.
                await end_marked(self._id)
        finally:
            if agent is not None:
                await agent.end(_GRACE)
        if self._group is not None and not await self._group.end():
            raise BackendError(f"processes of sandbox {self._id} cannot be killed")

    async def destroy(self) -> None:
        """Remove the control group, the program's logs and the directory."""
        if self._group is not None:
            await self._group.remove()
        await asyncio.to_thread(forget_instance, self._program.settings_dir, self._id)
        await delete_tree(self._root)


def make_directory(root: Path) -> None:
    """Create the folders that an instance writes into."""
    for folder in (root / "overlay", root / "state"):
        folder.mkdir(mode=0o755)
    root.chmod(0o700)
