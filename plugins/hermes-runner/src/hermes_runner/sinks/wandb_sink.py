"""The sink `wandb`: a run as a run of Weights & Biases."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, final

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from hermes_runner.output import MANIFEST, ROLLOUTS, without_samples
from hermes_runner.sinks.running_means import RunningMeans

_SECONDS: Final = 50.0
"""What one request may take: less than a call of a sink may, so that the process is ended here and not left behind."""
_READING: Final = 5.0
"""Seconds for which one `write` reads earlier rollouts of a resumed run; a request still fits into the same call."""
_BOOT: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from hermes_runner.sinks.wandb_process import main; main()"
)
_SUMMARY: Final = ("rollouts", "reward", "pass", "turns", "tokens", "exactness", "time", "speed", "metrics")
"""What of a summary does not grow with the tasks."""


class WandbOptions(BaseModel):
    """Options of the sink `wandb`; what is not set is as the library has it, by its variables `WANDB_…`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    project: str | None = None
    entity: str | None = None
    name: str | None = None
    group: str | None = None
    mode: Literal["online", "offline", "disabled"] = "online"
    """`offline` writes to the folder `wandb` of the run, which `wandb sync` uploads."""
    api_key: SecretStr | None = None
    """Not set: the key that `wandb login` has stored, or `WANDB_API_KEY`."""
    every: int = Field(1, ge=1)
    """Rollouts from one point of the charts to the next."""


@final
class WandbSink:
    """Logs running means of the outcomes, and the run's summary; a resumed run continues the same W&B run."""

    Options = WandbOptions

    def __init__(self, options: WandbOptions) -> None:
        self._options = options
        self._means = RunningMeans()
        self._earlier: Iterator[bytes] = iter(())
        self._has_news = False
        self._is_complete = False

    def open(self, folder: str) -> None:
        """Begin the W&B run, named after the run's own id, with the run's settings, which have no secrets."""
        rollouts = Path(folder, ROLLOUTS)
        self._earlier = _lines_before(rollouts, rollouts.stat().st_size)
        self._process = WandbProcess()
        options = self._options.model_dump(include={"project", "entity", "name", "group", "mode"})
        manifest = json.loads(Path(folder, MANIFEST).read_bytes())
        config = {"tasks": manifest.get("tasks"), **manifest["fingerprint"]}
        key = None if self._options.api_key is None else self._options.api_key.get_secret_value()
        try:
            self._process.ask(
                "init", {**options, "id": manifest["run_id"], "dir": folder, "config": config}, api_key=key
            )
        except BaseException:
            self._process.end()
            raise

    def write(self, outcome: Mapping[str, Any]) -> None:
        """Count an outcome, and log with every so many, once those of before a resume are counted."""
        self._process.check()
        self._means.add(outcome)
        self._has_news = True
        if self._count_earlier(_READING) and self._means.rollouts % self._options.every == 0:
            self._log()

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Log what is left, and set the summary of the W&B run."""
        self._is_complete = summary["rollouts"]["total"] >= summary["run"]["planned"]
        self._process.check()
        self._count_earlier(float("inf"))
        if self._has_news:
            self._log()
        self._process.ask("summary", {name: summary[name] for name in _SUMMARY})

    def close(self) -> None:
        """Finish the W&B run, as a failed one where rollouts are missing, and end its process whatever happens."""
        try:
            self._process.ask("finish", {"exit_code": 0 if self._is_complete else 1})
        finally:
            self._process.end()

    def _count_earlier(self, seconds: float) -> bool:
        """Count rollouts of before a resume, for a while; tells whether none is left."""
        end = time.monotonic() + seconds
        for line in self._earlier:
            self._means.add(json.loads(without_samples(line)))
            if time.monotonic() >= end:
                return False
        return True

    def _log(self) -> None:
        self._process.ask("log", self._means.values())
        self._has_news = False


def _lines_before(path: Path, end: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while file.tell() < end and (line := file.readline()):
            yield line


class WandbProcess:
    """The process that uses the library; see `wandb_process`. It has its own session: Ctrl-C is the run's to handle."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # Without the service of somebody else who uses the library here: it would outlive this process.
            env={name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"},
            start_new_session=True,
        )
        self._gave_up = ""
        """Why the process was killed, if it was."""

    def check(self) -> None:
        """Raise the `TimeoutError` after which the process was killed, if it was."""
        if self._gave_up:
            raise TimeoutError(self._gave_up)

    def ask(self, what: str, values: Mapping[str, Any], *, api_key: str | None = None) -> None:
        """Send a request and wait for its answer; raises `RuntimeError` with what went wrong.

        A process that takes too long is killed, since answers have no numbers: its next one might be to this request.
        This call and all later ones raise the same `TimeoutError`.
        """
        self.check()
        line = json.dumps({"do": what, "values": values, "api_key": api_key}, default=str)
        # Its death ends whichever wait this thread is in: to be read, for an answer or for the end.
        limit = threading.Timer(_SECONDS, self._give_up, [f"wandb took more than {_SECONDS:g} s to {what}"])
        limit.start()
        try:
            answer = self._exchange(line.encode() + b"\n")
            status = None if answer else self._process.wait()
        finally:
            limit.cancel()
            limit.join()
        self.check()
        if not answer:
            raise RuntimeError(f"the process of wandb ended with status {status}: {self._last_words()}")
        if (error := json.loads(answer)["error"]) is not None:
            raise RuntimeError(error)

    def _exchange(self, request: bytes) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the end of its answers says more
            self._process.stdin.write(request)
            self._process.stdin.flush()
        return self._process.stdout.readline()

    def _give_up(self, why: str) -> None:
        self._gave_up = why
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Let it end, which it does when its requests do, and end it after that."""
        try:
            self._process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
        self._errors.close()

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-1000:].decode(errors="replace").strip() or "it said nothing"
