"""Find the program, read its version, and run it with a timeout."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from hermes_backend_singularity.runtime.failures import ProgramMissingError
from hermes_sandbox.backends import ENVIRONMENT

NAMES: Final = ("apptainer", "singularity")
_HANDED_ON: Final = (
    "HOME",
    "USER",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
)
_FOR_BUILDS: Final = (
    "DOCKER_HOST",
    "DOCKER_CONFIG",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
)
"""Passed to builds only: even with --cleanenv the program shows proxies, with passwords, to the commands inside."""
_OF_ITS_OWN: Final = ("CONFIGDIR", "CACHEDIR", "TMPDIR")
"""The program's own variables, with either prefix. Excludes those that bind, mount or change what an instance is."""
_OF_ITS_OWN_FOR_BUILDS: Final = ("DOCKER_USERNAME", "DOCKER_PASSWORD")


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of running a program."""

    code: int
    said: str
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """The program, with the caller's variables that it always gets, and those that it gets only to build an image."""

    path: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    for_builds: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def find(cls, named: Path | None, environment: Mapping[str, str]) -> Program:
        """Find the program.

        Raises:
            ProgramMissingError: The program is not installed.
        """
        search = environment.get("PATH", os.defpath)
        found = [str(named)] if named is not None else list(NAMES)
        path = next(filter(None, (shutil.which(name, path=search) for name in found)), None)
        if path is None:
            raise ProgramMissingError(
                f"no program {' or '.join(found)} is on PATH ({search})"
                if named is None
                else f"expected an executable program, got {named}",
                hint="install Apptainer (https://apptainer.org/docs/admin/latest/installation.html; "
                "`scripts/setup_apptainer.sh DIR` needs no root), or set the backend's option program",
            )
        kept = _pick_variables(environment, _HANDED_ON, _OF_ITS_OWN)
        folder = str(Path(path).absolute().parent)
        return cls(
            Path(path).absolute(),
            {**kept, "PATH": f"{folder}:{ENVIRONMENT['PATH']}", "LANG": "C.UTF-8"},
            _pick_variables(environment, _FOR_BUILDS, _OF_ITS_OWN_FOR_BUILDS),
        )

    @property
    def settings_dir(self) -> Path:
        """The directory in which the program keeps its entries and logs of instances."""
        for prefix in ("APPTAINER", "SINGULARITY"):
            if named := self.environment.get(f"{prefix}_CONFIGDIR"):
                return Path(named)
        home = Path(self.environment.get("HOME") or Path.home())
        return home / (".apptainer" if "apptainer" in self.path.resolve().name else ".singularity")

    def version(self) -> str:
        """Return the program's name and version. Blocks."""
        ran = self.run(["--version"], seconds=20.0)
        if ran.code:
            raise ProgramMissingError(f"{self.path} does not run: {ran.said.strip()}", hint="reinstall Apptainer")
        return ran.said.strip().replace(" version", "")

    def run(self, arguments: Sequence[str], *, seconds: float, marks: Mapping[str, str] | None = None) -> Ran:
        """Run the program with arguments. Blocks for at most the given seconds."""
        return run([str(self.path), *arguments], seconds=seconds, environment={**self.environment, **(marks or {})})


def _pick_variables(environment: Mapping[str, str], names: Sequence[str], of_its_own: Sequence[str]) -> dict[str, str]:
    own = [f"{prefix}_{name}" for prefix in ("APPTAINER", "SINGULARITY") for name in of_its_own]
    return {name: environment[name] for name in (*names, *own) if name in environment}


def run(argv: Sequence[str], *, seconds: float, environment: Mapping[str, str], directory: Path | None = None) -> Ran:
    """Run a program to its end; on a timeout, or if this call is interrupted, kill its process group. Blocks.

    Output goes to a file, because a pipe would stay open in processes that the program leaves running.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            argv,
            # The end of this pipe signals the end of the caller, so that a program can end with it.
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            env=dict(environment),
            cwd=directory or "/",
            start_new_session=True,
        )
        assert process.stdin is not None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            _kill_session(process)
            return Ran(-signal.SIGKILL, _end_of(said), timed_out=True)
        except BaseException:
            _kill_session(process)
            raise
        finally:
            process.stdin.close()
        return Ran(code, _end_of(said))


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    # The process has not been waited for, so its process id cannot have been reused.
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _end_of(said: IO[bytes]) -> str:
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - (1 << 16)))
    # A build log is often not UTF-8, on which spython fails.
    return said.read().decode(errors="replace")
