"""Backend `docker`: containers of a Docker engine."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeVar, cast

from hermes_backend_docker.containers.hardening import (
    STATE_DIR,
    container_config,
    is_read_only,
    plain_config,
    processes_of,
)
from hermes_backend_docker.containers.host import ContainerHost, SharedContainer
from hermes_backend_docker.containers.ownership import POOL, SANDBOX, container_name, is_abandoned, labels_of
from hermes_backend_docker.containers.spec_checks import (
    describe,
    environment_of,
    refuse_what_lacks,
    refuse_what_slots_share,
    refuse_wishes,
)
from hermes_backend_docker.containers.users import ACCOUNTS, ROOT, Account, find_account, fit, is_root, user_for
from hermes_backend_docker.engine.address import find_address
from hermes_backend_docker.engine.client import Engine, EngineFacts
from hermes_backend_docker.engine.failures import ImageMissingError, ProgramMissingError
from hermes_backend_docker.images.carried_python import CarriedPython, CarriedPythons
from hermes_backend_docker.images.images import Image, Images
from hermes_backend_docker.options import DockerOptions
from hermes_backend_docker.plugin import DOCKER
from hermes_core.contracts.errors import BackendError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_sandbox.backends import AgentBackend, SandboxHost, UserSlot, first_uid, refuse_without_agent, slot_fields

Host = TypeVar("Host", bound=ContainerHost)
_USES: Final = 16
"""How many times a shared container is filled before it is replaced."""


class DockerBackend(AgentBackend):
    """Sandboxes in containers: the agent is the first process, and the commands are another user's.

    `container` is one container per sandbox; `container+slot` puts several sandboxes into one, each with its own user;
    `gvisor` is `container` with the runtime runsc.
    """

    declaration: ClassVar[BackendSpec] = DOCKER
    Options = DockerOptions

    def __init__(self, options: DockerOptions | None = None) -> None:
        self.options = options or DockerOptions()
        super().__init__(self.options)
        address = find_address(self.options.docker_host, self.options.tls_dir)
        self.engine = Engine(address, timeout=self.options.engine_timeout)
        self.images = Images(
            self.engine,
            pull=self.options.pull,
            pull_timeout=self.options.pull_timeout,
            build_timeout=self.options.build_timeout,
        )
        self._pythons = CarriedPythons(self.engine, self.options)
        self._accounts: dict[tuple[str, str], Account] = {}
        self._account_turn = asyncio.Lock()
        self._pool_id = uuid.uuid4().hex[:16]

    def refuse(self, spec: SandboxSpec) -> None:
        """Refuse also limits that a container cannot enforce for a single slot."""
        super().refuse(spec)
        if self.shares(spec):
            refuse_what_slots_share(spec, self.options)
        refuse_wishes(spec)

    def has_user(self, spec: SandboxSpec) -> bool:
        """Return True: whether the image has Python is only known once it is pulled."""
        del spec
        return True

    def commands_are_root(self, spec: SandboxSpec) -> bool:
        """Return whether the user of the option, task or image is root; slots are never root."""
        user = user_for(spec, self.options, self.images.last_known(self._image_name(spec)))
        return not self.shares(spec) and (self.options.identity[0] == 0 if user is None else is_root(user))

    def shares(self, spec: SandboxSpec) -> bool:
        """Return whether the spec asks for slots, which share containers."""
        return spec.isolation == "container+slot"

    async def probe(self, spec: SandboxSpec) -> None:
        """Start a container for this spec and run a command in it."""
        async with await self.open(spec) as sandbox:
            result = await sandbox.exec(
                "read -r kernel </proc/sys/kernel/osrelease && echo $kernel", timeout=self.setup_timeout
            )
        if result.exit_code != 0:
            raise BackendError(f"a shell does not work in a container: {result.output.strip()}")
        kernel = result.output.strip()
        if spec.isolation == "gvisor" and kernel == (await self.engine.facts()).kernel:
            raise SandboxRefusedError(
                f"expected gVisor's kernel for isolation 'gvisor', got the engine's own kernel {kernel}",
                hint="docker info lists the runtimes; check the path of runsc in /etc/docker/daemon.json",
            )

    def handle(self, spec: SandboxSpec, sandbox_id: str) -> Mapping[str, Any]:
        """Name the container after the sandbox, or a shared one after its pool's owner."""
        pool = {"pool": self._pool_id} if self.shares(spec) else {}
        return {"sandbox_id": sandbox_id, **pool}

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        """Create a container without starting it, or join a shared one."""
        facts = await self.engine.facts()
        refuse_what_lacks(spec, self.options, facts)
        image = await self._image(spec)
        if self.shares(spec):
            return self._slot(spec, sandbox_id, facts, image)
        try:
            return await self._container(spec, sandbox_id, facts, image)
        except ImageMissingError:
            # The image was removed meanwhile: build or pull it again, or raise with a hint.
            self.images.forget(image.name)
            return await self._container(spec, sandbox_id, facts, await self._image(spec))

    async def _container(self, spec: SandboxSpec, sandbox_id: str, facts: EngineFacts, image: Image) -> ContainerHost:
        options = fit(spec, self.options, image, await self._account(spec, sandbox_id, image))
        host = self._host(ContainerHost, spec, sandbox_id, facts=facts, image=image, options=options)
        if options.offers_shell:
            # A shell does not need the Python that is brought for an agent.
            as_it_is = container_config(spec=spec, options=options, image=image.id, labels=host.config["Labels"])
            host.plain = plain_config(as_it_is, spec, options)
            host.without_python = self._why_no_python(image)
            if host.without_python is not None:
                refuse_without_agent(spec, host.without_python)
                return host
        # Uses the semaphore of starts, because creating is half of the engine's work.
        async with self.starts:
            await host.create()
        return host

    async def _account(self, spec: SandboxSpec, sandbox_id: str, image: Image) -> Account | None:
        """Return the user of the task or its image, looked up in the image, or None if the options decide."""
        user = user_for(spec, self.options, image)
        if user is None or is_root(user):
            return None if user is None else ROOT
        async with self._account_turn:
            if (image.id, user) not in self._accounts:
                # Use the name of the sandbox's later container, so that its lease finds this one too.
                name, labels = container_name(sandbox_id), labels_of(self.lease_for(spec, sandbox_id))
                files = await self.engine.read_files(name, image.id, labels, ACCOUNTS)
                self._accounts[image.id, user] = await asyncio.to_thread(find_account, user, *files)
        return self._accounts[image.id, user]

    def _why_no_python(self, image: Image) -> str | None:
        if self.options.plain == "always":
            return "the backend's option plain is always"
        return self._pythons.lack(image)

    def _host(
        self,
        kind: type[Host],
        spec: SandboxSpec,
        sandbox_id: str,
        *,
        facts: EngineFacts,
        image: Image,
        options: DockerOptions,
        labels: Mapping[str, str] | None = None,
    ) -> Host:
        name, marks = container_name(sandbox_id), {**labels_of(self.lease_for(spec, sandbox_id)), **(labels or {})}
        python = self._pythons.of(image)

        def config(python: CarriedPython | None) -> dict[str, Any]:
            fitted = options if python is None else python.fit(options)
            return container_config(spec=spec, options=fitted, image=image.id, labels=marks)

        async def bring_python(error: ProgramMissingError) -> Mapping[str, Any]:
            nonlocal python
            python = await self._pythons.replace(python, image, error, name=name, config=config)
            host.provenance = self._provenance_of(spec, options, facts, image)
            return config(python)

        host = kind(
            self.engine,
            name,
            config(python),
            workspace=options.workspace,
            bash=options.bash,
            environment=environment_of(image, options),
            identity=options.identity,
            state_dir=STATE_DIR if is_read_only(spec, options) else None,
            provenance=self._provenance_of(spec, options, facts, image),
            bring_python=bring_python,
        )
        return host

    def _provenance_of(
        self, spec: SandboxSpec, options: DockerOptions, facts: EngineFacts, image: Image
    ) -> dict[str, Any]:
        carried = self._pythons.of(image)
        version = {} if carried is None else {"carried_python": carried.version}
        return {**describe(spec, options, facts, image), **version}

    def _slot(self, spec: SandboxSpec, sandbox_id: str, facts: EngineFacts, image: Image) -> UserSlot:
        def take(host: SandboxHost, number: int) -> Mapping[str, Any]:
            slot.provenance = {**self._provenance_of(spec, self.options, facts, image), **user}
            return self._slot_in(cast("SharedContainer", host), sandbox_id, number, facts)

        user = {"uid": "of the slot", "gid": "of the slot"}
        slot = UserSlot(
            self.host_pool,
            (image.id, spec.network == "full", spec.file_size_mb, processes_of(spec, self.options)),
            lambda: self._share(spec, facts, image),
            limit=self.options.slots_per_container,
            describe=take,
            provenance={**describe(spec, self.options, facts, image), **user},
        )
        return slot

    def _slot_in(
        self, container: SharedContainer, sandbox_id: str, number: int, facts: EngineFacts
    ) -> Mapping[str, Any]:
        # Users that other containers have too are limited by their container only.
        processes = 0 if facts.few_users else None
        uid = container.first_uid + number
        return slot_fields(self.options.workspace, sandbox_id, uid, processes, kept=self.options.targets)

    async def _share(self, spec: SandboxSpec, facts: EngineFacts, image: Image) -> SharedContainer:
        try:
            return await self.make_shared_host(
                spec, lambda container_id: self._make_shared(spec, container_id, facts, image)
            )
        except ImageMissingError:
            self.images.forget(image.name)
            raise

    async def _make_shared(
        self, spec: SandboxSpec, container_id: str, facts: EngineFacts, image: Image
    ) -> SharedContainer:
        labels = {POOL: self._pool_id}
        options = self.options
        host = self._host(SharedContainer, spec, container_id, facts=facts, image=image, options=options, labels=labels)
        host.retire_at = time.monotonic() + self.options.container_ttl
        host.first_uid = first_uid(container_id, few=facts.few_users)
        host.uses = options.slots_per_container * _USES
        # No start semaphore here: `create` and `start` take it themselves.
        await host.create()
        return host

    async def _image(self, spec: SandboxSpec) -> Image:
        is_own = spec.image is not None or self.options.dockerfile is None
        return await self.images.ready(self._image_name(spec), None if is_own else self.options.context)

    def _image_name(self, spec: SandboxSpec) -> str:
        if spec.image is not None or self.options.dockerfile is None:
            return spec.image or self.options.image
        return f"dockerfile:{self.options.dockerfile}"

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """Remove the container of a killed process; a missing container is not an error.

        Raises:
            BackendError: It is shared and its owner is alive.
        """
        await self.engine.remove(container_name(handle["sandbox_id"]))
        if "pool" not in handle:
            return
        for found in await self.engine.list_by_label(f"{POOL}={handle['pool']}"):
            if not is_abandoned(found["Labels"]):
                shared = found["Labels"][SANDBOX]
                raise BackendError(
                    f"it shares container {container_name(shared)} with others",
                    hint=f"hermes-core sandboxes kill {shared} ends all of them",
                )
            await self.engine.remove(found["Id"])

    async def sweep(self, *, remove: bool = True) -> list[str]:
        """Find containers of dead owners, with or without leases; return the ids of their sandboxes."""
        found = [entry for entry in await self.engine.list_by_label(SANDBOX) if is_abandoned(entry["Labels"])]
        if remove:
            for entry in found:
                await self.engine.remove(entry["Id"])
        return [entry["Labels"][SANDBOX] for entry in found]

    async def aclose(self) -> None:
        """Close all open sandboxes, then the connections to the engine."""
        try:
            await super().aclose()
        finally:
            await self.engine.aclose()
