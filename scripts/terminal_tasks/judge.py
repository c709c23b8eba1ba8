"""What the hidden tests of the shipped tasks share: running the model's programs at arm's length, on fresh input.

The programs run as child processes in a session of their own, which is killed afterwards; nothing of theirs is
imported.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import IO, Any

WORK = Path.cwd()
# Folders of tests lie beside the judge's own room, in the sandbox's TMPDIR: without isolation /tmp is the whole
# machine's, and an attack on these folders must find them without looking at those of other runs.
TEMPORARY = next((path.parent for path in Path(__file__).resolve().parents if path.name.startswith("verify.")), None)


def run(
    *argv: object, stdin: str = "", cwd: Path | None = None, timeout: float = 20
) -> subprocess.CompletedProcess[str]:
    """Run a program and return its exit code and texts.

    It is over when the program has ended: one that leaves a child behind with its output open holds nothing up.
    """
    command = [str(word) for word in argv]
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        child = subprocess.Popen(command, stdin=given, stdout=out, stderr=err, cwd=cwd or WORK, start_new_session=True)
        try:
            child.wait(timeout=timeout)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        texts = [_text(file) for file in (out, err)]
    return subprocess.CompletedProcess(command, child.returncode, *texts)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(1_000_000).decode("utf-8", "replace").replace("\r\n", "\n")


def bash(script: str, *args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a shell script of the workspace."""
    return run("bash", WORK / script, *args, **options)


def python(script: str, *args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a Python program of the workspace."""
    return run(sys.executable, WORK / script, *args, **options)


class Case(unittest.TestCase):
    """A test with a fresh directory of its own."""

    def setUp(self) -> None:
        """Make the directory."""
        self.dir = Path(tempfile.mkdtemp(dir=TEMPORARY))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def put(self, name: str, text: str = "") -> Path:
        """Write a file into the directory."""
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path
