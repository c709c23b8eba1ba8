"""The command lines that start an agent on the machine: plain, or as first process inside bubblewrap."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_sandbox.backend.bubblewrap import HOME, STATE, WORKSPACE, configuration
from hermes_sandbox.backend.options import ENVIRONMENT
from hermes_sandbox.protocol.bootstrap import PYTHON_FLAGS
from hermes_sandbox.remote.facts import Machine

_NOBODY: Final = 65534


def agent_argv(python: str) -> list[str]:
    """Return the argv of a waiting agent, without line breaks, which some login shells lose even in quotes."""
    *flags, loader = PYTHON_FLAGS
    return [python, *flags, f"exec(bytes.fromhex('{loader.encode().hex()}'))"]


def start_command(argv: Sequence[str], sandbox_id: str) -> str:
    """Return the command that starts a program without the account's environment."""
    variables = {"PATH": ENVIRONMENT["PATH"], "LANG": "C.UTF-8", "HERMES_SANDBOX": f"{sandbox_id}.0"}
    return "cd / && exec " + shlex.join(["env", "-i", *(f"{key}={value}" for key, value in variables.items()), *argv])


def account_inside(machine: Machine) -> tuple[int, int]:
    """Return user and group of programs inside bubblewrap: the login's, but never root."""
    return (machine.uid, machine.gid) if machine.uid else (_NOBODY, _NOBODY)


def bwrap_argv(argv: Sequence[str], root: str, machine: Machine, *, network: bool, frozen: bool) -> list[str]:
    """Return the argv that runs a program in new namespaces, with the directories of `root`."""
    if not machine.bwrap:
        raise SandboxRefusedError(
            f"isolation 'bwrap' needs the program bwrap on {machine.name}", hint="`apt-get install bubblewrap` there"
        )
    uid, gid = account_inside(machine)
    return [
        *_setpriv_argv(machine, uid, gid),
        machine.bwrap,
        *("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
        *(["--share-net"] if network else []),
        # The agent is the first process of the namespace: nothing inside can signal it.
        *("--as-pid-1", "--cap-drop", "ALL", "--hostname", "sandbox"),
        *_system(machine),
        *configuration(root, network=network),
        *("--proc", "/proc", "--dev", "/dev", "--perms", "0700", "--tmpfs", STATE),
        *("--bind", f"{root}/tmp", "/tmp"),  # noqa: S108 - inside, and private to the sandbox
        *("--bind", f"{root}/home", HOME),
        *("--ro-bind" if frozen else "--bind", f"{root}/workspace", WORKSPACE),
        *("--chdir", "/", "--", *argv),
    ]


def _setpriv_argv(machine: Machine, uid: int, gid: int) -> list[str]:
    if uid == machine.uid:
        return []
    if not machine.setpriv:
        raise SandboxRefusedError(
            f"isolation 'bwrap' as root needs the program setpriv on {machine.name}, to become nobody first",
            hint="`apt-get install util-linux` there, or log in as another user",
        )
    return [machine.setpriv, f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]


def _system(machine: Machine) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name, target in machine.links.items():
        yield from ("--ro-bind", name, name) if target == "directory" else ("--symlink", target, name)
    if machine.python_prefix is not None:
        yield from ("--ro-bind", machine.python_prefix, machine.python_prefix)
