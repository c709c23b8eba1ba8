"""What a backend's author provides: one place to run in, and how to end it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, NamedTuple, Protocol

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_sandbox.posix_shell.client import ShellClient
from hermes_sandbox.protocol.client import AgentClient, AgentStream
from hermes_sandbox.protocol.slots import AgentSlot, SlotRequest


class SlotReservation(Protocol):
    """The right to one slot of a shared agent."""

    @property
    def number(self) -> int:
        """Counted from 1 for each place, and never given twice."""
        ...

    @property
    def host(self) -> SandboxHost:
        """The place that it is in."""
        ...

    @property
    def client(self) -> AgentClient:
        """The agent of that place."""
        ...

    def spoil(self) -> None:
        """Give nobody else a slot in this place: something is left in it that cannot be ended."""
        ...

    async def release(self) -> None:
        """Give it back; what the slot was used for has ended. Safe to call twice."""
        ...


class SlotOffer(NamedTuple):
    """Which shared places serve a sandbox: what a slot pool has to know to give it a slot of one."""

    key: Hashable
    """What sandboxes in one place must have in common: image, limits, network, …."""
    make_host: MakeHost
    """Makes such a place. May be cancelled; what an exception interrupts, it removes itself."""
    limit: int
    """How many slots it may have at a time."""


class SandboxHost(ABC):
    """One isolated place. The base class `AgentBackend` builds the whole sandbox on these few methods."""

    workspace: str
    """Absolute path, inside, of the directory the rollout works in."""
    provenance: Mapping[str, Any] = {}
    """Recorded with the rollout, besides backend, isolation and network."""
    environment: Mapping[str, str] = {}
    """Variables every command gets, over the fixed ones and under those of the spec."""
    bash: str = "/bin/bash"
    """Path, inside, of bash 4.4 or newer."""
    state_dir: str | None = None
    """Private directory, inside, for the session's state, which may hold secrets.

    If None, the agent makes one in /tmp, and deletes it; one that is killed cannot. So a place whose /tmp does not end
    with it names one that does.
    """

    mark: str | None = None
    """What processes inside a shared place carry in their environment, so that they are found; made up if None.

    On a machine that others use, where a killed caller's agent has to be found, it is the place's own id.
    """

    @property
    def lacks(self) -> Mapping[str, str]:
        """What sandboxes in this place have not for themselves, by the suites' words, and why: recorded, and told once.

        `private_tmp`: what one calls a file in /tmp or /dev/shm is taken for the others.
        """
        return {}

    is_recoverable: bool = False
    """Whether an agent that was lost may be started again here: files are still there, and nothing that ran is."""

    without_python: str | None = None
    """Why a shell serves this place from the start and no agent; None where an agent is tried first."""

    @property
    def serves_plain(self) -> bool:
        """Whether `start_shell` does what it says."""
        return False

    def slot_fields(self) -> Mapping[str, Any]:
        """Return what this place asks of its slot.

        uid and gid of the commands; umask; own_directory: whether the agent makes and deletes the workspace; processes:
        how many processes and threads the commands may have at a time, in place of what the sandbox asks for, 0 where
        the place has a bound of its own; shared_user: whether others have this uid, so that theirs are to be left out
        of account; may_group: whether the agent may make a control group for it, as it does if not told.
        """
        return {}

    @property
    def offer(self) -> SlotOffer | None:
        """Which shared places serve this sandbox; None for a place that it has to itself."""
        return None

    def occupy(self, seat: SlotReservation) -> None:
        """Take a slot that a pool has found by `offer`; `admit` then waits for none.

        Raises:
            SandboxRefusedError: This place is not shared.
        """
        del seat
        raise SandboxRefusedError(
            f"{type(self).__name__} has no slots", hint="return a SharedHost from the backend's `create`"
        )

    async def admit(self, request: SlotRequest) -> None:
        """Wait for room, before a turn to start an agent is taken: whoever waits here must hold up nobody else."""
        del request

    async def examine(self) -> None:  # noqa: B027 - most places have nothing to look at but their agent
        """Look at a shared place from outside; asked now and then by a slot pool, besides its agent.

        Raises:
            BackendError: Nobody new should come here.
        """

    async def serve(self, request: SlotRequest, previous: AgentSlot | None) -> AgentSlot:
        """Return the slot of the sandbox: of an agent of its own, started again if there is a previous one."""
        stream = await (self.start_agent() if previous is None else self.restart(previous.client))
        return await request.open_alone(stream, self)

    async def restart(self, client: AgentClient) -> AgentStream:
        """End every process inside and return the streams of a new Python; files stay."""
        await client.aclose()
        await self.stop_all()
        return await self.start_agent()

    async def start_shell(self) -> AgentStream:
        """Start a shell inside, with `shell_command`, and return its streams; for places without Python.

        Raises:
            SandboxRefusedError: This place cannot do that.
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
        """Make the workspace read-only for everything that is started from now on.

        Raises:
            SandboxRefusedError: This place cannot do that.
        """
        raise SandboxRefusedError(
            f"{type(self).__name__} cannot make its workspace read-only", hint="verify in a fresh sandbox instead"
        )

    async def lock(self, folder: str, identity: tuple[int, int]) -> None:
        """End the processes of one of the users inside, by uid and gid, and make a directory read-only for that user.

        Raises:
            SandboxRefusedError: This place cannot do that.
        """
        del identity
        raise SandboxRefusedError(
            f"{type(self).__name__} cannot make {folder} read-only", hint="verify in a fresh sandbox instead"
        )

    @abstractmethod
    async def start_agent(self) -> AgentStream:
        """Start a Python inside, with `PYTHON_FLAGS`, and return its streams. Called again after `stop_all`.

        Raises:
            NoPythonError: There is none, and `start_shell` may be called instead.
        """

    @abstractmethod
    async def stop_all(self) -> None:
        """End every process inside, also when the agent is gone; files stay. Safe to call when nothing runs."""

    @abstractmethod
    async def destroy(self) -> None:
        """Remove the place. Called once, after `stop_all`."""


MakeHost = Callable[[], Awaitable[SandboxHost]]
"""Makes a place for many slots. May be cancelled; what an exception interrupts, it removes itself."""
