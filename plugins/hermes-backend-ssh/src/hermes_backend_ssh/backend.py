"""Backend `ssh`: sandboxes on another machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from hermes_backend_ssh.confinement import account_inside, agent_argv, confined, start_command
from hermes_backend_ssh.connection import Program, SshConnection
from hermes_backend_ssh.machine import Machine, look_at, make_directories, sweep
from hermes_backend_ssh.options import SshOptions
from hermes_backend_ssh.plugin import SSH
from hermes_core.contracts.errors import BackendError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.sandbox import AgentBackend, AgentStream, SandboxHost
from hermes_core.sandbox.bubblewrap import HOME, STATE, WORKSPACE
from hermes_core.specs import BackendSpec

_PREFIX: Final = "hermes-sandbox-"
_GRACE: Final = 6.0
"""Seconds an agent gets to end everything by itself; it gives up after five."""
_SECRETS: Final = {"password", "passphrase"}


class SshBackend(AgentBackend):
    """Sandboxes on a machine reached by SSH.

    Isolation `none` trusts the machine: commands run there as the login's user, beside everything else of that user.
    `bwrap` shows them a read-only /usr and directories of their own, where the machine has bubblewrap.
    """

    declaration: ClassVar[BackendSpec] = SSH
    Options = SshOptions
    # sshd refuses at random when more than MaxStartups (10) are logging in at once.
    concurrent_starts = 8

    def __init__(self, options: SshOptions) -> None:
        super().__init__()
        self.options = options
        self.setup_timeout = options.setup_timeout
        self.patience = options.patience
        self._machine: Machine | None = None

    def refuse(self, spec: SandboxSpec) -> None:
        """Refuse also what only bubblewrap could enforce."""
        super().refuse(spec)
        if spec.network == "none" and spec.isolation == "none":
            raise self._refusal(
                "network 'none' at isolation 'none'", '--isolation bwrap (open_sandbox: isolation="bwrap")'
            )

    async def probe(self, spec: SandboxSpec) -> None:
        """Open a sandbox of this kind and run a command in it."""
        try:
            async with await self.open(spec) as sandbox:
                result = await sandbox.exec("true", timeout=self.setup_timeout)
        except SandboxRefusedError:
            raise
        except (BackendError, SandboxLostError) as error:
            if spec.isolation == "none":
                raise
            raise SandboxRefusedError(
                f"isolation {spec.isolation!r} does not work on {self.options.name}: {error.message}",
                hint="`apt-get install bubblewrap` there, and allow unprivileged user namespaces",
            ) from error
        if result.exit_code != 0:
            raise BackendError(f"bash does not work in a sandbox: {result.output.strip()}")

    def handle(self, spec: SandboxSpec, sandbox_id: str) -> Mapping[str, Any]:
        """Name the machine, the way to it and the directory; no secret is in it."""
        del spec
        options = self.options.model_dump(mode="json", exclude={*_SECRETS}, exclude_defaults=True)
        for jump in options.get("jump", ()):
            for secret in _SECRETS:
                jump.pop(secret, None)
        return {
            "sandbox_id": sandbox_id,
            "root": f"{self.options.root_dir.rstrip('/')}/{_PREFIX}{sandbox_id}",
            "options": {**options, "host": self.options.host, "user": self.options.user, "port": self.options.port},
        }

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        """Log in, look at the machine once, and make the sandbox's directories."""
        root = str(self.handle(spec, sandbox_id)["root"])
        async with contextlib.AsyncExitStack() as unless_made:
            connection = await SshConnection.open(self.options)
            unless_made.push_async_callback(connection.aclose)
            self._machine = machine = self._machine or await look_at(connection, self.options)
            kind = BubblewrapHost if spec.isolation == "bwrap" else PlainHost
            host = kind(connection, machine, root, sandbox_id, self.options, network=spec.network == "full")
            await host.make()
            unless_made.pop_all()
        return host

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """Log in, kill and delete what a killed process left behind."""
        root, sandbox_id = handle["root"], handle["sandbox_id"]
        if root.rpartition("/")[2] != f"{_PREFIX}{sandbox_id}":
            raise BackendError(f"{root} is not the directory of sandbox {sandbox_id}; nothing was deleted")
        options = self._way_to(handle["options"])
        connection = await SshConnection.open(options)
        try:
            machine = await look_at(connection, options)
            await sweep(connection, machine.python, sandbox_id, root, delete=True, timeout=self.setup_timeout)
        finally:
            await connection.aclose()

    def _way_to(self, remembered: Mapping[str, Any]) -> SshOptions:
        # The lease knows the way, the config the secrets; without them for this machine, keys must do.
        same = all(remembered.get(name) == getattr(self.options, name) for name in ("host", "port", "user"))
        return self.options if same else SshOptions.model_validate(remembered)


class PlainHost(SandboxHost):
    """A directory on the machine, and one agent at a time as the login's user."""

    def __init__(
        self,
        connection: SshConnection,
        machine: Machine,
        root: str,
        sandbox_id: str,
        options: SshOptions,
        *,
        network: bool,
    ) -> None:
        self.bash = options.bash
        self.workspace = f"{root}/workspace"
        self.environment = {"HOME": f"{root}/home", "TMPDIR": f"{root}/tmp"}  # noqa: S108 - its own
        self.provenance = {"host": options.host, "port": options.port, "user": options.user, "uid": machine.uid}
        self._connection = connection
        self._machine = machine
        self._root = root
        self._id = sandbox_id
        self._options = options
        self._network = network
        self._agent: Program | None = None
        self._lost_track = False
        self._made = False

    def _account(self) -> tuple[str, ...]:
        return ()

    def _argv(self) -> list[str]:
        return agent_argv(self._machine.python)

    async def make(self) -> None:
        """Make the directories."""
        await make_directories(self._connection, self._root, "new", self._account(), self._options)
        self._made = True

    async def start_agent(self) -> AgentStream:
        """Start the agent; a command can have destroyed the directories of the last one."""
        if self._lost_track:
            raise SandboxLostError(
                "the agent was killed; not everything it started can be found",
                hint="--isolation bwrap keeps what runs in a sandbox together",
            )
        # A new one for every agent: what a command has put into the last one cannot pass for saved state.
        self.state_dir = f"{self._root}/state-{os.urandom(8).hex()}"
        if not self._made:
            await make_directories(self._connection, self._root, "again", self._account(), self._options)
        self._made = False
        self._agent = await self._connection.start(start_command(self._argv(), self._id))
        return self._agent.stream

    async def stop_all(self) -> None:
        """End the agent's input, on which it ends everything; what outlives a killed agent is found by its mark."""
        agent, self._agent = self._agent, None
        if agent is None:
            return
        agent.stream.writer.close()
        if not await agent.ended(_GRACE):
            self._lost_track = True
            if not agent.over:
                await self._connection.aclose()  # it hangs; a new one may not
            await self._sweep(delete=False)

    async def destroy(self) -> None:
        """Delete the directory and hang up."""
        try:
            await self._sweep(delete=True)
        finally:
            await self._connection.aclose()

    async def _sweep(self, *, delete: bool) -> None:
        arguments = (self._machine.python, self._id, self._root)
        timeout = self._options.setup_timeout
        with contextlib.suppress(SandboxLostError):
            if self._connection.alive:
                await sweep(self._connection, *arguments, delete=delete, timeout=min(timeout, _GRACE))
                return
        # The old connection is gone, or hangs: by a new one.
        await self._connection.aclose()
        self._connection = await SshConnection.open(self._options)
        await sweep(self._connection, *arguments, delete=delete, timeout=timeout)


class BubblewrapHost(PlainHost):
    """The same inside bubblewrap, where the agent is the first process and takes all others with it."""

    def __init__(
        self,
        connection: SshConnection,
        machine: Machine,
        root: str,
        sandbox_id: str,
        options: SshOptions,
        *,
        network: bool,
    ) -> None:
        super().__init__(connection, machine, root, sandbox_id, options, network=network)
        self.workspace = WORKSPACE
        self.environment = {"HOME": HOME, "TMPDIR": "/tmp"}  # noqa: S108 - inside
        self.provenance = {**self.provenance, "uid": account_inside(machine)[0]}

    def _account(self) -> tuple[str, ...]:
        uid, gid = account_inside(self._machine)
        return (str(uid), str(gid))

    def _argv(self) -> list[str]:
        # Inside, where nothing of the last agent is left.
        self.state_dir = f"{STATE}/state"
        return confined(agent_argv(self._machine.python), self._root, self._machine, network=self._network)

    async def stop_all(self) -> None:
        """End the first process; nothing outlives it."""
        await super().stop_all()
        self._lost_track = False
