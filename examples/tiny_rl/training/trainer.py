"""A small GRPO trainer that uses only Atropos' HTTP API and a folder for weights, and no environments."""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

from tiny_rl.model import transformer as model
from tiny_rl.model.compilation_cache import keep_compiled
from tiny_rl.model.sampling_engine import CONTEXT
from tiny_rl.model.transformer import Params
from tiny_rl.training import grpo, optimizer

_KEPT: Final = 16
"""The number of versions of the weights to check data against; older data is not trained on."""
_WARM: Final = 10
"""Warm-up steps until the full rate: Adam's first steps are as long for noise as for a signal, and one model forgot how
to copy.
"""
_PAUSE: Final = 0.05
_PATIENCE: Final = 600.0


class Trainer:
    """Takes batches, makes steps, publishes weights. `folder` gets the weights and `steps.jsonl`, `data.jsonl`."""

    def __init__(self, params: Params, *, api: str, server: str, folder: Path, steps: int, rate: float) -> None:
        self._params, self._moments = params, optimizer.start(params)
        self._api, self._server, self._folder = api, server, folder
        self._steps, self._rate = steps, rate
        self._kept: deque[tuple[str, Params]] = deque([("v0", params)], maxlen=_KEPT)
        self._began = time.monotonic()

    def run(self, batch_size: int) -> None:
        """Register, and train for the given number of steps."""
        _ask(f"{self._api}/register", _registration(batch_size, self._steps))
        for number in range(1, self._steps + 1):
            waited = time.monotonic()
            groups = self._batch()
            taken = time.monotonic()
            line = {"step": number, **self._train(groups, f"v{number}")}
            line |= {"waited": round(taken - waited, 2), "trained": round(time.monotonic() - taken, 2)}
            line["seconds"] = round(time.monotonic() - self._began, 1)
            self._append("steps.jsonl", [line])
            self._append("data.jsonl", groups)

    def _batch(self) -> list[dict[str, Any]]:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            groups = _ask(f"{self._api}/batch")["batch"]
            if groups:
                return list(groups)
            time.sleep(_PAUSE)
        raise TimeoutError(f"{self._api} had no batch for {_PATIENCE:.0f} s; check whether an environment serves it")

    def _train(self, groups: Sequence[Mapping[str, Any]], version: str) -> dict[str, Any]:
        rows = grpo.sequences(groups)
        batch = grpo.arrays(rows)
        found = grpo.agreement(batch, dict(self._kept))
        # Groups with equal scores do not move the weights, so they need not be computed.
        useful = grpo.arrays([row for row in rows if row.advantage])
        rate = self._rate * min(1.0, int(version[1:]) / _WARM)
        tokens = grpo.count(batch)
        self._params, self._moments, norm = grpo.step(self._params, self._moments, useful, rate, tokens=tokens)
        self._hand_out(version)
        scores = [score for group in groups for score in group["scores"]]
        behind = [int(version[1:]) - 1 - int(name[1:]) for row in rows for name in set(row.versions) if name]
        return {
            "reward": sum(scores) / len(scores),
            "sequences": len(rows),
            "useful": sum(bool(row.advantage) for row in rows),
            "trained_tokens": found.tokens,
            "unknown_tokens": found.unknown,
            "largest_difference": found.largest,
            "mean_difference": found.total / max(1, found.tokens),
            "most_steps_behind": max(behind, default=0),
            "gradient": round(norm, 4),
        }

    def _hand_out(self, version: str) -> None:
        path = self._folder / "weights" / f"{version}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        model.save(self._params, path)
        self._kept.append((version, self._params))
        _ask(f"{self._server}/update_weights", {"path": str(path.absolute()), "version": version})
        # The server has already read the older files; the last one stays for later readers.
        (path.parent / f"v{int(version[1:]) - 1}.npz").unlink(missing_ok=True)

    def _append(self, name: str, lines: Sequence[Mapping[str, Any]]) -> None:
        with (self._folder / name).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


def _registration(batch_size: int, steps: int) -> dict[str, Any]:
    return {
        "wandb_group": "tiny_rl",
        "wandb_project": "tiny_rl",
        "batch_size": batch_size,
        "max_token_len": CONTEXT,
        "checkpoint_dir": "",
        "save_checkpoint_interval": -1,
        "starting_step": 0,
        "num_steps": steps,
    }


def _ask(url: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - our own servers
    with urlopen(request, timeout=600) as response:  # noqa: S310 - our own servers
        answer: dict[str, Any] = json.load(response)
    return answer


def main() -> None:
    """Train until the steps are done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="folder with the first weights, in model.npz")
    parser.add_argument("folder", type=Path, help="folder for the results")
    parser.add_argument("--api", default="http://127.0.0.1:8000", help="Atropos' trajectory API")
    parser.add_argument("--server", default="http://127.0.0.1:8900", help="the model's server")
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rate", type=float, default=3e-4)
    options = parser.parse_args()
    keep_compiled(options.model.parent / "compiled")
    params = model.load(options.model / "model.npz")
    options.folder.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(
        params, api=options.api, server=options.server, folder=options.folder, steps=options.steps, rate=options.rate
    )
    trainer.run(options.batch_size)


if __name__ == "__main__":
    main()
