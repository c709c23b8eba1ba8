"""Backend `singularity`: instances of Apptainer or Singularity."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from hermes_backend_singularity.images.images import Image, Images
from hermes_backend_singularity.instances.command_lines import as_root, capabilities
from hermes_backend_singularity.instances.host import InstanceHost, make_directory
from hermes_backend_singularity.instances.ownership import (
    PREFIX,
    end_marked,
    forget_instance,
    instance_name,
)
from hermes_backend_singularity.options import SingularityOptions
from hermes_backend_singularity.plugin import APPTAINER, SINGULARITY
from hermes_backend_singularity.runtime.program import Program
from hermes_backend_singularity.runtime.spython_calls import instance_names
from hermes_core.contracts.errors import BackendError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_sandbox.backends import AgentBackend, Lease, SandboxHost, refuse_without_agent, system_error
from hermes_sandbox.local import (
    ControlGroups,
    Group,
    Limits,
    delete_tree,
    find_abandoned,
    mount_sized,
    plan_limits,
    write_lease_copy,
)

_FACTS: Final = "id -u; sed -n 's/^CapEff:[[:space:]]*//p; s/^NoNewPrivs:[[:space:]]*//p' /proc/self/status"


class SingularityBackend(AgentBackend):
    """Sandboxes in instances, one instance each; the agent is the first process of a PID namespace in it.

    If the caller is root, commands run as another user; otherwise as the caller, in a user namespace.
    """

    declaration: ClassVar[BackendSpec] = SINGULARITY
    Options = SingularityOptions

    def __init__(self, options: SingularityOptions | None = None) -> None:
        self.options = options or SingularityOptions()
        self.concurrent_starts = self.options.concurrent_starts
        super().__init__()
        self.setup_timeout = self.options.setup_timeout
        self.patience = self.options.patience
        self.pids = self.options.pids
        self.images = Images(self.options)
        self._groups = ControlGroups(self.options.cgroup)
        self._program: Program | None = None
        self._version = ""
        self._without_python: dict[Path, tuple[str, Mapping[str, str]]] = {}

    async def probe(self, spec: SandboxSpec) -> None:
        """Start an instance for this spec, and check from inside which user and privileges commands have.

        Raises:
            SandboxRefusedError: Something is missing on this machine, or a check failed.
        """
        async with await self.open(spec) as sandbox:
            result = await sandbox.exec(_FACTS, timeout=self.setup_timeout)
        found = result.output.split()
        if result.exit_code != 0 or len(found) != 3:
            raise BackendError(f"a command to check an instance failed: {result.output.strip()}")
        uid = self.options.identity[0] if as_root() else os.geteuid()
        privileged = int(found[1], 16) != 0 and uid != 0
        if int(found[0]) != uid or privileged or found[2] != "1":
            raise SandboxRefusedError(
                f"expected commands of user {uid}{'' if uid == 0 else ', no capabilities'} and no_new_privs 1, "
                f"got user {found[0]}, capabilities {found[1]} and no_new_privs {found[2]}"
            )

    def commands_are_root(self, spec: SandboxSpec) -> bool:
        """Return whether commands are root or, in a user namespace, own the image's system files."""
        del spec
        return not as_root() or self.options.identity[0] == 0

    def handle(self, spec: SandboxSpec, sandbox_id: str) -> Mapping[str, Any]:
        """Return the names of the instance, the directory and the control groups."""
        groups = self._group_paths(self._plan(spec, sandbox_id), sandbox_id)
        return {
            "sandbox_id": sandbox_id,
            "instance": instance_name(sandbox_id),
            "root": str(self.options.scratch_dir / f"{PREFIX}{sandbox_id}"),
            "groups": [str(path) for path in groups],
        }

    def _plan(self, spec: SandboxSpec, sandbox_id: str) -> Limits:
        per_process = self.options.memory_limit == "per_process"
        return plan_limits(spec, self._groups, sandbox_id, per_process=per_process, pids=self.pids)

    def _group_paths(self, limits: Limits, sandbox_id: str) -> list[Path]:
        return self._groups.paths(sandbox_id, limits.controllers)

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        """Get the image, and create the directory and the control group; the instance is started with the agent."""
        program = await self._find_program()
        image = await self.images.ready(spec.image or self.options.image, program)
        limits = self._plan(spec, sandbox_id)
        paths = self._group_paths(limits, sandbox_id)
        group = Group(paths) if paths else None
        root = Path(self.handle(spec, sandbox_id)["root"])
        host = InstanceHost(
            program,
            root,
            sandbox_id,
            image,
            spec=spec,
            options=self.options,
            group=group,
            address_space=limits.address_space,
            is_bounded="pids" in limits.enforced,
            provenance=_describe(self.options, image, self._version, limits),
        )
        host.on_no_python = lambda *found: self._without_python.__setitem__(image.path, found)
        if image.path in self._without_python and host.serves_plain:
            host.without_python, host.environment = self._without_python[image.path]
            refuse_without_agent(spec, host.without_python)
        await self._furnish(spec, sandbox_id, root, limits)
        try:
            if group is not None:
                group.create(limits.settings)
        except OSError as error:
            await delete_tree(root)
            raise system_error("the sandbox's control group cannot be created", error) from error
        return host

    async def _furnish(self, spec: SandboxSpec, sandbox_id: str, root: Path, limits: Limits) -> None:
        try:
            await asyncio.to_thread(_make_root, root, limits.disk, self.lease_for(spec, sandbox_id))
        except OSError as error:
            await delete_tree(root)
            hint = "set the backend's option scratch_dir to a writable directory with free space"
            raise system_error(f"the sandbox's directory {root} cannot be created", error, hint) from error
        except SandboxRefusedError:
            await delete_tree(root)
            raise

    async def _find_program(self) -> Program:
        if self._program is None:
            program = Program.find(self.options.program, os.environ)
            self._version = await asyncio.to_thread(program.version)
            self._program = program
        return self._program

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """Kill and delete everything that a killed caller left of a sandbox; it is no error if nothing is left.

        Raises:
            BackendError: The handle names a path that is not the sandbox's, or something could not be removed.
        """
        sandbox_id, root = handle["sandbox_id"], Path(handle["root"])
        groups = [Path(path) for path in handle.get("groups", ())]
        for path in (root, *groups):
            if path.name != f"{PREFIX}{sandbox_id}":
                raise BackendError(f"expected a path of sandbox {sandbox_id}, got {path}; nothing was removed")
        await end_marked(sandbox_id)
        if groups:
            await Group(groups).remove()
        with contextlib.suppress(SandboxRefusedError):  # the program was uninstalled, so its instance is dead too
            await self._forget(await self._find_program(), sandbox_id)
        await delete_tree(root)

    async def _forget(self, program: Program, sandbox_id: str) -> None:
        await asyncio.to_thread(forget_instance, program.settings_dir, sandbox_id)
        if instance_name(sandbox_id) in await asyncio.to_thread(instance_names, program):
            raise BackendError(
                f"instance {instance_name(sandbox_id)} is still listed",
                hint=f"apptainer instance stop --force {instance_name(sandbox_id)}",
            )

    async def sweep(self, *, remove: bool = True) -> list[str]:
        """Find the directories of dead owners; each holds a copy of its lease."""
        found = await asyncio.to_thread(find_abandoned, self.options.scratch_dir, self.declaration.name)
        if remove:
            # A sandbox that cannot be removed must not prevent the removal of the others.
            removing = (self.reclaim(lease.handle) for lease in found)
            for result in await asyncio.gather(*removing, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
        return [lease.sandbox_id for lease in found]

    async def aclose(self) -> None:
        """Close every sandbox that is still open, then release the images."""
        try:
            await super().aclose()
        finally:
            self.images.release()


class ApptainerBackend(SingularityBackend):
    """The same backend under the name that the program has had since 2022."""

    declaration: ClassVar[BackendSpec] = APPTAINER


def _make_root(root: Path, disk: int | None, lease: Lease) -> None:
    root.parent.mkdir(parents=True, exist_ok=True)
    root.mkdir(mode=0o700)
    if disk is not None:
        _limit_disk(root, disk)
    make_directory(root)
    write_lease_copy(root, lease)  # as the last step, so that it proves the rest


def _limit_disk(root: Path, size: int) -> None:
    try:
        mount_sized(root, size)
    except OSError as error:
        raise SandboxRefusedError(
            f"limit disk_mb cannot be enforced here: {error}", hint="run as root, or leave disk_mb out"
        ) from error


def _describe(options: SingularityOptions, image: Image, version: str, limits: Limits) -> dict[str, Any]:
    """Return the facts to record: the image, the program's version, the commands' user and the enforced limits."""
    uid, gid = options.identity if as_root() else (os.geteuid(), os.getegid())
    return {
        "image": image.name,
        "image_id": image.digest,
        "engine": version,
        "uid": uid,
        "gid": gid,
        "weaker": ["commands are root inside"] if uid == 0 else [],
        "limits": dict(limits.enforced),
        "capabilities": sorted(capabilities(options)),
        "user_namespace": not as_root(),
    }
