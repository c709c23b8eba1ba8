"""The process that talks to W&B for the sink `wandb`: it reads one JSON request a line, and answers each with one.

It is separate from the run's process, because the library keeps process-wide state, writes to `os.environ` and starts a
service that all users of the library in one process share. The process and its service end when the requests end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import IO, Any

INIT_SECONDS = 45.0
"""Limit for the server's first answer, in seconds: less than a sink may take to open."""


class Session:
    """One W&B run."""

    def __init__(self) -> None:
        self._run: Any = None

    def answer(self, request: Mapping[str, Any]) -> None:
        """Perform a request; its `do` is `init`, `log`, `summary` or `finish`."""
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
        """End the W&B run, if there is one; a second call does nothing."""
        run, self._run = self._run, None
        if run is not None:
            run.finish(exit_code=exit_code)


def _init(values: Mapping[str, Any], api_key: str | None) -> Any:
    import wandb

    # The W&B run describes rollouts, not a program of the user: code, console and machine are not recorded.
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
    """Return the text of an error; for invalid settings without their values, which may contain the key."""
    problems = getattr(error, "errors", None)
    text = "; ".join(str(problem["msg"]) for problem in problems()) if callable(problems) else str(error)
    return f"{type(error).__name__}: {text}"[:2000]


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Answer requests until they end; a W&B run that is not finished by then ends as failed: its run was killed."""
    session = Session()
    for line in requests:
        error = None
        try:
            session.answer(json.loads(line))
        except Exception as problem:  # noqa: BLE001 - the sink reports whatever the library raises
            error = _explain(problem)
        answers.write(json.dumps({"error": error}) + "\n")
        answers.flush()
    session.finish(exit_code=1)


def main() -> None:
    """Serve on copies of the standard streams; the library gets replacements, because it may print or ask for a key."""
    with os.fdopen(os.dup(0), encoding="utf-8") as requests, os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - open until the process ends
        serve(requests, answers)
