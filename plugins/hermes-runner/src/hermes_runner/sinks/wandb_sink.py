"""The sink `wandb`: a run as a run of Weights & Biases."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, final

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from hermes_runner.output import MANIFEST, ROLLOUTS, without_samples
from hermes_runner.sinks.running_means import RunningMeans

_SECONDS: Final = 50.0
"""What one request may take: less than a call of a sink may, so that the process is ended here and not left behind."""
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
        self._is_complete = False

    def open(self, folder: str) -> None:
        """Begin the W&B run, named after the run's own id, with the run's settings, which have no secrets."""
        with Path(folder, ROLLOUTS).open("rb") as lines:
            for line in lines:
                self._means.add(json.loads(without_samples(line)))
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
        """Count an outcome, and log with every so many."""
        self._means.add(outcome)
        if self._means.rollouts % self._options.every == 0:
            self._process.ask("log", self._means.values())

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Log what is left, and set the summary of the W&B run."""
        self._is_complete = summary["rollouts"]["total"] >= summary["run"]["planned"]
        if self._means.rollouts % self._options.every:
            self._process.ask("log", self._means.values())
        self._process.ask("summary", {name: summary[name] for name in _SUMMARY})

    def close(self) -> None:
        """Finish the W&B run, as a failed one where rollouts are missing, and end its process whatever happens."""
        try:
            self._process.ask("finish", {"exit_code": 0 if self._is_complete else 1})
        finally:
            self._process.end()


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

    def ask(self, what: str, values: Mapping[str, Any], *, api_key: str | None = None) -> None:
        """Send a request and wait for its answer; raises `RuntimeError` with what went wrong."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps({"do": what, "values": values, "api_key": api_key}, default=str)
        with contextlib.suppress(BrokenPipeError):  # the end of its answers says more
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], _SECONDS)[0]:
            raise TimeoutError(f"wandb took more than {_SECONDS:g} s to {what}")
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process of wandb ended with status {self._process.wait()}: {self._last_words()}")
        if (error := json.loads(answer)["error"]) is not None:
            raise RuntimeError(error)

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
