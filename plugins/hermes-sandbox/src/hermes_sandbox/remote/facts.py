"""Facts about a machine, as it reports them, and checks of them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePosixPath
from typing import Final

from hermes_core.contracts.errors import BackendError, SandboxRefusedError
from hermes_sandbox.remote.link import Link
from hermes_sandbox.remote.options import MachineOptions

_BEGIN: Final = "hermes-facts-begin\n"
_PYTHON: Final = (3, 8)
_BASH: Final = (4, 4)


@dataclass(frozen=True, slots=True)
class Machine:
    """A probed machine. `links` are the directories of / that may be symlinks into /usr."""

    name: str
    uid: int
    gid: int
    python: str
    python_real: str
    bwrap: str
    setpriv: str
    links: Mapping[str, str]

    @property
    def python_prefix(self) -> str | None:
        """The directory to show for a Python outside /usr, or None."""
        prefix = PurePosixPath(self.python_real).parents[1]
        return None if prefix.parts[:2] in {("/", "usr"), ("/",)} else str(prefix)


def script(name: str) -> bytes:
    """Return the text of a program of this folder that runs on the machine."""
    return (resources.files("hermes_sandbox.remote") / name).read_bytes()


def shell(*arguments: str) -> str:
    """Return the command that runs a POSIX script from its standard input."""
    return shlex.join(["exec", "/bin/sh", "-s", "--", *arguments])


async def probe_host(link: Link, options: MachineOptions) -> Machine:
    """Ask the machine for its facts; raises `SandboxRefusedError` for what is missing."""
    command = shell(options.root_dir, options.bash, options.python or "")
    answer = await link.run(command, script("facts.sh"), timeout=options.setup_timeout)
    before, found, text = answer.output.decode(errors="replace").partition(_BEGIN)
    if not found:
        said = " ".join(part for part in (answer.complaint, before.strip()) if part)[-500:]
        raise BackendError(
            f"{link.name} runs no command: {said or 'no output'}",
            hint="the account there needs /bin/sh, and a login shell (not nologin, no ForceCommand)",
        )
    if before.strip():
        raise SandboxRefusedError(
            f"the login shell of {link.name} prints something before a command runs: {before.strip()[:200]!r}",
            hint="make ~/.bashrc (or what it reads) silent when the shell is not interactive",
        )
    facts = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    _require(facts, link.name, options)
    return Machine(
        name=link.name,
        uid=int(facts["uid"]),
        gid=int(facts["gid"]),
        python=facts["python"],
        python_real=facts["python_real"].strip(),
        bwrap=facts["bwrap"],
        setpriv=facts["setpriv"],
        links={name: target for name, target in facts.items() if name.startswith("/")},
    )


def _require(facts: Mapping[str, str], name: str, options: MachineOptions) -> None:
    if facts["system"] != "Linux":
        raise SandboxRefusedError(f"{name} runs {facts['system']}; a sandbox needs Linux")
    if facts["root"] != "ok":
        raise _directory_problem(f"{options.root_dir} of {name} cannot be used", facts["root"], name, options)
    _require_python(facts, name, options)
    if _version(facts["bash"]) < _BASH:
        found = f"is {'.'.join(facts['bash'].split())}" if facts["bash"] else "is not there"
        hint = f"install bash 4.4 or newer on {name} (`apt-get install bash`) and name it in the option bash"
        raise SandboxRefusedError(f"{options.bash} of {name} {found}; bash 4.4 or newer is needed", hint=hint)


def _require_python(facts: Mapping[str, str], name: str, options: MachineOptions) -> None:
    hint = f"`apt-get install python3` on {name}, or name one in the option python"
    if "python" not in facts:
        wanted = options.python or "python3"
        raise SandboxRefusedError(f"{name} has no {wanted} that runs; Python 3.8 or newer is needed", hint=hint)
    if _version(facts["python_version"]) < _PYTHON:
        version = ".".join(facts["python_version"].split())
        raise SandboxRefusedError(f"{facts['python']} of {name} is Python {version}; 3.8 or newer is needed", hint=hint)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split())


def _directory_problem(what: str, said: str, name: str, options: MachineOptions) -> BackendError:
    if "No space left" in said or "quota exceeded" in said.lower():
        hint = f"`df -h {options.root_dir}` on {name}; free some space, or set the option root_dir"
        return BackendError(f"{what}, its disk is full: {said}", hint=hint)
    hint = "name a directory in the option root_dir in which the account there may write"
    return SandboxRefusedError(f"{what}: {said}", hint=hint)


async def make_directories(link: Link, root: str, when: str, account: Sequence[str], options: MachineOptions) -> None:
    """Make (`new`) or restore (`again`) the directories of a sandbox."""
    answer = await link.run(shell(root, when, *account), script("make.sh"), timeout=options.setup_timeout)
    if answer.status != 0:
        raise _directory_problem(
            f"{root} of {link.name} cannot be made", answer.complaint or "no reason given", link.name, options
        )


async def sweep(link: Link, python: str, sandbox_id: str, root: str, *, delete: bool, timeout: float) -> None:
    """End the processes with the sandbox's mark and delete its directory; nothing to do is success."""
    command = shlex.join(["exec", python, "-I", "-S", "-E", "-", sandbox_id, root, "delete" if delete else "keep"])
    answer = await link.run(command, script("sweep.py"), timeout=timeout)
    if answer.status != 0:
        raise BackendError(f"sandbox {sandbox_id} cannot be removed from {link.name}: {answer.complaint}")
