"""Write the tables of sandboxes in docs/benchmarks.md from backends.json and soak.json.

`python -m benchmarks.sandboxes.page_tables` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.readme_marks import between

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "benchmarks.md"
SOURCES = {"backends": HERE / "backends.json", "soak": HERE / "soak.json"}
_LABELS = {
    "local": "`local`, isolation `bwrap`",
    "bwrap": "`local`, isolation `bwrap`",
    "local none": "`local`, isolation `none`",
    "none": "`local`, isolation `none`",
    "docker": "`docker`, `container`",
    "docker pool": "`docker`, `container+slot`",
    "singularity": "`singularity`, `container`",
    "ssh": "`ssh`, isolation `none`",
}


def marks(name: str) -> tuple[str, str]:
    """Return the marks before and after a table."""
    return f"<!-- {name} figures: begin, written by benchmarks/sandboxes/{name}.py -->", f"<!-- {name} figures: end -->"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _head(*cells: str) -> list[str]:
    return [_row(*cells), "|" + "---|" * len(cells)]


def _side(name: str) -> str:
    kind, _, session = name.rpartition(" ")
    if session in {"live", "robust"}:
        return f"{_LABELS[kind]}, session `{session}`"
    return _LABELS.get(name, name)


def _latencies(found: dict[str, Any]) -> Iterator[str]:
    yield from _head("side", "`/bin/true`, ms", "`true`, ms", "`/bin/true`, ratio")
    for name, row in found["latency"].items():
        mine = {
            key.partition(": fork ")[2]: ratio for key, ratio in found["ratios"].items() if key.startswith(f"{name}:")
        }
        ratios = ", ".join(f"{ratio:g}× {words}" for words, ratio in mine.items())
        yield _row(_side(name), f"{row['fork_ms']:.2f}", f"{row['builtin_ms']:.2f}", ratios)
    peer = found.get("swe_rex")
    if peer:
        yield _row(f"SWE-ReX {peer['version']}, `LocalRuntime`", f"{peer['fork_ms']:.0f}", "", "")


def _others(found: dict[str, Any]) -> Iterator[str]:
    yield from _head("what", "target", "reached")
    rates, peer, crowd = found.get("throughput", {}), found.get("swe_rex"), found.get("crowd")
    for session, minimum in (("live", 40), ("robust", 12)) if rates else ():
        over, ours = rates[f"{session}_over_docker_exec"], rates[f"{session} per_second"]
        theirs = rates["docker exec per_second"]
        reached = f"{over:g}× ({ours:.0f}/s against {theirs:.0f}/s)"
        yield _row(f"`/bin/true` in 64 slots of a container, `{session}`, over `docker exec`", f"≥ {minimum}×", reached)
    if peer:
        yield _row(f"the same, SWE-ReX, {peer['sessions']} sessions", "", f"{peer['calls_per_second']:g}/s")
    if crowd:
        yield _row("opening a slot in a running container", "≤ 5 ms", f"{crowd['open_ms']:g} ms")
        yield _row("memory of the caller for 1,000 open slots", "≤ 120 MB", f"{crowd['caller_growth_mb']:g} MB")
    for name, way in found["files"].items():
        target = "≥ 100 MB/s" if name.startswith("docker") else ""
        reached = f"{way['write_mb_per_second']:.0f} and {way['read_mb_per_second']:.0f} MB/s"
        yield _row(f"file of 50 MB in and out, {_side(name)}", target, reached)


def backends_table(found: dict[str, Any]) -> str:
    """Render latencies, throughput, slots and files."""
    where = f"Python {found['python']}, {found['cores']} cores; medians, ratios within one run."
    return "\n".join([*_latencies(found), "", *_others(found), "", where])


def soak_table(found: dict[str, Any]) -> str:
    """Render the kills and the results."""
    head = (
        "sandboxes",
        "rollouts",
        "killed",
        "recorded once",
        "full reward",
        "no reward: infrastructure",
        "left after gc",
    )
    rows = _head(*head)
    for name, row in found["kinds"].items():
        killed = ", ".join(f"{count} {kind}s" for kind, count in row["kills"].items())
        counts = [str(row[key]) for key in ("recorded_once", "full_reward", "infrastructure_failures")]
        left = sum(row["left_after_gc"].values())
        rows.append(_row(_LABELS[name], str(row["rollouts"]), killed, *counts, str(left) if left else "nothing"))
    return "\n".join([*rows, "", f"Python {found['python']}, {found['cores']} cores."])


TABLES = {"backends": backends_table, "soak": soak_table}


def with_tables(readme: str) -> str:
    """Return a page with the tables where it has marks for them."""
    for name, source in SOURCES.items():
        begin, end = marks(name)
        if begin not in readme:
            continue
        readme = between(readme, begin, end, TABLES[name](json.loads(source.read_text(encoding="utf-8"))))
    return readme


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
