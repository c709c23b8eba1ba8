"""Runs of `hermes-core run` against an engine that tests interrupt or kill, and then give once more."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from vllm_engine import Engine, signal_group, wait_until

# Seconds; they only end a hang.
_LIMIT: Final = 400.0
_TASK: Final = {
    "id": "words",
    "prompt": "Write words into out.txt.",
    "verifier": {"name": "file_content", "options": {"checks": [{"path": "out.txt", "equals": "never\n"}]}},
}


class LiveRun:
    """One run with its folder: the same command each time it is started."""

    def __init__(self, engine: Engine, folder: Path, protocol: str, *flags: object, address: str | None = None) -> None:
        self.out = folder / "out"
        self._folder = folder
        tasks = folder / "tasks.jsonl"
        tasks.write_text(json.dumps(_TASK) + "\n", encoding="utf-8")
        self._arguments = [
            *("run", tasks, "--out", self.out, "--model", address or engine.url, "--model-name", engine.model_name),
            *("--model-protocol", protocol, *flags),
        ]
        if protocol != "chat":
            self._arguments += ["--tokenizer", engine.tokenizer_dir, "--parser", "hermes", "--require-exact"]

    def start(self) -> subprocess.Popen[str]:
        """Start it in a process group of its own, with SIGINT as a terminal would send it."""
        return start_command(*self._arguments, cwd=self._folder)

    def finish(self, *flags: object) -> tuple[int, str]:
        """Give the command to its end; returns its exit code and all that it printed."""
        process = start_command(*self._arguments, *flags, cwd=self._folder)
        return end_of(process)

    def has_recorded(self, rollouts: int = 1) -> bool:
        """Wait until so many rollouts are recorded; False when the time is up."""
        return wait_until(lambda: len(self.outcomes()) >= rollouts, _LIMIT)

    def outcomes(self) -> list[dict[str, Any]]:
        """Return the rollouts that are recorded in full."""
        path = self.out / "rollouts.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def begun_requests(engine: Engine) -> int:
    """Return for how many requests the engine has sampled a token, by its own metrics."""
    return _total(engine.get("/metrics"), "time_to_first_token_seconds_count")


def unfinished_requests(engine: Engine) -> int:
    """Return how many of the begun requests have not ended.

    Those that were aborted stay in the number: vLLM 0.32 counts them under no reason to finish.
    """
    return begun_requests(engine) - _total(engine.get("/metrics"), "request_success_total")


def _total(metrics: str, name: str) -> int:
    found = re.findall(rf"^vllm:{name}\{{[^}}]*\}} (\S+)$", metrics, re.MULTILINE)
    assert found, f"Expected the metric {name}, got none"
    return int(sum(map(float, found)))


def start_command(*arguments: object, cwd: Path) -> subprocess.Popen[str]:
    """Start `hermes-core` in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "hermes_core.cli", *map(str, arguments)],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # What a shell starts in the background ignores SIGINT, and so does all that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - tests fork from one thread
    )


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a command's end; returns its exit code and all that it printed."""
    try:
        output, _ = process.communicate(timeout=_LIMIT)
    finally:
        signal_group(process.pid, signal.SIGKILL)
    return process.returncode, output


@contextlib.contextmanager
def recorder(engine: Engine, folder: Path) -> Iterator[tuple[str, Path]]:
    """Run `hermes-core record` in front of an engine; yields its address and its log."""
    log = folder / "wire.jsonl"
    process = start_command("record", "--upstream", engine.url, "--log", log, cwd=folder)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on "), line
        yield line.split()[-1], log
    finally:
        process.send_signal(signal.SIGINT)
        end_of(process)


def audit(run: LiveRun, log: Path) -> tuple[int, str]:
    """Hold a run's samples against the wire log by `hermes-core exactness`."""
    return end_of(start_command("exactness", run.out, "--log", log, cwd=run.out))
