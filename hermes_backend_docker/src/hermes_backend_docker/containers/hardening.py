"""Container configs with the fewest capabilities that the agent needs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from hermes_backend_docker.options import DockerOptions
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.backends import PYTHON_FLAGS, chown_script, shared_dir_script, shell_command

AGENT_CAPABILITIES: Final[Mapping[str, str]] = {
    "SETUID": "become the user of the commands",
    "SETGID": "become that user's group",
    "KILL": "end the commands, which are another user's",
    "CHOWN": "give the workspace to the user of the commands, and take it back",
}
"""The agent's capabilities and their purposes. Commands of a user other than root have none of them."""

ROOT_CAPABILITIES: Final[Mapping[str, str]] = {
    "DAC_OVERRIDE": "read and write what other users own",
    "FOWNER": "change its mode and its times",
    "FSETID": "keep the setgid bit of files of another group, as in packages and team directories",
    "SYS_CHROOT": "chroot, which sshd needs for logins",
}
"""Additional capabilities if the commands are root's: those of the engine's default set that were found necessary.

apt-get, dpkg, useradd, su, passwd and sudo work with these. The rest of the default set is left out: ports below 1024
need no capability, since the engine lets every user bind them; without SETFCAP installers fall back to setuid, and with
it a ping marked for NET_RAW would not start; SETPCAP was not needed; MKNOD, NET_RAW and AUDIT_WRITE reach the machine's
own kernel.
"""

GVISOR: Final = "runsc"
"""The runtime of isolation `gvisor`; a substring of the name that an engine has for it."""
_STATE: Final = "/run/hermes"
STATE_DIR: Final = f"{_STATE}/state"
"""Folder for session state that must survive a full /tmp."""
_STATE_MB: Final = 64
_MB: Final = 1 << 20
_AGENT: Final = 1
"""Arguments of the agent in an unshared container: it is the first process and ends commands by itself."""
_HEAD_ROOM: Final = 16
"""Processes of a shared container outside the slots' users: the agent, its children before they switch user, and the
script that makes a workspace read-only.
"""


def container_config(
    *, spec: SandboxSpec, options: DockerOptions, image: str, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return the config of a container with a first process that waits for the agent."""
    return {
        "Image": image,
        "Entrypoint": [options.python, *PYTHON_FLAGS[:-1], _prepare(spec, options) + PYTHON_FLAGS[-1]],
        "Cmd": [],
        "User": "0:0",
        "WorkingDir": "/",
        "Env": ["LANG=C.UTF-8"],
        "Labels": {**options.labels, **labels},
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": True,
        # When the attached client ends, the agent's input ends, and the agent ends itself and the container.
        "StdinOnce": True,
        "Tty": False,
        # An image's health check would run beside the rollout.
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": _host_config(spec, options),
    }


def plain_config(config: Mapping[str, Any], spec: SandboxSpec, options: DockerOptions) -> dict[str, Any]:
    """Return the config of the same container with a shell instead of the agent."""
    host = config["HostConfig"]
    # The shell is root, and the commands must not reach its files.
    own = {_STATE: f"rw,nosuid,nodev,noexec,mode=0711,size={_STATE_MB}m"} if _STATE in host["Tmpfs"] else {}
    return {
        **config,
        "Entrypoint": list(shell_command(_prepare_plain(spec, options))),
        "HostConfig": {**host, "Tmpfs": {**host["Tmpfs"], **own}},
    }


def _prepare_plain(spec: SandboxSpec, options: DockerOptions) -> str:
    workspace = shlex.quote(options.workspace)
    lines = [f"mkdir -p {workspace}", f"mkdir -p -m 711 {STATE_DIR}"]
    uid, gid = options.identity
    if uid and not follows_image(spec, options):
        kept = "".join(f"-path {shlex.quote(target)} -prune -o " for target in options.targets)
        owner = f"chown -h {uid}:{gid}"
        lines.append(f"find {workspace} {kept}-exec {owner} {{}} +" if kept else f"chown -R {uid}:{gid} {workspace}")
    return "\n".join(lines)


def _host_config(spec: SandboxSpec, options: DockerOptions) -> dict[str, Any]:
    runtime = runtime_of(spec, options)
    return {
        "AutoRemove": True,
        "NetworkMode": options.network if spec.network == "full" else "none",
        "IpcMode": "private",
        "CapDrop": ["ALL"],
        "CapAdd": capabilities(options),
        "SecurityOpt": ["no-new-privileges"],
        "PidsLimit": _processes_of_all(spec, options),
        "Ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in options.ulimits.items()],
        "Binds": options.volumes,
        "ReadonlyRootfs": is_read_only(spec, options),
        "Tmpfs": _tmpfs(spec, options),
        # The agent's output would otherwise also go to the engine's disk, without a limit.
        "LogConfig": {"Type": "none"},
        **({"Runtime": runtime} if runtime else {}),
        **_limits(spec),
    }


def processes_of(spec: SandboxSpec, options: DockerOptions) -> int:
    """Return the limit of processes and threads for the commands of one sandbox."""
    return spec.pids or options.pids


def _processes_of_all(spec: SandboxSpec, options: DockerOptions) -> int:
    commands = processes_of(spec, options)
    if spec.isolation == "container+slot":
        return commands * options.slots_per_container + _HEAD_ROOM
    return commands + _AGENT


def runtime_of(spec: SandboxSpec, options: DockerOptions) -> str | None:
    """Return the requested runtime, or None for the engine's default."""
    return options.runtime or (GVISOR if spec.isolation == "gvisor" else None)


def capabilities(options: DockerOptions) -> list[str]:
    """Return the capabilities of the container's first process."""
    return [*AGENT_CAPABILITIES, *(ROOT_CAPABILITIES if options.identity[0] == 0 else ()), *options.capabilities]


def _prepare(spec: SandboxSpec, options: DockerOptions) -> str:
    if spec.isolation == "container+slot":
        return shared_dir_script(options.workspace)
    if not options.identity[0] or follows_image(spec, options):
        return ""
    # Files that the image has in the workspace belong to root; no command runs yet.
    return chown_script(options.workspace, options.identity, options.targets)


def follows_image(spec: SandboxSpec, options: DockerOptions) -> bool:
    """Return whether a sandbox's workspace is the image's own WORKDIR.

    Slots have separate folders, and if the rest is read-only, the WORKDIR would not be writable.
    """
    return spec.as_image and spec.isolation != "container+slot" and not is_read_only(spec, options)


def is_read_only(spec: SandboxSpec, options: DockerOptions) -> bool:
    """Return whether only the workspace and folders in memory are writable."""
    return options.read_only_root or spec.disk_mb is not None


def _limits(spec: SandboxSpec) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if spec.memory_mb is not None:
        # Both numbers the same: no swap.
        limits |= {"Memory": spec.memory_mb * _MB, "MemorySwap": spec.memory_mb * _MB}
    if spec.cpu is not None:
        limits["NanoCpus"] = int(spec.cpu * 1e9)
    return limits


def _tmpfs(spec: SandboxSpec, options: DockerOptions) -> dict[str, str]:
    if not is_read_only(spec, options):
        return {}
    uid, gid = options.identity
    sizes = {path: size if spec.disk_mb is None else min(size, spec.disk_mb) for path, size in options.tmpfs.items()}
    mounts = {path: f"rw,nosuid,nodev,exec,mode=1777,size={size}m" for path, size in sizes.items()}
    # Separate from /tmp, so that a rollout that fills /tmp keeps its session.
    mounts[_STATE] = f"rw,nosuid,nodev,noexec,mode=0700,uid={uid},gid={gid},size={_STATE_MB}m"
    owned = f"rw,nosuid,nodev,exec,mode=0755,uid={uid},gid={gid}"
    mounts[options.workspace] = owned + (f",size={spec.disk_mb}m" if spec.disk_mb is not None else "")
    return mounts


def limits_of(spec: SandboxSpec, options: DockerOptions) -> dict[str, str]:
    """Return the effective limits for the record; a slot's own process limit is added later if it has one."""
    asked = {
        "cpu": (spec.cpu, "cores"),
        "memory": (spec.memory_mb, "MB, no swap"),
        "disk": (spec.disk_mb, "MB, in memory"),
        "file_size": (spec.file_size_mb, "MB"),
    }
    shared = f"{_processes_of_all(spec, options)} for all slots together"
    processes = shared if spec.isolation == "container+slot" else f"{processes_of(spec, options)}"
    return {"pids": processes, **{name: f"{value:g} {unit}" for name, (value, unit) in asked.items() if value}}
