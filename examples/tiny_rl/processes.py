"""Run the programs of one training run, each a process with its own log."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

EXAMPLES: Final = Path(__file__).resolve().parent.parent
_PATIENCE: Final = 300.0
_GRACE: Final = 20.0


Process = subprocess.Popen[bytes]


class ProgramError(Exception):
    """A program of the run failed; the message names its log."""


class Programs:
    """Starts programs of this environment; the end of the block ends those that still run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def running(self, name: str, *command: str) -> Iterator[Process]:
        """Run a program for the length of the block."""
        with (self._folder / f"{name}.log").open("ab") as log:
            variables = _variables(os.environ)
            process = subprocess.Popen(command, stdout=log, stderr=log, env=variables, start_new_session=True)
        try:
            yield process
        finally:
            _end(process)

    def module(self, name: str, *arguments: str) -> Sequence[str]:
        """Return the command for a module of this example."""
        return [sys.executable, "-m", f"tiny_rl.{name}", *arguments]

    def finish(self, name: str, *command: str) -> None:
        """Run a program to its end."""
        with self.running(name, *command) as process:
            self.wait(name, process)

    def wait(self, name: str, process: Process, beside: Mapping[str, Process] | None = None) -> None:
        """Wait until a program succeeds; raises if it fails, or if a program that it needs ends earlier."""
        while process.poll() is None:
            for other, needed in (beside or {}).items():
                if needed.poll() not in {None, 0}:
                    raise self._failed(other, needed)
            time.sleep(0.2)
        if process.returncode != 0:
            raise self._failed(name, process)

    def until_answers(self, name: str, process: Process, url: str) -> None:
        """Wait until a server responds."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise self._failed(name, process)
            with contextlib.suppress(URLError, OSError), urlopen(url, timeout=5):  # noqa: S310 - our own servers
                return
            time.sleep(0.2)
        raise ProgramError(f"{name} did not respond at {url} within {_PATIENCE:.0f} s; see {self._folder / name}.log")

    def _failed(self, name: str, process: Process) -> ProgramError:
        path = self._folder / f"{name}.log"
        end = "\n".join(path.read_text(errors="replace").splitlines()[-15:])
        return ProgramError(f"{name} exited with {process.returncode}; the end of {path}:\n{end}")


def free_port() -> int:
    """Return a currently unused port of this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def _variables(present: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which the example can be imported from any directory."""
    paths = [str(EXAMPLES), *filter(None, [present.get("PYTHONPATH")])]
    return {**present, "PYTHONPATH": os.pathsep.join(paths), "TOKENIZERS_PARALLELISM": "false"}


def _end(process: Process) -> None:
    """End a program and its children: first by SIGTERM, then by force."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
