"""The processes of this machine, read from /proc."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_tools.processes.host_processes import (
    HostProcess,
    running_process,
    running_processes,
    signal_all,
    with_descendants,
)


@contextlib.contextmanager
def start_program(*argv: str, executable: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that ends when its input is closed."""
    with subprocess.Popen(argv, executable=executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        try:
            yield program
        finally:
            program.kill()


def line_of(program: subprocess.Popen[bytes]) -> bytes:
    assert program.stdout is not None
    return program.stdout.readline()


def test_this_process_is_found_with_its_parent_and_session():
    found = running_process(os.getpid())
    assert found is not None
    assert (found.pid, found.parent, found.session) == (os.getpid(), os.getppid(), os.getsid(0))
    assert found.start > 0
    assert running_processes()[os.getpid()] == found


@pytest.mark.parametrize("name", ["a b", "x) Z 1 (y", ") ) )", "((", "1 2 3 4 5 6 7"])
def test_a_name_cannot_be_taken_for_the_fields_behind_it(tmp_path: Path, name: str):
    link = tmp_path / name
    link.symlink_to(str(shutil.which("cat")))
    with start_program("cat", executable=link) as program:
        found = running_process(program.pid)
        assert Path(f"/proc/{program.pid}/comm").read_text() == f"{name}\n"
        assert found is not None
        assert (found.parent, found.session) == (os.getpid(), os.getsid(0))


def test_a_zombie_does_not_count_as_running():
    with start_program("cat") as program:
        program.kill()
        os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
        assert " Z " in Path(f"/proc/{program.pid}/stat").read_text()
        assert running_process(program.pid) is None
        assert program.pid not in running_processes()


FIRST_THREAD_ENDS = """
import ctypes, os, threading
def other():
    while b") Z " not in open(f"/proc/{os.getpid()}/stat", "rb").read():
        pass
    os.write(1, b"alone\\n")
    os.read(0, 1)
    os._exit(0)
threading.Thread(target=other).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_runs_on_when_its_first_thread_has_ended():
    with start_program(sys.executable, "-c", FIRST_THREAD_ENDS) as program:
        assert line_of(program) == b"alone\n"
        assert running_process(program.pid) is not None


def test_a_process_that_has_gone_is_not_found_and_gets_no_signal():
    with start_program("cat") as program:
        pass
    assert running_process(program.pid) is None
    signal_all([program.pid], signal.SIGKILL)


NO_DESCRIPTORS = """
import os, resource
from hermes_tools.processes.host_processes import running_process
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
try:
    running_process(os.getpid())
except OSError as error:
    print(error.strerror)
"""


def test_a_lack_of_descriptors_is_not_taken_for_the_end_of_a_process():
    with start_program(sys.executable, "-c", NO_DESCRIPTORS) as program:
        assert line_of(program) == b"Too many open files\n"


def test_descendants_are_found_over_several_generations_and_signalled():
    # Each keeps waiting after its child has been killed.
    script = "bash -c 'bash -c \"echo \\$\\$; read line; :\"; read line; :'; read line; :"
    with start_program("bash", "-c", script) as program:
        last = int(line_of(program))
        running = running_processes()
        family = with_descendants(running, [program.pid])
        middle = running[last].parent
        assert running[middle].parent == program.pid
        assert family == {program.pid, middle, last}
        assert os.getpid() not in family
        assert family < with_descendants(running, [os.getpid()])
        signal_all(family, signal.SIGKILL)
        assert program.wait() == -signal.SIGKILL
        # The pipe ends when the last process that could write to it has ended.
        assert line_of(program) == b""


def test_a_circle_of_parents_ends():
    one, two = HostProcess(1, 2, 1, 5), HostProcess(2, 1, 1, 6)
    assert with_descendants({1: one, 2: two}, [1]) == {1, 2}
    assert with_descendants({}, []) == set()
