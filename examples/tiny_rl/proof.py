"""Check the three results of a run: the trained tokens are the sampled ones, the reward rose, nothing was lost.

Exactness is computed from the model server's log and the data that the trainer received, the two ends of the pipeline;
nothing in between is trusted. The rollouts' own reports must be perfect as well.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hermes_core.contracts.tokens import IGNORED, Exactness
from hermes_tokens import Exchange, check_exactness

LARGEST_DIFFERENCE: Final = 1e-3
LEAST_RISE: Final = 0.3
MOST_SECONDS: Final = 15 * 60.0
"""The maximum time on two idle cores; no check depends on it, because a busy machine needs longer."""


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSONL file."""
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def exactness(folder: Path) -> dict[str, Any]:
    """Compare what the server sampled with what the trainer received, rollout by rollout."""
    exchanges: dict[str, list[Exchange]] = defaultdict(list)
    for line in lines(folder / "wire.jsonl"):
        exchange = Exchange.of_line(line)
        if exchange is not None:
            exchanges[exchange.rollout_id].append(exchange)
    samples: dict[str, list[dict[str, Any]]] = defaultdict(list)
    doubtful = 0
    for group in lines(folder / "data.jsonl"):
        doubtful += sum(not _is_reported_exact(about["exactness"]) for about in group["overrides"])
        for rollout_id, sample in _samples(group):
            samples[rollout_id].append(sample)
    total = sum((check_exactness(exchanges[name], received) for name, received in samples.items()), Exactness())
    ends = _ends(folder, exchanges, samples)
    report = {
        **total.to_json(),
        "trained_tokens": total.trained,
        "rollouts": len(samples),
        "samples_per_rollout": total.samples / max(1, len(samples)),
    }
    is_exact = total.is_exact and not doubtful and "unknown" not in ends
    return {**report, "reported_inexact": doubtful, "not_received": dict(ends), "is_exact": is_exact}


def _is_reported_exact(report: Mapping[str, Any]) -> bool:
    """Tell whether a rollout's own report is perfect: shares are 1, or None if there was nothing to count."""
    shares = [value for name, value in report.items() if name.endswith(("_share", "_parity", "_coverage"))]
    return (
        all(share in {None, 1.0} for share in shares) and not report["faults"] and not report["foreign_control_tokens"]
    )


def _samples(group: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    rows = zip(group["overrides"], group["tokens"], group["masks"], group["inference_logprobs"], strict=True)
    for about, tokens, masks, logprobs in rows:
        # Atropos' lists contain only numbers: the value at a token without loss is a filler.
        sent = [None if mask == IGNORED else logprob for mask, logprob in zip(masks, logprobs, strict=True)]
        yield about["rollout_id"], {"tokens": tokens, "masks": masks, "logprobs": sent}


def _ends(folder: Path, sampled: Mapping[str, Any], received: Mapping[str, Any]) -> Counter[str]:
    """Count the rollouts that were sampled but not received, by their entry in the ledger."""
    ledger = {line["rollout_id"]: f"{line['end']}: {line['reason']}" for line in lines(folder / "ledger.jsonl")}
    return Counter(ledger.get(name, "unknown") for name in sampled if name not in received)


def judged(folder: Path, *, seconds: float) -> dict[str, Any]:
    """Return the results of a seed's run; `seconds` is the training time."""
    steps = list(lines(folder / "steps.jsonl"))
    before, after = (line["reward"] for line in lines(folder / "evals.jsonl"))
    largest = max(line["largest_difference"] for line in steps)
    unknown = sum(line["unknown_tokens"] for line in steps)
    report = exactness(folder)
    trained = sum(line["trained_tokens"] for line in steps)
    return {
        "reward_before": before,
        "reward_after": after,
        "seconds": round(seconds, 1),
        "steps": len(steps),
        "trained_tokens": trained,
        "largest_difference": largest,
        "exactness": report,
        "logprobs_agree": largest <= LARGEST_DIFFERENCE and unknown == 0 and trained > 0,
        "reward_rose": after - before >= LEAST_RISE,
        "in_time": seconds <= MOST_SECONDS,
        "nothing_lost": bool(report["is_exact"]) and report["trained_tokens"] == trained,
    }
