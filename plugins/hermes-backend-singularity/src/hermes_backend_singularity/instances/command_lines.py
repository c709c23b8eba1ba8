"""The command lines that start an instance and programs in it, and the first message to its agent."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

from hermes_backend_singularity.instances.ownership import instance_name
from hermes_backend_singularity.options import SingularityOptions
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.backends import PYTHON_FLAGS, shell_command
from hermes_sandbox.local import MARKER

AGENT_CAPABILITIES: Final[Mapping[str, int]] = {"CHOWN": 0, "KILL": 5, "SETGID": 6, "SETUID": 7}
"""The agent's capabilities if the caller is root: to chown the workspace, end commands and switch to their user."""
ROOT_CAPABILITIES: Final[Mapping[str, int]] = {"DAC_OVERRIDE": 1, "FOWNER": 3}
"""Capabilities that installers expect if commands are root."""
_TO_SEPARATE: Final = ("SETPCAP", "SYS_ADMIN")
"""Additional capabilities that `nested_namespaces` needs and then drops."""
STATE: Final = "/run/hermes"
_SHM_MB: Final = 64
_NOT_INHERITED: Final = frozenset(
    {
        "HOME",
        "SHELL",
        "TERM",
        "LANG",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
        "PROMPT_COMMAND",
        "PS1",
        "USER",
        "LD_LIBRARY_PATH",
        MARKER,
    }
)
"""Variables that commands do not get from the image, because they belong to another user, terminal or program."""
_OF_THE_PROGRAM: Final = ("APPTAINER", "SINGULARITY")

# Reads exact numbers of bytes, so that the rest of the stream is left for the next reader.
_RECEIVE: Final = """
import os
def receive(size):
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            raise SystemExit(3)
        data += more
    return data
exec(compile(receive(int(receive(8), 16)), "<hermes-nest>", "exec"))
"""


def as_root() -> bool:
    """Return whether the caller is root, which decides how the commands' user and capabilities are set."""
    return os.geteuid() == 0


def capabilities(options: SingularityOptions) -> dict[str, int]:
    """Return the capabilities of the agent, by name, with their numbers."""
    if not as_root():
        return {}
    return {**AGENT_CAPABILITIES, **(ROOT_CAPABILITIES if options.identity[0] == 0 else {})}


def start_arguments(
    root: Path, image: Path, sandbox_id: str, *, spec: SandboxSpec, options: SingularityOptions
) -> list[str]:
    """Return the arguments that start an instance, which writes everything below `root`."""
    binds = [flag for bind in [f"{root}/state:{STATE}", *options.binds] for flag in ("--bind", bind)]
    return [
        *("-s", "instance", "start", *_privileges(capabilities(options))),
        # No mounts that apptainer.conf adds, no working directory, and no /tmp in the memory of the session.
        *("--containall", "--no-home", "--cleanenv", "--no-eval", "--no-mount", "tmp,home,cwd,hostfs,bind-paths"),
        *("--overlay", f"{root}/overlay", "--hostname", "sandbox", "--pid-file", f"{root}/pid"),
        *([] if spec.network == "full" else ["--net", "--network", "none"]),
        *binds,
        *(str(image), instance_name(sandbox_id)),
    ]


def _privileges(names: Mapping[str, int], *more: str) -> list[str]:
    if not as_root():
        return ["--no-privs"]
    return ["--no-privs", "--add-caps", ",".join(f"CAP_{name}" for name in (*names, *more))]


def _exec_arguments(sandbox_id: str, privileges: list[str], argv: list[str]) -> list[str]:
    inside = ("--cleanenv", "--no-eval", "--env", f"{MARKER}={sandbox_id}.0", "--pwd", "/")
    return ["-s", "exec", *privileges, *inside, f"instance://{instance_name(sandbox_id)}", *argv]


def agent_arguments(sandbox_id: str, options: SingularityOptions) -> list[str]:
    """Return the arguments that start, in an instance, a Python that waits for `nest_message`."""
    privileges = _privileges(capabilities(options), *_TO_SEPARATE)
    return _exec_arguments(sandbox_id, privileges, [options.python, *PYTHON_FLAGS[:-1], _RECEIVE])


def nest_message(
    spec: SandboxSpec, options: SingularityOptions, *, frozen: bool, give: bool, address_space: int | None = None
) -> bytes:
    """Return the first message to that Python, which then separates itself, reports, and waits for the agent's code.

    Args:
        spec: The sandbox's spec.
        options: The backend's options.
        frozen: Whether the workspace is mounted read-only.
        give: Whether the commands' user becomes the owner of the workspace.
        address_space: How many bytes of memory each process can map at most.
    """
    settings: dict[str, Any] = {
        "identity": options.identity if as_root() else (0, 0),
        "workspace": options.workspace,
        "state": STATE,
        "shm_mb": _SHM_MB if spec.disk_mb is None else min(_SHM_MB, spec.disk_mb),
        "kept": bound_targets(options),
        "frozen": frozen,
        "give": give,
        "address_space": address_space,
        "capabilities": sorted(capabilities(options).values()),
    }
    folder = resources.files("hermes_backend_singularity.instances")
    program = (folder / "nested_namespaces.py").read_text(encoding="utf-8")
    text = f"{program}\nenter({settings!r})\n{PYTHON_FLAGS[-1]}".encode()
    return b"%08x" % len(text) + text


def shell_arguments(sandbox_id: str, options: SingularityOptions) -> list[str]:
    """Return the arguments that start, in an instance, the shell that serves a sandbox without Python."""
    uid, gid = options.identity
    workspace = shlex.quote(options.workspace)
    kept = "".join(f"-path {shlex.quote(target)} -prune -o " for target in bound_targets(options))
    owner = f"find {workspace} {kept}-exec chown -h {uid}:{gid} {{}} +" if kept else f"chown -R {uid}:{gid} {workspace}"
    prepare = "\n".join([f"mkdir -p {workspace}", f"mkdir -p -m 711 {STATE}/state", f"chmod 711 {STATE}", owner])
    return _exec_arguments(sandbox_id, _privileges(capabilities(options)), list(shell_command(prepare)))


def variable_arguments(sandbox_id: str) -> list[str]:
    """Return the arguments that print an image's variables, for images without Python."""
    return _exec_arguments(sandbox_id, ["--no-privs"], ["env"])


def bound_targets(options: SingularityOptions) -> list[str]:
    """Return the paths of the option `binds` inside the instance."""
    return [bind.split(":")[1] for bind in options.binds]


def environment_of(found: Mapping[str, str], options: SingularityOptions) -> dict[str, str]:
    """Return the commands' environment variables, from those found in the image and from the options."""
    inherited = {
        name: value
        for name, value in found.items()
        if name not in _NOT_INHERITED and not name.startswith(_OF_THE_PROGRAM)
    }
    return {**inherited, **options.env}
