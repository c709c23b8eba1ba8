"""This machine's Python runs from any folder, with nothing of the machine but its kernel and /bin/sh."""

from __future__ import annotations

import io
import platform
import subprocess
import sys
import tarfile

import pytest

from hermes_sandbox.backends import PYTHON_FLAGS, NotPortableError, PortablePython, portable_python
from hermes_sandbox.protocol.bootstrap import agent_message

LOADED = """
import sys
lines = open("/proc/self/maps").read().splitlines()
paths = {line.split(None, 5)[5] for line in lines if " r-xp " in line and line.count("/")}
paths |= {module.__file__ for module in sys.modules.values() if getattr(module, "__file__", None)}
print(sys.executable, *sorted(paths), sep="\\n")
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is none of other systems")


@pytest.fixture(scope="module")
def unpacked_python(tmp_path_factory):
    """The folder that it has been unpacked to."""
    folder = tmp_path_factory.mktemp("portable")
    with tarfile.open(fileobj=io.BytesIO(portable_python().pack("here"))) as archive:
        archive.extractall(folder, filter="tar")
    return folder / "here"


def _run(unpacked, *arguments, given=b""):
    command = [unpacked / PortablePython.program, "-I", "-S", "-E", *arguments]
    return subprocess.run(command, input=given, capture_output=True, env={}, cwd="/", timeout=60, check=False)


def test_all_that_it_loads_is_its_own(unpacked_python):
    names = ", ".join(portable_python().imports)
    done = _run(unpacked_python, "-c", f"import {names}\n{LOADED}")
    program, *paths = done.stdout.decode().splitlines()
    assert (done.returncode, program) == (0, str(unpacked_python / PortablePython.program)), done.stderr
    assert [path for path in paths if not path.startswith(f"{unpacked_python}/")] == []


def test_what_it_starts_is_told_nothing_of_its_libraries(unpacked_python):
    program = "import os; os.execv('/bin/sh', ['sh', '-c', 'echo $LD_LIBRARY_PATH $LD_PRELOAD $PYTHONHOME'])"
    assert _run(unpacked_python, "-c", program).stdout.strip() == b""


def test_it_becomes_a_fresh_one_of_itself(unpacked_python):
    again = "import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'import sys; print(sys.executable)'])"
    assert _run(unpacked_python, "-c", again).stdout.decode().strip() == str(unpacked_python / PortablePython.program)


def test_the_agent_begins_on_it(unpacked_python):
    done = _run(unpacked_python, *PYTHON_FLAGS[3:], given=agent_message())
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_same_files_have_the_same_name_and_the_same_archive():
    portable_python.cache_clear()
    first, packed = portable_python(), portable_python().pack("f")
    portable_python.cache_clear()
    assert (portable_python(), portable_python().pack("f")[8:]) == (first, packed[8:])


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("linux", "mips")])
def test_one_of_another_kind_of_machine_is_refused(monkeypatch, system, machine):
    portable_python.cache_clear()
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(NotPortableError, match=f"this machine is {system} on {machine}"):
        portable_python()


def test_one_that_does_not_start_says_why(monkeypatch):
    portable_python.cache_clear()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(NotPortableError, match="/bin/false does not say what it has loaded"):
        portable_python()
