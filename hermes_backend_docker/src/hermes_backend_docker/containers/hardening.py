"""What a container may do: as little as its agent needs."""

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
"""The capabilities of the agent, and what for. Commands of a user other than root have none of them."""

ROOT_CAPABILITIES: Final[Mapping[str, str]] = {
    "DAC_OVERRIDE": "read and write what other users own",
    "FOWNER": "change its mode and its times",
    "FSETID": "keep the setgid bit of what another group owns, which packages set and directories of a team have",
    "SYS_CHROOT": "chroot, without which sshd takes no login",
}
"""What root is used to inside, where the commands are root's: of the engine's own set, all that was found missing.

apt-get, dpkg, useradd, su, passwd and sudo work with these. Of the rest of that set, ports below 1024 need none, since
the engine lets everybody bind them; without SETFCAP installers fall back to setuid, and with it a ping that is marked
for NET_RAW would not start; nobody missed SETPCAP; MKNOD, NET_RAW and AUDIT_WRITE reach the machine's own kernel.
"""

GVISOR: Final = "runsc"
"""The runtime of isolation `gvisor`; names under which engines have it contain this."""
_STATE: Final = "/run/hermes"
STATE_DIR: Final = f"{_STATE}/state"
"""Where a session is kept that must survive a full /tmp."""
_STATE_MB: Final = 64
_MB: Final = 1 << 20
_AGENT: Final = 1
"""The agent of a container of its own: its first process, which starts no other one to end those of the commands."""
_HEAD_ROOM: Final = 16
"""Processes of a shared container that no slot's user can take: the agent, what it starts until that has its user, and
what the engine runs inside to make a workspace read-only."""


def container_config(
    *, spec: SandboxSpec, options: DockerOptions, image: str, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return the engine's description of a container whose first process waits for the agent."""
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
        # The end of whoever is attached is the end of the agent's input, on which it ends itself and the container.
        "StdinOnce": True,
        "Tty": False,
        # What an image checks itself with would run beside the rollout.
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": _host_config(spec, options),
    }


def plain_config(config: Mapping[str, Any], spec: SandboxSpec, options: DockerOptions) -> dict[str, Any]:
    """Return the description of the same container with a shell in the agent's place."""
    host = config["HostConfig"]
    # The shell is root, and what it keeps is not the commands'.
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
        # What the agent says would otherwise be written to the engine's disk as well, for ever.
        "LogConfig": {"Type": "none"},
        **({"Runtime": runtime} if runtime else {}),
        **_limits(spec),
    }


def processes_of(spec: SandboxSpec, options: DockerOptions) -> int:
    """Return how many processes and threads the commands of one sandbox may have."""
    return spec.pids or options.pids


def _processes_of_all(spec: SandboxSpec, options: DockerOptions) -> int:
    commands = processes_of(spec, options)
    if spec.isolation == "container+slot":
        return commands * options.slots_per_container + _HEAD_ROOM
    return commands + _AGENT


def runtime_of(spec: SandboxSpec, options: DockerOptions) -> str | None:
    """Return the runtime that is asked for; None for the engine's own choice."""
    return options.runtime or (GVISOR if spec.isolation == "gvisor" else None)


def capabilities(options: DockerOptions) -> list[str]:
    """Return the capabilities of the container's first process."""
    return [*AGENT_CAPABILITIES, *(ROOT_CAPABILITIES if options.identity[0] == 0 else ()), *options.capabilities]


def _prepare(spec: SandboxSpec, options: DockerOptions) -> str:
    if spec.isolation == "container+slot":
        return shared_dir_script(options.workspace)
    if not options.identity[0] or follows_image(spec, options):
        return ""
    # What an image has copied into the workspace is root's; nothing of the rollout runs yet.
    return chown_script(options.workspace, options.identity, options.targets)


def follows_image(spec: SandboxSpec, options: DockerOptions) -> bool:
    """Tell whether a sandbox's workspace is the image's own WORKDIR, as it is there.

    Slots have folders of their own; where all but a few folders is read-only, another one would be of no use.
    """
    return spec.as_image and spec.isolation != "container+slot" and not is_read_only(spec, options)


def is_read_only(spec: SandboxSpec, options: DockerOptions) -> bool:
    """Tell whether only the workspace and what lies in memory can be written."""
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
    # Apart from /tmp, so that a rollout which fills that keeps its session.
    mounts[_STATE] = f"rw,nosuid,nodev,noexec,mode=0700,uid={uid},gid={gid},size={_STATE_MB}m"
    owned = f"rw,nosuid,nodev,exec,mode=0755,uid={uid},gid={gid}"
    mounts[options.workspace] = owned + (f",size={spec.disk_mb}m" if spec.disk_mb is not None else "")
    return mounts


def limits_of(spec: SandboxSpec, options: DockerOptions) -> dict[str, str]:
    """Return the limits that hold, for the record; the bound of a slot's own user is added where there is one."""
    asked = {
        "cpu": (spec.cpu, "cores"),
        "memory": (spec.memory_mb, "MB, no swap"),
        "disk": (spec.disk_mb, "MB, in memory"),
        "file_size": (spec.file_size_mb, "MB"),
    }
    shared = f"{_processes_of_all(spec, options)} for all slots together"
    processes = shared if spec.isolation == "container+slot" else f"{processes_of(spec, options)}"
    return {"pids": processes, **{name: f"{value:g} {unit}" for name, (value, unit) in asked.items() if value}}
