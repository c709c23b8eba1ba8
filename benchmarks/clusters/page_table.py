"""Write the table of clusters in docs/benchmarks.md from cluster.json.

`python -m benchmarks.clusters.page_table` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.readme_marks import between

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "benchmarks.md"
SOURCE = HERE / "cluster.json"
BEGIN = "<!-- cluster figures: begin, written by benchmarks/clusters/cluster.py -->"
END = "<!-- cluster figures: end -->"
_WAYS = {"slurm": "`slurm`, over srun", "nomad": "`nomad`, over alloc exec", "ray": "`ray`"}


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _call(kind: dict[str, float]) -> str:
    remote = next(spent for name, spent in kind.items() if name.endswith("_ms") and name != "local_ms")
    return f"{remote:.2f} ms, {kind['ratio']:g}×"


def _calls(found: dict[str, Any]) -> Iterator[str]:
    kinds = [("live", "builtin"), ("live", "fork"), ("robust", "builtin"), ("robust", "fork")]
    yield _row("a call, and its ratio to the same in `local`", "engine", *(f"`{s}`, {kind}" for s, kind in kinds))
    yield "|" + "---|" * 6
    for name, row in found["calls"].items():
        if "absent" in row:
            yield _row(_WAYS[name], "not measured", *("",) * 4)
        else:
            yield _row(_WAYS[name], str(row["engine"]), *(_call(row[s][kind]) for s, kind in kinds))


def _hosts(found: dict[str, Any]) -> Iterator[str]:
    hosts = found["hosts"]
    if "absent" in hosts:
        yield "Rollouts per second on several hosts: not measured."
        return
    rates = hosts["rollouts_per_second"]
    yield _row("hosts", *rates)
    yield "|" + "---|" * (len(rates) + 1)
    yield _row("rollouts per second", *(f"{rate:g}" for rate in rates.values()))
    yield ""
    yield (
        f"A rollout of {hosts['model_calls']} model calls of {hosts['latency_ms']} ms, {hosts['slots_per_host']} slots"
        f" a host; an added host brings {hosts['per_added_host_mean']:g} of the first one (≥ 0.8 wanted)."
    )


def _rollouts_on_nodes(found: dict[str, Any]) -> Iterator[str]:
    ray = found["rollouts_on_nodes"]
    if "absent" in ray:
        yield "Rollouts per second with `--engine ray`: not measured."
        return
    rates = ray["ray_rollouts_per_s"]
    yield _row("nodes, with `--engine ray`", *rates)
    yield "|" + "---|" * (len(rates) + 1)
    yield _row("rollouts per second", *(f"{rate:g}" for rate in rates.values()))
    yield ""
    reached = f"{ray['growth']:g} of the ideal growth"
    yield f"The rollouts themselves are on the nodes, {ray['places_per_node']} at a time on each: {reached}."


def table(found: dict[str, Any]) -> str:
    """Render calls and hosts."""
    where = f"Python {found['python']}, {found['cores']} cores for all hosts together; medians, ratios within one run."
    return "\n".join([*_calls(found), "", *_hosts(found), "", *_rollouts_on_nodes(found), "", where])


def with_table(readme: str) -> str:
    """Return a page with the table between its marks."""
    return between(readme, BEGIN, END, table(json.loads(SOURCE.read_text(encoding="utf-8"))))


def write() -> None:
    """Write the page's table."""
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
