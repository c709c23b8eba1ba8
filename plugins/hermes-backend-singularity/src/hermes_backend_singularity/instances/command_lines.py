"""The command lines of an instance, and the first message to its agent."""

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
"""The agent's capabilities if the caller is root: chown the workspace, end commands, switch to their user."""
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
"""Variables that belong to another user or terminal than the commands', or to the program that set them."""
_OF_THE_PROGRAM: Final = ("APPTAINER", "SINGULARITY")

# Byte-exact, so that the rest is left for the next reader.
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
    """Return whether the caller is root, which determines how users and capabilities are separated."""
    return os.geteuid() == 0


def capabilities(options: SingularityOptions) -> dict[str, int]:
    """Return the capabilities of the agent."""
    if not as_root():
        return {}
    return {**AGENT_CAPABILITIES, **(ROOT_CAPABILITIES if options.identity[0] == 0 else {})}


def start_arguments(
    root: Path, image: Path, sandbox_id: str, *, spec: SandboxSpec, options: SingularityOptions
) -> list[str]:
    """Return the arguments that start an instance with everything it writes below `root`."""
    binds = [flag for bind in [f"{root}/state:{STATE}", *options.binds] for flag in ("--bind", bind)]
    return [
        *("-s", "instance", "start", *_privileges(capabilities(options))),
        # Neither what apptainer.conf binds, nor the working directory, nor a /tmp in the memory of the session.
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
    """Return the arguments that start a Python in an instance which waits for `nest_message`."""
    privileges = _privileges(capabilities(options), *_TO_SEPARATE)
    return _exec_arguments(sandbox_id, privileges, [options.python, *PYTHON_FLAGS[:-1], _RECEIVE])


def nest_message(
    spec: SandboxSpec, options: SingularityOptions, *, frozen: bool, give: bool, address_space: int | None = None
) -> bytes:
    """Return what has to be written first to that Python: it separates itself, reports, and waits for the agent.

    Args:
        spec: The sandbox's spec.
        options: Those of the backend.
        frozen: Whether the workspace is read-only.
        give: Whether the workspace has to be given to the user of the commands.
        address_space: Bytes of memory that each process may map.
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
    """Return the arguments that start a shell which waits for what serves a sandbox without Python."""
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
    """Return the inside path of an outside file."""
    return [bind.split(":")[1] for bind in options.binds]


def environment_of(found: Mapping[str, str], options: SingularityOptions) -> dict[str, str]:
    """Return the variables of the commands that come from the image and the options."""
    inherited = {
        name: value
        for name, value in found.items()
        if name not in _NOT_INHERITED and not name.startswith(_OF_THE_PROGRAM)
    }
    return {**inherited, **options.env}
