"""One allocation: a container on a node of the cluster, with an agent for many slots."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from hermes_backend_nomad.api import NomadApi
from hermes_backend_nomad.description import TASK, agent_command, group_of
from hermes_backend_nomad.failures import NomadError
from hermes_backend_nomad.fleet import Fleet
from hermes_backend_nomad.options import NomadOptions
from hermes_backend_nomad.reading import ending
from hermes_backend_nomad.stream import ExecStream, run
from hermes_core.contracts.errors import SandboxLostError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.backends import (
    PYTHON_FLAGS,
    AgentStream,
    RecycledHost,
    first_uid,
    make_readonly_script,
    shared_dir_script,
)


class AllocationHost(RecycledHost):
    """A container that Nomad runs for this process.

    Args:
        fleet: The job of its group.
        api: The API of Nomad.
        spec: The common spec of its sandboxes.
        options: The backend's options.
        slots: Maximum number of concurrent sandboxes in it.
        image: The container's image.
    """

    def __init__(
        self, fleet: Fleet, api: NomadApi, spec: SandboxSpec, options: NomadOptions, *, slots: int, image: str
    ) -> None:
        self.workspace = options.workspace
        self.bash = options.bash
        self.environment = options.env
        self._fleet = fleet
        self._api = api
        self._spec = spec
        self._options = options
        self._slots = slots
        self._image = image
        self.first_uid = options.first_uid or first_uid(secrets.token_hex(8))
        self._group: str | None = None
        self._allocation: Mapping[str, Any] | None = None

    async def create(self) -> None:
        """Start the container; leave nothing behind on failure."""
        name = self._fleet.next_name()
        group = group_of(name, self._spec, self._options, slots=self._slots, image=self._image)
        self._allocation = await self._fleet.start(group, image=self._image)
        self._group = name
        self.provenance = {
            "id": self._allocation["ID"],
            "node": self._allocation["NodeName"],
        }

    async def start_agent(self) -> AgentStream:
        """Start a Python inside over `alloc exec`."""
        if self._allocation is None:
            await self.create()
        program = shared_dir_script(self.workspace) + PYTHON_FLAGS[-1]
        websocket = await self._exec([*PYTHON_FLAGS[:-1], program])
        window = self._options.tool_batch_window_ms / 1000
        stream = ExecStream(websocket, self._explain, window=window)
        return stream.as_agent_stream(f" in {self._name()} of Nomad at {self._api.address.url}")

    async def lock(self, folder: str, identity: tuple[int, int]) -> None:
        """Make a slot's directory read-only for its user.

        Raises:
            NomadError: The command failed.
        """
        websocket = await self._exec(["-I", "-S", "-E", "-c", make_readonly_script(folder, identity)])
        code, said = await run(websocket, self._explain, timeout=self._options.setup_timeout)
        if code != 0:
            raise NomadError(f"the workspace cannot be made read-only: exit code {code}: {said}")

    async def _exec(self, python: list[str]) -> Any:
        if self._allocation is None:
            raise SandboxLostError("the container has been stopped")
        command = agent_command(self._options, self._spec, python)
        return await self._api.exec(self._allocation["ID"], TASK, command)

    def _name(self) -> str:
        assert self._allocation is not None
        return f"allocation {self._allocation['ID']} on node {self._allocation['NodeName']}"

    async def examine(self) -> None:
        """Check with Nomad that the allocation should keep running.

        Raises:
            NomadError: It should not, or Nomad does not answer.
        """
        why = await self._explain()
        if why is not None:
            raise NomadError(why)

    async def _explain(self) -> str | None:
        """Return how the allocation ended, or None if it has not."""
        if self._allocation is None:
            return None
        what = self._name()
        try:
            found = await self._api.allocation(self._allocation["ID"])
        except NomadError as error:
            return f"the connection to {what} is lost: {error.message}"
        if found["ClientStatus"] == "running" and found["DesiredStatus"] == "run":
            return None
        return f"{what} is {found['ClientStatus']} (desired: {found['DesiredStatus']}): {ending(found)}"

    async def stop_all(self) -> None:
        """Stop the allocation, which ends everything in it and deletes its files."""
        self._allocation = None
        if self._group is not None:
            await self._fleet.stop(self._group)
            self._group = None
