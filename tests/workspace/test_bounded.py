"""What a test starts cannot take the machine down: a bomb ends as a failed test, and leaves nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from workspace import ROOT

from hermes_testing.watching import eventually, processes_here, sleep_token

BOUNDED = str(ROOT / "scripts" / "bounded.sh")
# Finite, should the bound not hold, and deaf to a terminal that goes.
BOMB = """
import subprocess

def test_bomb():
    crowd = []
    for _ in range(400):
        crowd.append(subprocess.Popen(["sleep", "{token}"], start_new_session=True))

def test_innocent():
    subprocess.run(["true"], check=True)
"""


def _run(*command: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, env=_environment(), **options)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "HERMES_BOUNDED"}


async def test_a_bomb_in_a_test_is_a_failed_test_and_leaves_nothing(tmp_path: Path):
    token = sleep_token()
    (tmp_path / "test_it.py").write_text(BOMB.format(token=token), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir=."]
    result = _run(BOUNDED, "-p", "100", sys.executable, "-m", "pytest", *options, cwd=tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "Resource temporarily unavailable" in result.stdout
    assert "FAILED test_it.py::test_bomb" in result.stdout
    assert await eventually(lambda: processes_here(token) == [])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; for others, this is the test above")
async def test_without_root_the_bound_is_that_of_the_user():
    token = sleep_token()
    bomb = f"i=0; while [ $i -lt 400 ]; do setsid sleep {token} & i=$((i + 1)); done"
    # What another user may read: neither the tests' own folder nor, perhaps, this one.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        script = shutil.copy(BOUNDED, folder)
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        result = _run(*user, "bash", script, "-p", "100", "sh", "-c", bomb, cwd=folder)
    assert result.returncode != 0
    assert "fork" in result.stderr
    assert await eventually(lambda: processes_here(token) == [])


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_whatever_ends_it_ends_what_is_below_it(how: signal.Signals):
    token = sleep_token()
    command = [BOUNDED, "-p", "100", "sh", "-c", f"setsid sleep {token} & echo begun; exec sleep {token}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment()) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == b"begun\n"
        script.send_signal(how)
        assert script.wait() == -how
        assert await eventually(lambda: processes_here(token) == [])


def test_the_exit_code_and_the_streams_are_the_command_s():
    result = _run(BOUNDED, "sh", "-c", "cat; echo wrong >&2; exit 7", input="given")
    assert (result.returncode, result.stdout, result.stderr) == (7, "given", "wrong\n")


def test_within_another_it_only_runs_the_command():
    look = ["sh", "-c", "grep -o bounded- /proc/self/cgroup | wc -l; exit 5"]
    once, twice = _run(BOUNDED, *look), _run(BOUNDED, BOUNDED, *look)
    assert once.returncode == twice.returncode == 5
    assert once.stdout == twice.stdout
