"""Backend `nomad`: containers on the nodes of a Nomad cluster."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar, Final, cast

from hermes_backend_nomad.address import find_address, without_login
from hermes_backend_nomad.api import NomadApi
from hermes_backend_nomad.description import job_of, processes_of
from hermes_backend_nomad.failures import NomadError
from hermes_backend_nomad.fleet import Fleet
from hermes_backend_nomad.host import AllocationHost
from hermes_backend_nomad.options import NomadOptions
from hermes_backend_nomad.ownership import is_abandoned, is_named, job_id, meta_of
from hermes_backend_nomad.plugin import NOMAD
from hermes_backend_nomad.recording import describe, refuse_what_nomad_shares
from hermes_backend_nomad.slots import ContainerSlot
from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_pool import OptionNames, PoolOptions, SlotPool
from hermes_sandbox.backends import AgentBackend, Lease, SandboxHost, slot_fields

_USES: Final = 16
"""How many times a shared container is filled before it is replaced."""
_NAMES: Final = OptionNames(
    max_hosts="max_containers",
    slots_per_host="slots_per_container",
    acquire_timeout="acquire_timeout_s",
    max_waiting="",
)
_log = logging.getLogger(__name__)


class NomadBackend(AgentBackend):
    """Sandboxes in the containers of one Nomad job, which lives as long as this object and scales with use.

    `container+slot` puts several rollouts into one container, each with its own user; `container` gives each rollout
    its own allocation.
    """

    declaration: ClassVar[BackendSpec] = NOMAD
    Options = NomadOptions

    def __init__(self, options: NomadOptions | None = None) -> None:
        self.options = options or NomadOptions()
        super().__init__(self.options)
        self.api = NomadApi(
            find_address(self.options, os.environ),
            timeout=self.options.request_timeout,
            max_connections=self.options.max_connections,
        )
        self.run_id = uuid.uuid4().hex[:16]
        self._job_lease: Lease | None = None
        self._job_leases = self.lease_store
        self._fleet = self._new_fleet()
        self.host_pool = SlotPool(
            PoolOptions(
                min_hosts=self.options.min_containers,
                max_hosts=self.options.max_containers,
                slots_per_host=self.options.slots_per_container,
                acquire_timeout=self.options.acquire_timeout_s,
                idle_timeout=self.options.idle_timeout,
                concurrent_starts=self.options.concurrent_starts,
            ),
            name=f"nomad job {self._fleet.job_id}",
            names=_NAMES,
        )
        self._first = asyncio.Lock()
        self._is_swept = not self.options.purge_job_on_start

    def _new_fleet(self) -> Fleet:
        fleet = Fleet(
            self.api,
            job_id(self.options.sandbox_job_id, self.run_id),
            lambda groups: job_of(fleet.job_id, self.options, self._meta(), groups),
            start_timeout=self.options.start_timeout,
            purge=self.options.purge_job_on_shutdown,
        )
        fleet.begin, fleet.end = self._lease_job, self._release_job
        return fleet

    def with_level(self, spec: SandboxSpec) -> SandboxSpec:
        """Return the spec with a level; with Apptainer the default is `container`."""
        # Slots need separate users, which Apptainer does not have without privileges.
        if spec.isolation is None and self.options.driver == "singularity":
            return dataclasses.replace(spec, isolation="container")
        return super().with_level(spec)

    def refuse(self, spec: SandboxSpec) -> None:
        """Refuse also limits that slots share, and limits that Apptainer under Nomad cannot enforce."""
        super().refuse(spec)
        refuse_what_nomad_shares(spec, self.options)

    def shares(self, spec: SandboxSpec) -> bool:
        """Return True: sandboxes of every level are slots of the job's containers, even if each has only one."""
        del spec
        return True

    async def probe(self, spec: SandboxSpec) -> None:
        """Start a container for this spec and run a command in it."""
        async with await self.open(spec) as sandbox:
            result = await sandbox.exec("echo $BASH_VERSION", timeout=self.setup_timeout)
        if result.exit_code != 0 or not result.output.strip():
            raise BackendError(f"a shell does not work in a container: {result.output.strip()}")

    def handle(self, spec: SandboxSpec, sandbox_id: str) -> Mapping[str, Any]:
        """Return the job and its address, because another process may have another Nomad as its default."""
        del spec
        address = self.api.address
        return {"sandbox_id": sandbox_id, "job": self._fleet.job_id, "address": address.url, **address.query}

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        """Return a slot of a container; a container starts when a slot is needed and none is free."""
        await self._purge_old_jobs()
        is_alone = spec.isolation == "container"
        slots = 1 if is_alone else self.options.slots_per_container
        image = self.options.singularity_image or spec.image or self.options.sandbox_image
        shared = dataclasses.replace(spec, rollout_id=None) if is_alone else _in_common(spec)
        return ContainerSlot(
            self.host_pool,
            _key(spec, image, processes_of(spec, self.options)),
            lambda: self._container(shared, slots, image, uses=1 if is_alone else slots * _USES),
            limit=slots,
            describe=lambda host, number: self._fields(cast("AllocationHost", host), sandbox_id, number),
            provenance=describe(spec, self.options, job=self._fleet.job_id, image=image, slots=slots),
        )

    def _fields(self, host: AllocationHost, sandbox_id: str, number: int) -> dict[str, Any]:
        if self.options.driver == "singularity":
            return slot_fields(self.options.workspace, sandbox_id, None)
        # Users that other containers of the node have too are limited by their container only.
        processes = None if self.options.first_uid is None else 0
        uid = host.first_uid + number
        return slot_fields(self.options.workspace, sandbox_id, uid, processes, kept=self.options.targets)

    async def _container(self, spec: SandboxSpec, slots: int, image: str, *, uses: int) -> AllocationHost:
        host = AllocationHost(self._fleet, self.api, spec, self.options, slots=slots, image=image)
        host.uses = uses
        await host.create()
        return host

    # The job has its own lease, because it exists before and after the sandboxes.

    def _meta(self) -> dict[str, str]:
        assert self._job_lease is not None
        return meta_of(self._job_lease)

    async def _lease_job(self) -> None:
        spec = SandboxSpec()
        handle = {**self.handle(spec, self.run_id), "whole": True}
        terms = dataclasses.replace(self.lease_terms(spec, self.run_id), handle=handle)
        self._job_lease = Lease.of_terms(terms)
        self._job_leases = self.lease_store
        await self._job_leases.take(terms)

    async def _release_job(self) -> None:
        await self._job_leases.give_up(self.run_id)

    async def _purge_old_jobs(self) -> None:
        async with self._first:
            if not self._is_swept:
                for job in await self._find_abandoned(self.options.sandbox_job_id):
                    _log.info("purging job %s of a dead owner", job)
                    await self.api.deregister(job, purge=True)
                self._is_swept = True

    async def _find_abandoned(self, prefix: str) -> list[str]:
        listed = await self.api.jobs(prefix)
        found = [str(job["ID"]) for job in listed if is_named(job["ID"], prefix)]
        jobs = await asyncio.gather(*(self.api.job(name) for name in found))
        return [str(job["ID"]) for job in jobs if job is not None and is_abandoned(job)]

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """Purge the job of a killed process; a missing job is not an error.

        Raises:
            BackendError: Its owner is alive and others share it, or it is in another cluster.
        """
        name, (address, _) = handle["job"], without_login(handle["address"])
        if address != self.api.address.url:
            raise NomadError(
                f"expected the Nomad at {address} for job {name}, got {self.api.address.url}",
                hint=f"NOMAD_ADDR={address} hermes-core sandboxes gc",
            )
        self._require_same(handle, name)
        job = await self.api.job(name)
        if job is None:
            return
        if not handle.get("whole") and not is_abandoned(job):
            raise BackendError(
                f"it shares job {name} with others",
                hint=f"hermes-core sandboxes kill {name.rpartition('-')[2]} ends all of them",
            )
        await self.api.deregister(name, purge=True)

    def _require_same(self, handle: Mapping[str, Any], job: str) -> None:
        # Another Nomad would report no such job, and the lease would be removed.
        for part, default in (("region", ""), ("namespace", "default")):
            recorded, found = (where.get(part) or default for where in (handle, self.api.address.query))
            if recorded != found:
                raise NomadError(
                    f"expected {part} {recorded!r} of Nomad for job {job}, got {found!r}",
                    hint=f"NOMAD_{part.upper()}={recorded} hermes-core sandboxes gc",
                )

    async def sweep(self, *, remove: bool = True) -> list[str]:
        """Find jobs of any `sandbox_job_id` with dead owners, with or without leases; return the ids of the runs."""
        found = await self._find_abandoned("")
        if remove:
            # A job that cannot be ended must not prevent the end of the others.
            ending = (self.api.deregister(job, purge=True) for job in found)
            for result in await asyncio.gather(*ending, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
        return [job.rpartition("-")[2] for job in found]

    async def aclose(self) -> None:
        """Close all open sandboxes, then the job, then the connections."""
        try:
            await super().aclose()
        finally:
            try:
                await self._fleet.aclose()
            finally:
                await self.api.aclose()


def _in_common(spec: SandboxSpec) -> SandboxSpec:
    return SandboxSpec(isolation=spec.isolation, network=spec.network, file_size_mb=spec.file_size_mb, pids=spec.pids)


def _key(spec: SandboxSpec, image: str, processes: int) -> tuple[Any, ...]:
    is_open = spec.network == "full"
    alike = (spec.isolation, image, is_open, spec.file_size_mb, processes)
    return alike if spec.isolation != "container" else (*alike, spec.cpu, spec.memory_mb)
