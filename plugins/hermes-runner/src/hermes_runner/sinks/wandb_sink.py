"""The sink `wandb`: logs a run to Weights & Biases."""

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
"""Limit for one request, in seconds: less than for a call of a sink, so that the sink itself kills a hung process."""
_READING: Final = 5.0
"""Seconds that one `write` may read earlier rollouts of a resumed run; a request still fits into the same call."""
_BOOT: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from hermes_runner.sinks.wandb_process import main; main()"
)
_SUMMARY: Final = ("rollouts", "reward", "pass", "turns", "tokens", "exactness", "time", "speed", "metrics")
"""Parts of the summary whose size does not grow with the number of tasks."""


class WandbOptions(BaseModel):
    """Options of the sink `wandb`; where one is not set, the library's variable `WANDB_…` or its default applies."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    project: str | None = None
    entity: str | None = None
    name: str | None = None
    group: str | None = None
    mode: Literal["online", "offline", "disabled"] = "online"
    """`offline` writes to the run's folder `wandb`, which `wandb sync` uploads."""
    api_key: SecretStr | None = None
    """If not set: the key that `wandb login` has stored, or `WANDB_API_KEY`."""
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
        """Begin the W&B run, with the id of the run, and its settings without secrets."""
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
        """Count an outcome, and log at every `every`-th one, after the rollouts from before a resume are counted."""
        self._process.check()
        self._means.add(outcome)
        self._has_news = True
        if self._count_earlier(_READING) and self._means.rollouts % self._options.every == 0:
            self._log()

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Log the remaining outcomes, and set the summary of the W&B run."""
        self._is_complete = summary["rollouts"]["total"] >= summary["run"]["planned"]
        self._process.check()
        self._count_earlier(float("inf"))
        if self._has_news:
            self._log()
        self._process.ask("summary", {name: summary[name] for name in _SUMMARY})

    def close(self) -> None:
        """Finish the W&B run, as failed if rollouts are missing, and in any case end its process."""
        try:
            self._process.ask("finish", {"exit_code": 0 if self._is_complete else 1})
        finally:
            self._process.end()

    def _count_earlier(self, seconds: float) -> bool:
        """Count rollouts from before a resume for up to `seconds`; returns whether all are counted."""
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
    """The process that uses the library; see `wandb_process`. It has its own session, so Ctrl-C does not reach it."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # Without the service that others in this process use with the library: it would outlive the new process.
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
        """Send a request and wait for its answer; raises `RuntimeError` with the error of the process.

        A process that takes too long is killed, because answers have no numbers and a late one could be taken for the
        answer to the next request. This call and all later ones raise the same `TimeoutError`.
        """
        self.check()
        line = json.dumps({"do": what, "values": values, "api_key": api_key}, default=str)
        # Killing the process ends every wait of this thread: for the request to be read, for the answer, for the exit.
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
        with contextlib.suppress(BrokenPipeError):  # the missing answer below gives a better error
            self._process.stdin.write(request)
            self._process.stdin.flush()
        return self._process.stdout.readline()

    def _give_up(self, why: str) -> None:
        self._gave_up = why
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Close the requests, which ends the process; kill it if it has not ended after 5 s."""
        try:
            self._process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
        self._errors.close()

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-1000:].decode(errors="replace").strip() or "no output"
