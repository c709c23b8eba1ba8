"""One slot of an agent, from the caller's side."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

from hermes_core.contracts.errors import BackendError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.protocol.client import AgentClient, EventHandler
from hermes_sandbox.protocol.streams import AgentStream

_RESETTING: Final = 15.0
"""Seconds in which a slot must be emptied; the agent gives up killing its processes after five."""
_CLOSING: Final = 60.0
"""Seconds in which it must be gone; to delete and sweep up takes as long as there is much, and others wait for none."""


class AgentSlot:
    """Requests to one slot. Costs nothing but itself: no task, no buffer.

    Args:
        client: The agent.
        number: The slot's number.
        fields: What it was opened with.
        exclusive: Whether the agent serves only this slot, and ends with it.
    """

    __slots__ = (
        "_client",
        "_exclusive",
        "_fields",
        "_gone",
        "_handlers",
        "_lost",
        "_number",
        "_suspended",
        "expired",
        "left",
        "process_bound",
    )

    def __init__(self, client: AgentClient, number: int, fields: Mapping[str, Any], *, exclusive: bool) -> None:
        self._client = client
        self._number = number
        self._fields = fields
        self._exclusive = exclusive
        self._lost: str | None = None
        self._suspended: str | None = None
        self._gone = False
        self.expired = ""
        """Why the slot ended by itself, such as its lifetime; empty until then."""
        self.left: str | None = None
        """What it or an earlier slot left behind and cannot be removed; known when it is closed."""
        self.process_bound: str | None = None
        """How the agent bounds the slot's processes ("none: …" if it cannot); None if it was not asked to."""
        self._handlers = {"ended"}
        client.on_event("ended", self._expire, slot=number)

    @classmethod
    async def open(
        cls, client: AgentClient, fields: Mapping[str, Any], *, exclusive: bool, deadline: float | None = None
    ) -> Self:
        """Open a slot; raises the agent's error, and then closes nothing."""
        number = client.next_slot()
        try:
            wanted = {"op": "open", "slot": number, "exclusive": exclusive, **fields}
            answer, _ = await client.request(wanted, deadline=deadline)
        except asyncio.CancelledError:
            if client.lost is None:
                client.notify({"op": "close", "slot": number})
            raise
        slot = cls(client, number, fields, exclusive=exclusive)
        slot.process_bound = answer.get("processes")
        return slot

    @property
    def client(self) -> AgentClient:
        """The agent that serves it."""
        return self._client

    @property
    def number(self) -> int:
        """Its number, which is part of every request."""
        return self._number

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields it was opened with."""
        return self._fields

    @property
    def exclusive(self) -> bool:
        """Whether the agent serves only this slot."""
        return self._exclusive

    @property
    def lost(self) -> str | None:
        """Why it is lost; None while it is usable."""
        return self._lost or self._suspended or self._client.lost

    def _mine(self, header: Mapping[str, Any]) -> dict[str, Any]:
        if self._lost is not None or self._suspended is not None:
            raise SandboxLostError(self._lost or self._suspended or "")
        return {**header, "slot": self._number}

    async def request(
        self, header: Mapping[str, Any], body: bytes = b"", *, deadline: float | None = None
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request and return the answer; when cancelled, return only after the agent has stopped the work."""
        return await self._client.request(self._mine(header), body, deadline=deadline, overdue=self.fail)

    async def collect(self, header: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        """Send a request and return the answer with the parts that preceded it."""
        return await self._client.collect(self._mine(header))

    async def download(self, header: Mapping[str, Any], limit: int) -> bytes:
        """Return at most `limit` bytes of a file, checked against the hash that comes last."""
        return await self._client.download(self._mine(header), limit)

    async def upload(self, header: Mapping[str, Any], data: bytes) -> None:
        """Send a file in pieces, with its hash."""
        await self._client.upload(self._mine(header), data)

    def notify(self, header: Mapping[str, Any], body: bytes | memoryview = b"") -> None:
        """Send a frame that gets no answer."""
        self._client.notify(self._mine(header), body)

    def on_event(self, name: str, handler: EventHandler) -> None:
        """Call `handler` for every unsolicited frame of this name and slot."""
        self._handlers.add(name)
        self._client.on_event(name, handler, slot=self._number)

    def _expire(self, header: dict[str, Any], _body: bytes) -> None:
        self.expired = str(header["reason"])
        self.fail(f"it has ended: {header['reason']}")

    def suspend(self, reason: str) -> None:
        """Fail its pending requests, and further ones until it is renewed."""
        self._suspended = f"the sandbox is lost: {reason}"
        self._client.fail_slot(self._number, self._suspended)

    def fail(self, reason: str) -> None:
        """Declare the slot lost, and also an agent that serves only this slot."""
        if self._lost is None:
            self._lost = f"the sandbox is lost: {reason}"
        if self._exclusive:
            self._client.fail(reason)
        else:
            self._client.fail_slot(self._number, self._lost)

    async def reset(self, *, state_dir: str | None = None) -> None:
        """Kill every process of the slot and forget the session; files stay.

        Args:
            state_dir: Private directory for the new session's state; None keeps the one of the opening.

        Raises:
            SandboxLostError: That failed; the slot is lost.
        """
        if self._lost is not None:
            raise SandboxLostError(self._lost)
        self.suspend("it is being renewed")
        fields = {"state_dir": state_dir or self._fields["state_dir"], "cwd": self._fields["cwd"]}
        try:
            await self._client.request(
                {"op": "reset", "slot": self._number, **fields}, deadline=_RESETTING, overdue=self.fail
            )
        except (OSError, ValueError) as error:
            self.fail(f"it could not be renewed: {error}")
            raise SandboxLostError(str(self._lost)) from error
        self._suspended = None

    async def aclose(self) -> None:
        """End everything in the slot, and also an agent that serves only this slot.

        Raises:
            BackendError: The agent could not end or delete everything.
        """
        for name in self._handlers:
            self._client.forget_event(name, slot=self._number)
        self._handlers = set()
        self._lost = self._lost or "the sandbox is lost: it was closed"
        if self._exclusive:
            await self._client.aclose()
            return
        self._client.fail_slot(self._number, self._lost)
        if not self._gone:
            self._gone = True
            await self._close()

    async def _close(self) -> None:
        with contextlib.suppress(SandboxLostError):
            try:
                answer, _ = await self._client.request({"op": "close", "slot": self._number}, deadline=_CLOSING)
                self.left = answer.get("left")
            except OSError as error:
                raise BackendError(f"a slot of a shared agent cannot be closed: {error}") from error


class HostSettings(Protocol):
    """The members of a host that opening a slot needs; `SandboxHost` has them."""

    workspace: str
    environment: Mapping[str, str]
    bash: str
    state_dir: str | None

    def slot_fields(self) -> Mapping[str, Any]:
        """Return the host's fields for its slot."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRequest:
    """What one sandbox requires of its agent.

    `environment` has the variables of every command, whatever the backend; the times are the backend's.
    """

    spec: SandboxSpec
    sandbox_id: str
    environment: Mapping[str, str]
    setup_timeout: float
    patience: float
    processes: int
    """The limit of processes and threads."""

    def hello(self) -> dict[str, Any]:
        """Return the settings of the agent as a whole."""
        limits = {"core": 0}
        if self.spec.file_size_mb is not None:
            limits["file_size"] = self.spec.file_size_mb << 20
        # With an allowlist too: sockets other than AF_INET would bypass its proxy.
        return {"marker": self.sandbox_id, "limits": limits, "confine_sockets": self.spec.network != "full"}

    def fields(self, host: HostSettings) -> dict[str, Any]:
        """Return the fields for opening the slot."""
        return {
            "workspace": host.workspace,
            "state_dir": host.state_dir,
            "bash": host.bash,
            "cwd": self.spec.cwd,
            "env": {**self.environment, "HOME": host.workspace, **host.environment, **self.spec.env},
            "session": self.spec.session,
            "lifetime": self.spec.lifetime,
            "uid": None,
            "gid": None,
            "umask": 0o022,
            "own_directory": False,
            "sweep": None,
            "name": self.sandbox_id,
            "processes": self.processes,
            **host.slot_fields(),
        }

    async def greet(self, stream: AgentStream, *, marker: str | None = None) -> AgentClient:
        """Send the agent's program to a waiting Python; its processes carry `marker`, or the sandbox's id if None.

        Raises:
            SandboxRefusedError: The network must be limited, but the agent cannot keep commands from other sockets.
        """
        hello = {**self.hello(), **({} if marker is None else {"marker": marker})}
        client = await AgentClient.connect(stream, hello, timeout=self.setup_timeout, patience=self.patience)
        if hello["confine_sockets"] and client.greeting["open_sockets"]:
            await client.aclose()
            raise SandboxRefusedError(
                f"network {self.spec.network!r} cannot be enforced here: {client.greeting['open_sockets']}",
                hint="run on x86-64 or aarch64 with a kernel that has CONFIG_SECCOMP_FILTER, or choose --network full",
            )
        return client

    async def open_alone(self, stream: AgentStream, host: HostSettings) -> AgentSlot:
        """Start an agent that serves this slot alone."""
        client = await self.greet(stream)
        try:
            return await self.open_in(client, host, exclusive=True)
        except BaseException:
            await client.aclose()
            raise

    async def open_in(self, client: AgentClient, host: HostSettings, *, exclusive: bool) -> AgentSlot:
        """Open the slot.

        Raises:
            BackendError: The agent cannot prepare it.
        """
        try:
            return await AgentSlot.open(client, self.fields(host), exclusive=exclusive, deadline=self.setup_timeout)
        except OSError as error:
            raise BackendError(f"the agent started but cannot prepare the sandbox: {error}") from error
