"""Backend `modal`: sandboxes of the Modal service."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeVar, cast

from hermes_backend_modal.host import ModalHost
from hermes_backend_modal.options import ModalOptions
from hermes_backend_modal.ownership import NODE, POOL, SANDBOX, is_abandoned, tags_of
from hermes_backend_modal.plugin import MODAL
from hermes_backend_modal.service import Service
from hermes_backend_modal.slots import SharedModal
from hermes_core.contracts.errors import BackendError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_pool import OptionNames, PoolOptions, SlotPool
from hermes_sandbox.backends import (
    AgentBackend,
    BackendSandbox,
    SandboxHost,
    UserSlot,
    first_uid,
    slot_fields,
)

Host = TypeVar("Host", bound=ModalHost)
_USES: Final = 16
"""How many times a shared sandbox is filled before it is replaced."""
_OF_THE_SANDBOX: Final = ("cpu", "memory_mb")
_OWN_KERNEL: Final = "none: the sandbox has its own kernel, and no limit"


class ModalBackend(AgentBackend):
    """Sandboxes at Modal: the agent is root inside, and the commands are another user's.

    `gvisor` is one sandbox of the service per rollout; `container+slot` puts several rollouts into one, each with its
    own user, from a pool that grows and shrinks.
    """

    declaration: ClassVar[BackendSpec] = MODAL
    Options = ModalOptions
    admitting: float = 0.5
    """The fraction of its lifetime in which a shared sandbox accepts new rollouts; the rest is left for the last one.
    """

    def __init__(self, options: ModalOptions | None = None) -> None:
        self.options = options or ModalOptions()
        super().__init__(self.options)
        self.service = Service(self.options)
        self.host_pool = SlotPool(_pool_options(self.options), name=self.declaration.name, names=_NAMES)
        self._pool_id = uuid.uuid4().hex[:16]

    def refuse(self, spec: SandboxSpec) -> None:
        """Refuse also requirements that a single slot cannot have."""
        super().refuse(spec)
        if not self.shares(spec):
            return
        if asked := [name for name in _OF_THE_SANDBOX if getattr(spec, name) is not None]:
            raise SandboxRefusedError(
                f"slots of a container share its {', '.join(asked)}: a slot cannot have its own limit",
                hint="--isolation gvisor, or remove the limit",
            )
        if self.options.identity[0] == 0:
            raise SandboxRefusedError(
                "slots of a container cannot all be root",
                hint="remove the backend's option user, or --isolation gvisor",
            )

    def commands_are_root(self, spec: SandboxSpec) -> bool:
        """Return whether the option `user` is root; slots refuse root."""
        return self.options.identity[0] == 0 and not self.shares(self._of_mode(spec))

    def shares(self, spec: SandboxSpec) -> bool:
        """Return whether the spec asks for slots, which share sandboxes."""
        return spec.isolation == "container+slot"

    async def probe(self, spec: SandboxSpec) -> None:
        """Open a sandbox for this spec and run a command in it."""
        async with await self.open(spec) as sandbox:
            result = await sandbox.exec("true", timeout=self.setup_timeout)
        if result.exit_code != 0:
            raise BackendError(f"a shell does not work in a sandbox: {result.output.strip()}")

    def _of_mode(self, spec: SandboxSpec) -> SandboxSpec:
        if spec.isolation is None and self.options.mode == "direct":
            return dataclasses.replace(spec, isolation="gvisor")
        return spec

    async def check(self, spec: SandboxSpec) -> None:
        """Raise unless `spec` works, by trying it."""
        await super().check(self._of_mode(spec))

    async def open(self, spec: SandboxSpec) -> BackendSandbox[Any]:
        """Create a sandbox; leave nothing behind when cancelled or failing."""
        return await super().open(self._of_mode(spec))

    async def prepare(self, spec: SandboxSpec) -> SandboxSpec:
        """Determine the workspace for the leases, and apply the option's time limit of a command."""
        await self.service.locate()
        if self.options.execution_timeout is None:
            return spec
        return dataclasses.replace(spec, timeout=self.options.execution_timeout)

    def handle(self, spec: SandboxSpec, sandbox_id: str) -> Mapping[str, Any]:
        """Return the sandbox's name, its pool's owner if it is shared, and its server, workspace and app."""
        pool = {"pool": self._pool_id} if self.shares(spec) else {}
        return {"sandbox_id": sandbox_id, **self.service.place, **pool}

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        """Create a sandbox, or join a shared one."""
        name = spec.image or self.options.image
        if self.shares(spec):
            await self.service.image(name)
            return self._slot(spec, sandbox_id, name)
        return await self._host(ModalHost, spec, sandbox_id, name)

    async def _host(
        self, kind: type[Host], spec: SandboxSpec, sandbox_id: str, name: str, tags: Mapping[str, str] | None = None
    ) -> Host:
        options = self.options
        image = await self.service.image(name)
        sandbox = await self.service.create(
            image,
            {**tags_of(self.lease_for(spec, sandbox_id)), **(tags or {})},
            # An allowlist works through the agent; the sandbox itself then has no network.
            block_network=spec.network != "full",
            cpu=options.cpu if spec.cpu is None else (min(options.cpu, spec.cpu), spec.cpu),
            memory=options.memory if spec.memory_mb is None else (min(options.memory, spec.memory_mb), spec.memory_mb),
        )
        shared = self.shares(spec)
        return kind(
            self.service,
            sandbox,
            workspace=options.workspace_base if shared else options.workspace,
            identity=None if shared else options.identity,
            provenance=self._describe(spec, name),
        )

    def _describe(self, spec: SandboxSpec, name: str) -> dict[str, Any]:
        options = self.options
        uid, gid = options.identity
        asked = {"cpu": (spec.cpu, "cores"), "memory": (spec.memory_mb, "MB"), "file_size": (spec.file_size_mb, "MB")}
        # The agent determines what limits a slot's processes, because gVisor has no limit per user.
        bound = {} if self.shares(spec) else {"pids": _OWN_KERNEL}
        return {
            "image": name,
            "app": options.app_name,
            "environment": options.environment,
            "gpu": options.gpu,
            "given": {"cpu": options.cpu, "memory_mb": options.memory},
            "limits": {**bound, **{limit: f"{value:g} {unit}" for limit, (value, unit) in asked.items() if value}},
            "uid": uid,
            "gid": gid,
            "weaker": ["commands are root inside"] if uid == 0 else [],
        }

    def _slot(self, spec: SandboxSpec, sandbox_id: str, name: str) -> UserSlot:
        return UserSlot(
            self.host_pool,
            (name, spec.network == "full", spec.file_size_mb),
            lambda: self.make_shared_host(spec, lambda host_id: self._share(spec, host_id, name)),
            limit=self.options.slots_per_sandbox,
            describe=lambda host, number: slot_fields(
                self.options.workspace_base,
                sandbox_id,
                cast("SharedModal", host).first_uid + number,
                kept=self.options.volumes,
            ),
            provenance={**self._describe(spec, name), "uid": "of the slot", "gid": "of the slot"},
        )

    async def _share(self, spec: SandboxSpec, sandbox_id: str, name: str) -> SharedModal:
        host = await self._host(SharedModal, spec, sandbox_id, name, {POOL: self._pool_id})
        host.retire_at = time.monotonic() + self.options.max_lifetime * self.admitting
        host.uses = self.options.slots_per_sandbox * _USES
        # Each sandbox of the service has its own kernel.
        host.first_uid = first_uid(sandbox_id, few=True)
        return host

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """End the sandbox of a killed process; a missing sandbox is not an error.

        Raises:
            BackendError: It is shared and its owner is alive, or it is elsewhere, for example in a workspace of another
            token.
        """
        await self.service.require_place(handle)
        app_id = handle.get("app")
        await self.service.end_tagged({SANDBOX: handle["sandbox_id"]}, app_id=app_id)
        if "pool" not in handle:
            return
        async for found in self.service.find_tagged({POOL: handle["pool"]}, app_id=app_id):
            tags = await self.service.tags_of(found)
            if tags and not is_abandoned(tags):
                raise BackendError(
                    f"it shares Modal sandbox {found.object_id} with others",
                    hint=f"hermes-core sandboxes kill {tags[SANDBOX]} ends all of them",
                )
            await self.service.end(found)

    async def sweep(self, *, remove: bool = True) -> list[str]:
        """Find sandboxes of the app with a dead owner on this machine, with or without leases."""
        found = []
        async for sandbox in self.service.find_tagged({NODE: os.uname().nodename}):
            tags = await self.service.tags_of(sandbox)
            if is_abandoned(tags):
                found.append((tags[SANDBOX], sandbox))
        if remove:
            # A sandbox that cannot be ended must not prevent the end of the others.
            ending = (self.service.end(sandbox) for _, sandbox in found)
            for result in await asyncio.gather(*ending, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
        return [name for name, _ in found]

    async def aclose(self) -> None:
        """End all open sandboxes, then the connection to the service."""
        try:
            await super().aclose()
        finally:
            await self.service.aclose()


_NAMES: Final = OptionNames(
    max_hosts="max_sandboxes", slots_per_host="slots_per_sandbox", start_timeout="", max_waiting=""
)


def _pool_options(options: ModalOptions) -> PoolOptions:
    return PoolOptions(
        min_hosts=options.min_sandboxes,
        max_hosts=options.max_sandboxes,
        slots_per_host=options.slots_per_sandbox,
        acquire_timeout=options.acquire_timeout,
        idle_timeout=options.idle_timeout,
        concurrent_starts=min(options.concurrent_starts, options.max_sandboxes),
    )
