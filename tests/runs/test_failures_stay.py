"""What one test does wrong fails that test and no other: leaks, what a traceback keeps alive, and hangs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from workspace import ROOT

LEAKS = """
class Cycle:
    def __init__(self):
        self.me = self

    def __del__(self):
        raise OSError("nobody closed this")

def test_leaks(): Cycle()
def test_innocent(): pass
"""
FAILS = """
class Loud:
    def __del__(self):
        raise OSError("nobody closed this")

def test_fails():
    open_still = Loud()
    open_still.me = open_still
    assert False

def test_innocent(): pass
"""
SPOILS_ITS_LOOP = """
import asyncio

def refuse():
    raise RuntimeError("this loop was closed")

async def test_spoils():
    asyncio.get_running_loop().shutdown_asyncgens = refuse
    assert HOLDS

def test_innocent(): pass
"""
SPOILS_THE_LOOP_OF_ITS_CLASS = """
import asyncio
import pytest

def refuse():
    raise RuntimeError("this loop was closed")

@pytest.mark.asyncio(loop_scope="class")
class TestShared:
    async def test_spoils(self):
        asyncio.get_running_loop().shutdown_asyncgens = refuse
        assert False

    async def test_innocent(self): pass
"""
HANGS = """
import threading
import pytest

@pytest.mark.xdist_group("one")
async def test_hangs(): threading.Event().wait()

@pytest.mark.xdist_group("one")
def test_innocent(): pass
"""


def run_pytest(folder: Path, text: str, *arguments: str) -> tuple[dict[str, str], str]:
    """Run tests under the settings of the repository; returns the outcomes and all that was printed."""
    (folder / "tests").mkdir()
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "tests" / "test_some.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "tests", "-v", "-p", "no:cacheprovider", *arguments]
    # What a test that hung leaves there goes with the folder.
    environ = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=120)
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR) tests/test_some.py::(?:\w+::)?(\w+)", done.stdout, re.MULTILINE)
    return {test: outcome for outcome, test in outcomes}, done.stdout + done.stderr


def test_a_leak_is_an_error_of_the_test_that_leaked(tmp_path: Path):
    outcomes, said = run_pytest(tmp_path, LEAKS, "-rA")
    assert outcomes == {"test_leaks": "ERROR", "test_innocent": "PASSED"}, said
    assert "nobody closed this" in said


def test_what_the_traceback_of_a_failure_kept_alive_fails_no_other_test(tmp_path: Path):
    outcomes, said = run_pytest(tmp_path, FAILS, "-rA")
    assert outcomes == {"test_fails": "FAILED", "test_innocent": "PASSED"}, said


@pytest.mark.parametrize(("holds", "outcome"), [("False", "FAILED"), ("True", "ERROR")])
def test_a_loop_that_cannot_be_closed_is_an_error_unless_the_test_has_failed(tmp_path: Path, holds: str, outcome: str):
    outcomes, said = run_pytest(tmp_path, SPOILS_ITS_LOOP.replace("HOLDS", holds), "-rA")
    assert outcomes == {"test_spoils": outcome, "test_innocent": "PASSED"}, said
    assert ("1 error" in said) == (holds == "True")


def test_the_class_of_a_failure_shares_its_loop_and_is_no_second_failure(tmp_path: Path):
    outcomes, said = run_pytest(tmp_path, SPOILS_THE_LOOP_OF_ITS_CLASS, "-rA")
    assert outcomes == {"test_spoils": "FAILED", "test_innocent": "PASSED"}, said
    assert "1 error" not in said


@pytest.mark.parametrize("workers", [("-n", "1"), ("-n", "2"), ("-n", "2", "--dist", "loadgroup")], ids=" ".join)
def test_a_test_that_hangs_is_named_with_its_stack_and_the_others_run(tmp_path: Path, workers: tuple[str, ...]):
    limits = ("--timeout", "4", "-o", "faulthandler_timeout=2")
    outcomes, said = run_pytest(tmp_path, HANGS, "-rA", *workers, *limits)
    assert outcomes == {"test_hangs": "FAILED", "test_innocent": "PASSED"}, said
    assert said.count("node down") == 1
    assert re.search(r"in test_hangs", said), f"no stack of the test in {said}"
