from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Tests of a real engine, which has to be installed: `make engine` names their folder.
collect_ignore = ["engine"]
SUPPORT = Path(__file__).parent / "support"
# What several test modules share; importlib mode puts no test folder on the path by itself.
sys.path.insert(0, str(SUPPORT))
# Tests that cross packages use the servers of token ids as well.
sys.path.insert(1, str(ROOT / "plugins" / "hermes-tokens" / "tests" / "support"))


def _interruptible():
    """Let SIGINT and SIGHUP through: what a shell starts in the background or under nohup ignores one of them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Command:
    """Runs `hermes-core` as a user does, in a process of its own."""

    def __init__(self, folder):
        self.folder = folder

    def start(self, *arguments, env=None, **options):
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "PYTHONPATH": str(SUPPORT),
            "PYTHONDONTWRITEBYTECODE": "1",  # a test that limits the size of files must not leave torn byte code
            **(env or {}),
        }
        return subprocess.Popen(
            [sys.executable, "-m", "hermes_core.cli", *map(str, arguments)],
            cwd=self.folder,
            env=environment,
            text=True,
            **{
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "preexec_fn": _interruptible,
                **options,
            },
        )

    def __call__(self, *arguments, env=None, seconds=100):
        with self.start(*arguments, env=env) as process:
            try:
                out, err = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()  # leaving the block waits for its end
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def hermes(tmp_path):
    return Command(tmp_path)


@pytest.fixture
def tasks(tmp_path):
    """Write a task file; returns its path."""

    def write(*items, name="tasks.jsonl"):
        path = tmp_path / name
        path.write_text("".join(f"{item if isinstance(item, str) else json.dumps(item)}\n" for item in items))
        return path

    return write


def task(name, **fields):
    return {
        "id": name,
        "prompt": f"Write the word {name} into answer.txt",
        "verifier": {"name": "file_content", "options": {"checks": [{"path": "answer.txt", "equals": f"{name}\n"}]}},
        "solution": [f"echo {name} > answer.txt", "cat answer.txt"],
        **fields,
    }


@pytest.fixture
def small_task():
    return task


@pytest.fixture
def rollouts(tmp_path):
    def read(out="out"):
        return [json.loads(line) for line in (tmp_path / out / "rollouts.jsonl").read_bytes().splitlines()]

    return read
