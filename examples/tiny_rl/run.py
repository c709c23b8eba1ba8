"""Run the whole proof with one command: teach the format, train by GRPO through Atropos, evaluate, for several seeds.

Writes `results.json`, `curve.svg` and, for each seed, the logs and data of every program. Exits with 1 when recorded
log-probabilities are not the trained ones, the reward does not rise, or a token is lost.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tiny_rl import curve
from tiny_rl.processes import ProgramError, Programs, free_port
from tiny_rl.proof import judged, lines
from tiny_rl.summary import table

_CHECKS: Final = ("logprobs_agree", "reward_rose", "nothing_lost")
_WRITTEN: Final = ("results.json", "curve.svg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The length of each part; the README reports the defaults."""

    sft_steps: int
    steps: int
    rate: float
    batch_size: int
    eval_tasks: int


class SeedRun:
    """One seed: its folder, its programs, its result."""

    def __init__(self, folder: Path, models: Path, seed: int, plan: Plan) -> None:
        self._folder, self._seed, self._plan = folder, seed, plan
        self._model = models / f"seed-{seed}"
        self._programs = Programs(folder)
        self._api, self._server = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"

    def run(self) -> dict[str, Any]:
        """Teach, evaluate, train, evaluate; returns the results."""
        taught = self._taught()
        with ExitStack() as stack:
            server = self._started(stack, "server", self._server, self._server_command())
            api = self._started(stack, "api", self._api, self._api_command())
            self._programs.finish("evaluate", *self._env("evaluate"))
            began = time.monotonic()
            self._train({"server": server, "api": api})
            seconds = time.monotonic() - began
            self._programs.finish("evaluate", *self._env("evaluate"))
        return {"seed": self._seed, "sft_seconds": round(taught, 1), **judged(self._folder, seconds=seconds)}

    def _taught(self) -> float:
        began = time.monotonic()
        steps = str(self._plan.sft_steps)
        command = self._programs.module("training.sft", str(self._model), "--steps", steps, "--seed", str(self._seed))
        self._programs.finish("sft", *command)
        return time.monotonic() - began

    def _train(self, needed: Mapping[str, Any]) -> None:
        with (
            self._programs.running("trainer", *self._trainer_command()) as trainer,
            self._programs.running("env", *self._env("serve")) as env,
        ):
            self._programs.wait("trainer", trainer, {**needed, "env": env})
            self._programs.wait("env", env, needed)

    def _started(self, stack: ExitStack, name: str, url: str, command: Sequence[str]) -> Any:
        process = stack.enter_context(self._programs.running(name, *command))
        self._programs.until_answers(name, process, f"{url}/health" if name == "server" else f"{url}/info")
        return process

    def _server_command(self) -> Sequence[str]:
        port, log = self._server.rpartition(":")[2], self._folder / "wire.jsonl"
        return self._programs.module(
            "model.server", str(self._model), "--port", port, "--seed", str(self._seed), "--log", str(log)
        )

    def _api_command(self) -> Sequence[str]:
        return [str(Path(sys.executable).with_name("run-api")), "--port", self._api.rpartition(":")[2]]

    def _trainer_command(self) -> Sequence[str]:
        plan = self._plan
        numbers = {"--steps": plan.steps, "--rate": plan.rate, "--batch-size": plan.batch_size}
        options = [text for name, number in numbers.items() for text in (name, str(number))]
        places = [str(self._model), str(self._folder), "--api", self._api, "--server", self._server]
        return self._programs.module("training.trainer", *places, *options)

    def _env(self, command: str) -> Sequence[str]:
        fields = {
            "env.tokenizer_name": self._model,
            "env.rollout_server_url": self._api,
            "env.seed": self._seed,
            "env.task_seed": self._seed,
            "env.eval_tasks": self._plan.eval_tasks,
            "env.evals_path": self._folder / "evals.jsonl",
            "env.ledger_path": self._folder / "ledger.jsonl",
            "openai.base_url": self._server,
        }
        return self._programs.module("env", command, *(f"--{name}={value}" for name, value in fields.items()))


def _picture(out: Path, results: Sequence[Mapping[str, Any]]) -> str:
    training, held_out = {}, {}
    for result in results:
        name = f"seed {result['seed']}"
        steps = list(lines(out / f"seed-{result['seed']}" / "steps.jsonl"))
        training[name] = [(line["seconds"] / 60, line["reward"]) for line in steps]
        held_out[name] = [(0.0, result["reward_before"]), (result["seconds"] / 60, result["reward_after"])]
    return curve.drawn(training, held_out, title="Mean reward while GRPO trains through Atropos")


def _cleared(out: Path) -> Path:
    """Remove only the files of an earlier run."""
    for path in (*out.glob("seed-*"), out / "models"):
        shutil.rmtree(path, ignore_errors=True)
    for name in _WRITTEN:
        (out / name).unlink(missing_ok=True)
    return out


def _run_seeds(out: Path, seeds: Sequence[int], plan: Plan) -> list[dict[str, Any]]:
    """Run all seeds; write the results so far after each."""
    results: list[dict[str, Any]] = []
    for seed in seeds:
        results.append(SeedRun(out / f"seed-{seed}", out / "models", seed, plan).run())
        sys.stdout.write(json.dumps(results[-1]) + "\n")
        sys.stdout.flush()
        (out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (out / "curve.svg").write_text(_picture(out, results), encoding="utf-8")
    return results


_SFT_STEPS: Final = 480
"""After 220 steps, one of three models still chose its first file by luck, and training made it prefer one file."""


def options(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Read the command line; the defaults are the run that the README reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/tiny_rl"), help="files of an earlier run are removed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="the seeds to run, in this order")
    parser.add_argument("--sft-steps", type=int, default=_SFT_STEPS)
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--eval-tasks", type=int, default=100)
    parser.add_argument("--write", action="store_true", help="put results.json and curve.svg beside the README")
    return vars(parser.parse_args(arguments))


def main() -> int:
    """Run all seeds; returns 1 if one of them fails a check."""
    given = options()
    out, seeds, keep = _cleared(given.pop("out").absolute()), given.pop("seeds"), given.pop("write")
    try:
        results = _run_seeds(out, seeds, Plan(**given))
    except ProgramError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    missed = [f"seed {result['seed']}: {name}" for result in results for name in _CHECKS if not result[name]]
    slow = [f"seed {result['seed']} trained for longer than expected" for result in results if not result["in_time"]]
    verdict = "\n".join([*slow, "failed:", *missed] if missed else [*slow, "all seeds pass all three checks"])
    sys.stdout.write(f"\n{table(results)}\n{verdict}\n")
    if keep:
        for name in _WRITTEN:
            shutil.copy(out / name, Path(__file__).parent / name)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
