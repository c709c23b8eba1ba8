"""The process that talks to W&B for the sink `wandb`: one JSON request a line, one JSON answer for each.

It is not the run's own process, because the library keeps state of the whole process, writes to `os.environ` and starts
a service that others in the process would share. When the requests end, so does it, and that service with it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import IO, Any

INIT_SECONDS = 45.0
"""What the server may take for its first answer: less than a sink may take to open."""


class Session:
    """One W&B run."""

    def __init__(self) -> None:
        self._run: Any = None

    def answer(self, request: Mapping[str, Any]) -> None:
        """Do what a request says: its `do` is `init`, `log`, `summary` or `finish`."""
        values = request["values"]
        if request["do"] == "init":
            self._run = _init(values, request["api_key"])
        elif request["do"] == "log":
            self._run.log(values)
        elif request["do"] == "summary":
            self._run.summary.update(values)
        else:
            self.finish(values["exit_code"])

    def finish(self, exit_code: int) -> None:
        """End the W&B run, if there is one; a second time does nothing."""
        run, self._run = self._run, None
        if run is not None:
            run.finish(exit_code=exit_code)


def _init(values: Mapping[str, Any], api_key: str | None) -> Any:
    import wandb

    # A run of hermes-core is no run of a program of the user's: no code, console and machine are recorded.
    settings = wandb.Settings(
        api_key=api_key,
        console="off",
        disable_code=True,
        disable_git=True,
        init_timeout=INIT_SECONDS,
        silent=True,
        x_disable_machine_info=True,
        x_disable_stats=True,
    )
    run = wandb.init(settings=settings, resume="allow", allow_val_change=True, **values)
    run.define_metric("rollouts")
    run.define_metric("*", step_metric="rollouts")
    return run


def _explain(error: Exception) -> str:
    """Say what went wrong; of settings without what they were, in which the key may be."""
    problems = getattr(error, "errors", None)
    text = "; ".join(str(problem["msg"]) for problem in problems()) if callable(problems) else str(error)
    return f"{type(error).__name__}: {text}"[:2000]


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Answer until the requests end; a run that was not finished then was killed."""
    session = Session()
    for line in requests:
        error = None
        try:
            session.answer(json.loads(line))
        except Exception as problem:  # noqa: BLE001 - whatever the library raises is the sink's to tell
            error = _explain(problem)
        answers.write(json.dumps({"error": error}) + "\n")
        answers.flush()
    session.finish(exit_code=1)


def main() -> None:
    """Serve on the standard streams, which the library gets others in place of: it may print, and ask for a key."""
    with os.fdopen(os.dup(0), encoding="utf-8") as requests, os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as the process lives
        serve(requests, answers)
