"""The results of a run as a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_HEAD: Final = (
    "seed",
    "held-out reward before",
    "after",
    "minutes of training",
    "trained tokens",
    "largest difference of a logprob",
    "exact",
)


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the results as Markdown, one line per seed."""
    lines = [_line(_HEAD), _line(["---"] * len(_HEAD)), *(_line(_cells(result)) for result in results)]
    return "\n".join(lines) + "\n"


def _cells(result: Mapping[str, Any]) -> list[str]:
    return [
        str(result["seed"]),
        f"{result['reward_before']:.2f}",
        f"{result['reward_after']:.2f}",
        f"{result['seconds'] / 60:.1f}",
        f"{result['trained_tokens']:,}",
        f"{result['largest_difference']:.1e}",
        "1.00" if result["nothing_lost"] else "no",
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
