"""Runs of `hermes-core run` against an engine at token level, with a proxy in between that writes down what passes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from families import Family
from vllm_engine import Engine

from hermes_tokens import Exchange, RecordingProxy, check_exactness
from hermes_tokens.audit.recording_proxy import recording


def task(name: str = "words", **fields: Any) -> dict[str, Any]:
    """Return a task that any model can run, and few solve."""
    checks = [{"path": "out.txt", "equals": "never\n"}]
    verifier = {"name": "file_content", "options": {"checks": checks}}
    return {"id": name, "prompt": "Write words into out.txt.", "verifier": verifier, **fields}


def only_matching(expression: str) -> tuple[str, str]:
    """Return the flag by which a random model writes only what fits an expression; its samples are constrained."""
    return "--extra-body", json.dumps({"structured_outputs": {"regex": expression}})


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run that is over: its folder, what it printed, and what the proxy has seen."""

    out: Path
    log: Path
    code: int
    output: str

    @cached_property
    def outcomes(self) -> list[dict[str, Any]]:
        """Return the recorded rollouts."""
        return [json.loads(line) for line in (self.out / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()]

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """Return the wire log, without the request that tries the server before a run."""
        text = self.log.read_text(encoding="utf-8") if self.log.exists() else ""
        return [line for line in map(json.loads, text.splitlines()) if line["rollout_id"]]

    def lines_of(self, outcome: dict[str, Any]) -> list[dict[str, Any]]:
        """Return what passed for one rollout."""
        return [line for line in self.lines if line["rollout_id"] == outcome["rollout_id"]]

    def require_exact(self, *, but_for_stops: bool = False) -> None:
        """Hold each rollout's samples against the wire log, and its report against them.

        `but_for_stops` allows branches that begin where a turn ends with a token that the template does not write.
        """
        for outcome in self.outcomes:
            exchanges = [found for line in self.lines_of(outcome) if (found := Exchange.of_line(line)) is not None]
            seen = check_exactness(exchanges, outcome["samples"])
            shares = seen.to_json()
            assert (shares["sampled_trained_share"], shares["logprob_coverage"], seen.faults) == (1.0, 1.0, ()), shares
            assert but_for_stops or not seen.why_not_exact(allow_constrained=True), shares
            report = outcome["exactness"]
            assert (report["sampled_trained_share"], report["faults"]) == (1.0, []), report
            assert report["counts"]["sampled"] == sum(len(exchange.ids) for exchange in exchanges)


async def run_cli(*arguments: object) -> tuple[int, str]:
    """Run `hermes-core` in a process of its own; returns its exit code and all that it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hermes_core.cli", *map(str, arguments)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def run_tasks(
    engine: Engine, family: Family, folder: Path, *flags: object, tasks: Sequence[dict[str, Any]] = ()
) -> FinishedRun:
    """Run tasks on an engine by way of the recording proxy."""
    path, log = folder / "tasks.jsonl", folder / "wire.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in tasks or [task()]), encoding="utf-8")
    async with recording(RecordingProxy(engine.url, log)) as url:
        code, output = await run_cli(
            *("run", path, "--out", folder / "out", "--model", url, "--model-name", engine.model_name),
            *("--model-protocol", "vllm", "--tokenizer", engine.tokenizer_dir, "--parser", family.parser, *flags),
        )
    return FinishedRun(out=folder / "out", log=log, code=code, output=output)
