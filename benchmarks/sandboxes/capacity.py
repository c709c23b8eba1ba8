"""Measure the resources of one idle sandbox of each kind, for planning ten thousand.

`python -m benchmarks.sandboxes.capacity` opens a few dozen sandboxes of each kind, has each run a command, and looks at
what they hold while nothing runs: memory (proportional set size, so that shared pages count once), processes, the
caller's own memory and descriptors, and how long opening took. `--write` keeps the result in capacity.json and the
tables of docs/capacity.md. Kinds that cannot start here are named, with the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import statistics
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.readme_marks import between, print_results
from benchmarks.sandboxes.sandbox_kinds import KINDS, SandboxKind, open_sandboxes, ssh_server
from hermes_sandbox.local import read_marker, read_process, read_table

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "benchmarks/sandboxes/capacity.json"
PAGE = ROOT / "docs/capacity.md"
BEGIN = "<!-- capacity figures: begin, written by benchmarks/sandboxes/capacity.py -->"
END = "<!-- capacity figures: end -->"
MANY = 10_000
SLOTS = 32
"""Slots per shared host here; 64 or more are usual, which spreads the host's cost further."""


def family(before: set[int]) -> set[int]:
    """Return the processes of all sandboxes and the new processes that started them: shims, launchers, logins."""
    table = read_table()
    marked = {pid for pid in table if read_marker(pid) is not None or in_container(pid)}
    found = set(marked)
    for pid in marked:
        process = table.get(pid)
        while process is not None and process.parent > 1 and process.parent not in before | found:
            found.add(process.parent)
            process = read_process(process.parent)
    return found - {os.getpid()}


def in_container(pid: int) -> bool:
    """Tell whether a process runs in a container: the agent is the first one there, and carries no mark."""
    with contextlib.suppress(OSError):
        return "/docker/" in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
    return False


def memory_mb(pids: set[int]) -> float:
    """Return the memory of processes, with shared pages counted proportionally."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError):
            continue  # it has ended meanwhile
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def own() -> tuple[float, int]:
    """Return the caller's memory in MB and its descriptors."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20), sum(1 for _ in Path("/proc/self/fd").iterdir())


async def measure(name: str, count: int, session: str) -> dict[str, float]:
    """Open sandboxes of one kind and return what each costs while it is idle."""
    async with open_sandboxes(name, session, count=1) as warm:
        await warm.sandbox.exec("true")
        before, (memory, descriptors) = set(read_table()), own()
        standing = family(before)
        base = memory_mb(standing)
        took = []
        for _ in range(count):
            began = time.perf_counter()
            await warm.open_another()
            took.append(time.perf_counter() - began)
            await warm.sandboxes[-1].exec("true")
        after, (grown, opened_descriptors) = family(before) | standing, own()
        return {
            "memory_mb": round((memory_mb(after) - base) / count, 2),
            "processes": round((len(after) - len(standing)) / count, 2),
            "caller_memory_kb": round((grown - memory) * 1024 / count, 1),
            "caller_descriptors": round((opened_descriptors - descriptors) / count, 2),
            "open_ms": round(statistics.median(took) * 1000, 1),
        }


async def measure_all(count: int) -> dict[str, Any]:
    """Measure every kind that is available here."""
    KINDS["local slots"] = SandboxKind("local", "none", {"slots_per_agent": SLOTS})
    KINDS["docker pool"] = SandboxKind(
        "docker", "container+slot", {**KINDS["docker"].options, "slots_per_container": SLOTS}
    )
    rows: dict[str, Any] = {}
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        try:
            stack.enter_context(ssh_server())
        except (AssertionError, OSError, RuntimeError) as error:
            absent["ssh"] = str(error) or "sshd is not installed"
        for name in KINDS:
            for session in ("robust", "live"):
                try:
                    rows[f"{name} {session}"] = await measure(name, count, session)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is named in the result
                    absent[name] = str(error)
    return {"python": platform.python_version(), "count": count, "slots": SLOTS, "absent": absent, "sandboxes": rows}


NAMES = {
    "local": "`local`, `bwrap`",
    "local none": "`local`, `none`, an agent each",
    "local slots": "a slot of a shared agent at `none`: `local`, `ssh`, `slurm`, `ray`",
    "docker": "`docker`, `container`",
    "docker pool": "a slot of a container: `docker` `container+slot`, `nomad`, `modal` in pool mode",
    "ssh": "`ssh`, `none`, connections shared",
}


def table(found: dict[str, Any]) -> str:
    """Return the page's tables."""
    unit = ["| an idle sandbox | memory, MB | processes | caller's memory, kB | caller's descriptors | opening, ms |"]
    unit += ["|---|---|---|---|---|---|"]
    many = [f"| {MANY:,} of them | memory, GB | processes | caller's memory, MB | caller's descriptors |"]
    many += ["|---|---|---|---|---|"]
    for name, row in found["sandboxes"].items():
        kind, _, session = name.rpartition(" ")
        label = f"{NAMES[kind]}; session `{session}`"
        unit.append(
            f"| {label} | {row['memory_mb']:.1f} | {row['processes']:.1f} | {row['caller_memory_kb']:.0f} |"
            f" {row['caller_descriptors']:.1f} | {row['open_ms']:.0f} |"
        )
        many.append(
            f"| {label} | {row['memory_mb'] * MANY / 1024:,.0f} | {row['processes'] * MANY:,.0f} |"
            f" {row['caller_memory_kb'] * MANY / 1024:,.0f} | {row['caller_descriptors'] * MANY:,.0f} |"
        )
    note = (
        f"Python {found['python']}; {found['count']} sandboxes of each kind, {found['slots']} slots in a shared host."
    )
    return "\n".join([*unit, "", *many, "", note])


def with_table(page: str, found: dict[str, Any]) -> str:
    """Return the page with these figures."""
    return between(page, BEGIN, END, table(found))


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=64, help="sandboxes of each kind")
    parser.add_argument("--write", action="store_true", help="keep the result in capacity.json and docs/capacity.md")
    options = parser.parse_args()
    found = asyncio.run(measure_all(options.count))
    update = partial(with_table, found=found)
    print_results(found, write=options.write, results=RESULT, page=PAGE, with_figures=update)
    return 0


if __name__ == "__main__":
    sys.exit(main())
