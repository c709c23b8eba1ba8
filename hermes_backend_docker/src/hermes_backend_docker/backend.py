"""Backend `docker`: containers of a Docker engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from hermes_backend_docker.address import find_address
from hermes_backend_docker.engine import Engine, EngineFacts
from hermes_backend_docker.hardening import STATE_DIR, capabilities, container_config, enforced, is_read_only
from hermes_backend_docker.host import ContainerHost
from hermes_backend_docker.images import Image, Images
from hermes_backend_docker.options import DockerOptions
from hermes_backend_docker.ownership import SANDBOX, container_name, is_abandoned, labels_of
from hermes_backend_docker.plugin import DOCKER
from hermes_core.contracts.errors import BackendError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.sandbox import AgentBackend, SandboxHost
from hermes_core.specs import BackendSpec

_NOT_INHERITED: Final = frozenset({"HOME", "SHELL", "TERM", "LANG"})
"""Variables of an image that belong to another user or terminal than the commands'."""


class DockerBackend(AgentBackend):
    """Sandboxes in containers: the agent is the first process, and the commands are another user's.

    `container` is one container for each sandbox; `container+slot` puts several into one, each with a user of its own;
    `gvisor` is `container` with the runtime runsc.
    """

    declaration: ClassVar[BackendSpec] = DOCKER
    Options = DockerOptions

    def __init__(self, options: DockerOptions | None = None) -> None:
        self.options = options or DockerOptions()
        self.concurrent_starts = self.options.concurrent_starts
        super().__init__()
        self.setup_timeout = self.options.setup_timeout
        self.patience = self.options.patience
        self.engine = Engine(
            find_address(self.options.docker_host, self.options.tls_dir), timeout=self.options.engine_timeout
        )
        self.images = Images(
            self.engine,
            pull=self.options.pull,
            pull_timeout=self.options.pull_timeout,
            build_timeout=self.options.build_timeout,
        )

    async def probe(self, spec: SandboxSpec) -> None:
        """Start a container of this kind and run a command in it."""
        async with await self.open(spec) as sandbox:
            result = await sandbox.exec("true", timeout=self.setup_timeout)
        if result.exit_code != 0:
            raise BackendError(f"bash does not work in a container: {result.output.strip()}")

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        """Create a container, not started yet."""
        facts = await self.engine.facts()
        self._refuse_what_the_engine_lacks(spec, facts)
        image = await self._image(spec)
        pids = spec.pids or self.options.pids
        lease = self._lease(spec, sandbox_id)
        config = container_config(spec=spec, options=self.options, image=image.id, labels=labels_of(lease), pids=pids)
        host = ContainerHost(
            self.engine,
            container_name(sandbox_id),
            config,
            workspace=self.options.workspace,
            bash=self.options.bash,
            environment=self._environment(image),
            identity=self.options.identity,
            state_dir=STATE_DIR if is_read_only(spec, self.options) else None,
            provenance=self._provenance(spec, facts, image, pids),
        )
        # The same turn as a start's: creating is half the engine's work.
        async with self._starting:
            await host.create()
        return host

    async def _image(self, spec: SandboxSpec) -> Image:
        if spec.image is not None:
            return await self.images.ready(spec.image)
        if self.options.dockerfile is not None:
            return await self.images.ready(f"dockerfile:{self.options.dockerfile}", self.options.context)
        return await self.images.ready(self.options.image)

    def _refuse_what_the_engine_lacks(self, spec: SandboxSpec, facts: EngineFacts) -> None:
        runtime = self.options.runtime or ("runsc" if spec.isolation == "gvisor" else None)
        if runtime is not None and runtime not in facts.runtimes:
            raise SandboxRefusedError(
                f"the engine has no runtime {runtime!r}; it has {', '.join(facts.runtimes)}",
                hint=f"install {runtime} (for gVisor: https://gvisor.dev/docs/user_guide/install) and list it in "
                "/etc/docker/daemon.json",
            )
        asked = {"memory": spec.memory_mb, "cpu": spec.cpu, "pids": spec.pids or self.options.pids}
        for limit, value in asked.items():
            if value is not None and limit not in facts.limits:
                raise SandboxRefusedError(
                    f"the engine cannot enforce a limit of {limit}",
                    hint="docker info says why; its kernel lacks that control group, or it runs without root",
                )
        if spec.disk_mb is not None and spec.memory_mb is not None and spec.disk_mb >= spec.memory_mb:
            raise SandboxRefusedError(
                f"a limited disk is kept in the container's memory: wanted {spec.disk_mb} MB of disk within "
                f"{spec.memory_mb} MB of memory",
                hint="raise memory_mb above disk_mb, or lower disk_mb",
            )

    def _environment(self, image: Image) -> dict[str, str]:
        inherited = {name: value for name, value in image.environment.items() if name not in _NOT_INHERITED}
        return {**inherited, **self.options.env}

    def _provenance(self, spec: SandboxSpec, facts: EngineFacts, image: Image, pids: int) -> dict[str, Any]:
        uid, gid = self.options.identity
        runtime = self.options.runtime or ("runsc" if spec.isolation == "gvisor" else facts.default_runtime)
        return {
            "image": image.name,
            "image_id": image.id,
            "engine": facts.version,
            "runtime": runtime,
            "uid": uid,
            "gid": gid,
            "weaker": ["commands are root inside"] if uid == 0 else [],
            "limits": enforced(spec, pids),
            "disk": "memory" if spec.disk_mb is not None else "unlimited",
            "read_only_root": is_read_only(spec, self.options),
            "swap_limited": "swap" in facts.limits,
            "capabilities": capabilities(self.options),
        }

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """Remove the container that a killed process left behind; one that is not there is fine."""
        await self.engine.remove(container_name(handle["sandbox_id"]))

    async def sweep(self, *, remove: bool = True) -> list[str]:
        """Find every container whose owner is dead, lease or not; returns the ids of their sandboxes."""
        abandoned = []
        for found in await self.engine.labelled(SANDBOX):
            if is_abandoned(found["Labels"]):
                if remove:
                    await self.engine.remove(found["Id"])
                abandoned.append(found["Labels"][SANDBOX])
        return abandoned

    async def aclose(self) -> None:
        """Close every sandbox that is still open, then the connections to the engine."""
        try:
            await super().aclose()
        finally:
            await self.engine.aclose()
