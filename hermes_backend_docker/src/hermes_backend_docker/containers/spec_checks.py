"""Refuse specs that an engine cannot satisfy, and build the commands' environment and the record."""

from __future__ import annotations

from typing import Any, Final

from hermes_backend_docker.containers.hardening import (
    GVISOR,
    capabilities,
    is_read_only,
    limits_of,
    processes_of,
    runtime_of,
)
from hermes_backend_docker.engine.client import EngineFacts
from hermes_backend_docker.images.images import Image
from hermes_backend_docker.options import DockerOptions
from hermes_core.contracts.errors import SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec

_NOT_INHERITED: Final = frozenset({"HOME", "SHELL", "TERM", "LANG"})
"""Variables of an image that do not apply to the commands' user and terminal."""
_OF_THE_CONTAINER: Final = ("cpu", "memory_mb", "disk_mb")


def refuse_what_slots_share(spec: SandboxSpec, options: DockerOptions) -> None:
    """Raise `SandboxRefusedError` for requirements that only hold for all slots of a container together."""
    asked = [name for name in _OF_THE_CONTAINER if getattr(spec, name) is not None]
    if asked:
        raise SandboxRefusedError(
            f"slots of a container share its {', '.join(asked)}: a slot cannot have its own limit",
            hint="--isolation container, or remove the limit",
        )
    if options.identity[0] == 0:
        raise SandboxRefusedError(
            "slots of a container cannot all be root",
            hint="remove the backend's option user, or --isolation container",
        )
    if spec.user is not None:
        raise SandboxRefusedError(
            f"expected no user, as slots of a container have their own, got {spec.user!r}",
            hint="--isolation container, or remove user",
        )


def refuse_wishes(spec: SandboxSpec) -> None:
    """Raise `SandboxRefusedError` for a disk limit that is only a wish: it would change the file system."""
    if "disk_mb" in spec.wishes and spec.disk_mb is not None:
        raise SandboxRefusedError(
            "limit disk_mb would be kept in the container's memory, with all but a few folders read-only",
            hint="set sandbox.disk_mb in the run's config to accept that",
        )


def refuse_what_lacks(spec: SandboxSpec, options: DockerOptions, facts: EngineFacts) -> None:
    """Raise `SandboxRefusedError` for requirements that this engine does not support and would only warn about."""
    runtime = runtime_of(spec, options)
    if spec.isolation == "gvisor" and GVISOR not in str(runtime):
        raise SandboxRefusedError(
            f"expected a runtime of gVisor for isolation 'gvisor', got {runtime!r}",
            hint=f"remove the backend's option runtime, or set one of gVisor's ({GVISOR})",
        )
    if runtime is not None and runtime not in facts.runtimes:
        raise SandboxRefusedError(
            f"the engine has no runtime {runtime!r}; it has {', '.join(facts.runtimes)}",
            hint=f"install {runtime} (for gVisor: https://gvisor.dev/docs/user_guide/install) and list it in "
            "/etc/docker/daemon.json",
        )
    asked = {"memory": spec.memory_mb, "cpu": spec.cpu, "pids": processes_of(spec, options)}
    for limit, value in asked.items():
        if value is not None and limit not in facts.limits:
            raise SandboxRefusedError(
                f"the engine cannot enforce a limit of {limit}",
                hint="docker info shows why: the kernel lacks that control group, or the engine runs without root",
            )
    if spec.isolation == "container+slot" and spec.pids is not None and facts.few_users:
        raise SandboxRefusedError(
            "slots of a container share its pids here, since the engine maps users to the same few in every container",
            hint="--isolation container, or remove pids, or use an engine with neither userns-remap nor rootless mode",
        )
    if spec.disk_mb is not None and spec.memory_mb is not None and spec.disk_mb >= spec.memory_mb:
        raise SandboxRefusedError(
            f"expected disk_mb below memory_mb, as a limited disk is in memory, got {spec.disk_mb} MB of disk and "
            f"{spec.memory_mb} MB of memory",
            hint="raise memory_mb above disk_mb, or lower disk_mb",
        )


def environment_of(image: Image, options: DockerOptions) -> dict[str, str]:
    """Return the variables of the commands that come from the image and the options."""
    inherited = {name: value for name, value in image.environment.items() if name not in _NOT_INHERITED}
    return {**inherited, **options.env}


def describe(spec: SandboxSpec, options: DockerOptions, facts: EngineFacts, image: Image) -> dict[str, Any]:
    """Return the provenance of a rollout."""
    uid, gid = options.identity
    return {
        "image": image.name,
        "image_id": image.id,
        "engine": facts.version,
        "runtime": runtime_of(spec, options) or facts.default_runtime,
        "uid": uid,
        "gid": gid,
        "weaker": ["commands are root inside"] if uid == 0 else [],
        "limits": limits_of(spec, options),
        "read_only_root": is_read_only(spec, options),
        "swap_limited": "swap" in facts.limits,
        "capabilities": capabilities(options),
    }
