"""The host of a sandbox, as a backend's author implements it: how to start things in it, and how to end it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, NamedTuple, Protocol

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_sandbox.posix_shell.client import ShellClient
from hermes_sandbox.protocol.client import AgentClient
from hermes_sandbox.protocol.slots import AgentSlot, SlotRequest
from hermes_sandbox.protocol.streams import AgentStream


class SlotReservation(Protocol):
    """The right to one slot of a shared agent."""

    @property
    def number(self) -> int:
        """Counted from 1 for each host, and never reused."""
        ...

    @property
    def host(self) -> SandboxHost:
        """Its host."""
        ...

    @property
    def client(self) -> AgentClient:
        """The agent of that host."""
        ...

    def retire_host(self) -> None:
        """Give no further slots in this host, which ends after its last slot is given back.

        For a host in which something is left that cannot be ended, or that has had enough slots.
        """
        ...

    async def release(self) -> None:
        """Give it back, after everything in the slot has ended. Safe to call twice."""
        ...


class SlotOffer(NamedTuple):
    """The shared hosts that can serve a sandbox: what a slot pool needs to know to give it a slot."""

    key: Hashable
    """What sandboxes of one host must have in common: image, limits, network, …."""
    make_host: MakeHost
    """Makes such a host. May be cancelled; on an exception, it removes what it made."""
    limit: int
    """The number of slots that it may have at a time."""


class SandboxHost(ABC):
    """One isolated host. `AgentBackend` builds the whole sandbox on these few methods."""

    workspace: str
    """Absolute path, inside, of the directory the rollout works in."""
    provenance: Mapping[str, Any] = {}
    """Recorded with the rollout, beside backend, isolation and network."""
    environment: Mapping[str, str] = {}
    """Variables of every command; they override the fixed ones, and the spec's override them."""
    bash: str = "/bin/bash"
    """Path, inside, of bash 4.4 or newer."""
    state_dir: str | None = None
    """Private directory, inside, for the session's state, which may hold secrets.

    If None, the agent makes one in /tmp, and deletes it, unless it is killed. So a host whose /tmp does not end
    with it must name one that does.
    """

    mark: str | None = None
    """The mark in the environment of processes in a shared host, by which they are found; random if None.

    On a machine that others use, where a killed caller's agent must be found, it is the host's id.
    """

    @property
    def lacks(self) -> Mapping[str, str]:
        """What sandboxes in this host share with others, by the suites' words, and why; recorded, and logged once.

        `private_tmp`: a file name in /tmp or /dev/shm that one uses is not free for the others.
        """
        return {}

    is_recoverable: bool = False
    """Whether a lost agent may be restarted here: its files are kept, and its processes have all ended."""

    without_python: str | None = None
    """Why a shell serves this host from the start instead of an agent; None if an agent is tried first."""

    @property
    def serves_plain(self) -> bool:
        """Whether `start_shell` is implemented."""
        return False

    def slot_fields(self) -> Mapping[str, Any]:
        """Return the host's fields for its slot.

        uid and gid of the commands; umask; own_directory: whether the agent makes and deletes the workspace; processes:
        the limit of processes and threads of the commands, instead of the sandbox's, 0 if
        the host has its own bound; shared_user: whether others have this uid, so that their processes are not
        counted; may_group: whether the agent may make a control group for it, which is the default.
        """
        return {}

    @property
    def offer(self) -> SlotOffer | None:
        """The shared hosts that can serve this sandbox; None for a host that it has to itself."""
        return None

    def occupy(self, seat: SlotReservation) -> None:
        """Use a slot that a pool has found by `offer`; `admit` then does not wait for one.

        Raises:
            SandboxRefusedError: This host is not shared.
        """
        del seat
        raise SandboxRefusedError(
            f"{type(self).__name__} has no slots", hint="return a SharedHost from the backend's `create`"
        )

    async def admit(self, request: SlotRequest) -> None:
        """Wait for capacity. Called before the start semaphore is acquired, so that it blocks no other starts."""
        del request

    async def examine(self) -> None:  # noqa: B027 - most hosts have nothing to check besides their agent
        """Check a shared host from outside; a slot pool calls this periodically, besides asking its agent.

        Raises:
            BackendError: The host should take no new sandboxes.
        """

    async def serve(self, request: SlotRequest, previous: AgentSlot | None) -> AgentSlot:
        """Return the slot of the sandbox, of its own agent, which is restarted if there is a previous slot."""
        stream = await (self.start_agent() if previous is None else self.restart(previous.client))
        return await request.open_alone(stream, self)

    async def restart(self, client: AgentClient) -> AgentStream:
        """End every process inside and return the streams of a new Python; files stay."""
        await client.aclose()
        await self.stop_all()
        return await self.start_agent()

    async def start_shell(self) -> AgentStream:
        """Start a shell inside, with `shell_command`, and return its streams; for hosts without Python.

        Raises:
            SandboxRefusedError: This host cannot do that.
        """
        raise SandboxRefusedError(
            f"{type(self).__name__} serves no sandbox without Python", hint="install python3 in the image"
        )

    async def restart_shell(self, client: ShellClient) -> AgentStream:
        """End every process inside and return the streams of a new shell; files stay."""
        await client.aclose()
        await self.stop_all()
        return await self.start_shell()

    async def freeze(self) -> None:
        """Make the workspace read-only for everything started from now on.

        Raises:
            SandboxRefusedError: This host cannot do that.
        """
        raise SandboxRefusedError(
            f"{type(self).__name__} cannot make its workspace read-only", hint="verify in a fresh sandbox instead"
        )

    async def lock(self, folder: str, identity: tuple[int, int]) -> None:
        """End the processes of one user inside, by uid and gid, and make a directory read-only for that user.

        Raises:
            SandboxRefusedError: This host cannot do that.
        """
        del identity
        raise SandboxRefusedError(
            f"{type(self).__name__} cannot make {folder} read-only", hint="verify in a fresh sandbox instead"
        )

    @abstractmethod
    async def start_agent(self) -> AgentStream:
        """Start a Python inside, with `PYTHON_FLAGS`, and return its streams. Called again after `stop_all`.

        Raises:
            NoPythonError: There is no Python; `start_shell` may be called instead.
        """

    @abstractmethod
    async def stop_all(self) -> None:
        """End every process inside, even if the agent is gone; files stay. Safe to call when nothing runs."""

    @abstractmethod
    async def destroy(self) -> None:
        """Remove the host. Called once, after `stop_all`."""


MakeHost = Callable[[], Awaitable[SandboxHost]]
"""Makes a host for many slots. May be cancelled; on an exception, it removes what it made."""
