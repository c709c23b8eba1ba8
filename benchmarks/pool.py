"""Measure the cost of a slot pool: `python -m benchmarks.pool` prints JSON, ratios of one run.

- Taking and releasing a free slot, with 0 and with 1,000 waiters for another kind of host.
- 64 trajectories on 2 hosts of 8 slots: all finish, no slot is idle while one waits, and, in a second pass without
  these checks, the time it takes beside what 16 slots that were never idle would have needed.
- A sandbox in a slot of a running host beside one with an agent to itself.

Hosts are agents of backend `local` on this machine. `--write` keeps the result in pool.json and in the table of
plugins/hermes-pool/README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from benchmarks.readme_marks import between, print_results
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_pool import PoolOptions, SlotPool
from hermes_sandbox.backends import SlotRequest
from hermes_sandbox.local import LocalBackend, LocalOptions

HERE = Path(__file__).parent
RESULTS = HERE / "pool.json"
README = HERE.parent / "plugins" / "hermes-pool" / "README.md"
BEGIN = "<!-- pool figures: begin, written by benchmarks/pool.py -->"
END = "<!-- pool figures: end -->"
HOSTS, SLOTS, TRAJECTORIES, CALLS, THOUGHT = 2, 8, 64, 5, 0.05
TARGETS = {"acquire_p99_ms": 1.0, "idle_while_waiting": 0.0, "finished": TRAJECTORIES}


class Pooled(LocalBackend):
    """Slots of this machine, from a pool."""

    def __init__(self, root: Path, slots: int, options: PoolOptions) -> None:
        super().__init__(LocalOptions(root_dir=root, slots_per_agent=slots))
        self.lease_dir = root / "leases"
        self.host_pool = self.pool = SlotPool(options, name="local", load=lambda: 0.0)

    async def host(self) -> Any:
        """Create a host for the pool."""
        return await self._shared_agent(self.with_level(SandboxSpec()))


def request() -> SlotRequest:
    """Return a sandbox's request to its agent."""
    return SlotRequest(
        spec=SandboxSpec(),
        sandbox_id=uuid.uuid4().hex[:16],
        environment={},
        setup_timeout=30.0,
        patience=20.0,
        processes=1024,
    )


async def acquiring(root: Path, rounds: int, waiting: int) -> dict[str, float]:
    """Return milliseconds of taking a free slot while others wait for another kind of host without free slots."""
    backend = Pooled(root, SLOTS, PoolOptions(max_hosts=2, slots_per_host=SLOTS, acquire_timeout=600))
    pool = backend.pool
    kept = await pool.acquire("ours", backend.host, SLOTS, request())
    full = await pool.acquire("theirs", backend.host, 1, request())
    others = [asyncio.ensure_future(pool.acquire("theirs", backend.host, 1, request())) for _ in range(waiting)]
    await asyncio.sleep(0)
    times = []
    for _ in range(rounds):
        asked = request()
        began = time.perf_counter()
        seat = await pool.acquire("ours", backend.host, SLOTS, asked)
        times.append((time.perf_counter() - began) * 1000)
        await seat.release()
    if pool.waiting != waiting:
        raise AssertionError(f"expected {waiting} waiters, got {pool.waiting}")
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await kept.release()
    await full.release()
    await backend.aclose()
    times.sort()
    return {"median_ms": round(statistics.median(times), 4), "p99_ms": round(times[int(len(times) * 0.99)], 4)}


async def crowd(root: Path, *, is_watched: bool) -> dict[str, Any]:
    """Run more trajectories than there are slots; watched, look for idle slots at every iteration of the loop.

    Watching keeps the loop busy, so that threads wait for it: the time counts only where nothing watches.
    """
    options = PoolOptions(max_hosts=HOSTS, slots_per_host=SLOTS, acquire_timeout=600)
    backend = Pooled(root, SLOTS, options)
    held = 0.0

    async def run_trajectory(number: int) -> bool:
        nonlocal held
        async with await backend.open(SandboxSpec()) as sandbox:
            began = time.perf_counter()
            for _ in range(CALLS):
                await asyncio.sleep(THOUGHT)
                result = await sandbox.exec(f"echo {number}")
            held += time.perf_counter() - began
            return result.output == f"{number}\n"

    idle, looked = 0, 0

    async def watch() -> None:
        nonlocal idle, looked
        while is_watched:
            stats = backend.pool.stats()
            looked += 1
            idle += bool(stats.waiting and stats.free)
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(watch())
    began = time.perf_counter()
    finished = sum(await asyncio.gather(*(run_trajectory(number) for number in range(TRAJECTORIES))))
    seconds = time.perf_counter() - began
    watching.cancel()
    stats = backend.pool.stats()
    await backend.aclose()
    timing = {"seconds": round(seconds, 2), "over_ideal": round(seconds / (held / (HOSTS * SLOTS)), 2)}
    return {
        "trajectories": TRAJECTORIES,
        "hosts": stats.created,
        "slots": HOSTS * SLOTS,
        "finished": finished,
        **({"looked": looked, "idle_while_waiting": idle} if is_watched else timing),
    }


async def opening(root: Path, rounds: int) -> dict[str, float]:
    """Return milliseconds of opening and closing a sandbox with a slot, and with an agent to itself."""
    pooled = Pooled(root, SLOTS, PoolOptions(max_hosts=1, slots_per_host=SLOTS))
    alone = LocalBackend(LocalOptions(root_dir=root))
    alone.lease_dir = root / "leases"
    times: dict[str, list[float]] = {"slot": [], "alone": []}
    for _ in range(rounds + 1):
        for name, backend in (("slot", pooled), ("alone", alone)):
            began = time.perf_counter()
            async with await backend.open(SandboxSpec()):
                pass
            times[name].append((time.perf_counter() - began) * 1000)
    await pooled.aclose()
    await alone.aclose()
    slot, own = (statistics.median(times[name][1:]) for name in ("slot", "alone"))
    return {"slot_ms": round(slot, 1), "alone_ms": round(own, 1), "ratio": round(own / slot, 2)}


async def measure(rounds: int) -> dict[str, Any]:
    """Measure everything."""
    with tempfile.TemporaryDirectory(prefix="hermes-pool-bench-") as folder:
        root = Path(folder)
        return {
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "acquire": await acquiring(root, rounds * 100, 0),
            "acquire_in_a_crowd": await acquiring(root, rounds * 100, 1000),
            "crowd": await crowd(root, is_watched=False),
            "watched_crowd": await crowd(root, is_watched=True),
            "opening": await opening(root, rounds),
            "targets": TARGETS,
        }


def table(found: dict[str, Any]) -> str:
    """Render the README's table."""
    free, busy, crowd, opening = (found[name] for name in ("acquire", "acquire_in_a_crowd", "crowd", "opening"))
    watched = found["watched_crowd"]
    looks = f"{watched['looked']:,} checks: a slot is free while a trajectory waits"
    crowded = f"{crowd['trajectories']} trajectories on {crowd['hosts']} hosts × {SLOTS} slots"
    times = f"{opening['ratio']:g}× ({opening['alone_ms']:g} ms over {opening['slot_ms']:g} ms)"
    rows = [
        ("what", "target", "reached"),
        ("---", "---", "---"),
        ("taking a free slot, median and 99th percentile", "≤ 1 ms", _ms(free)),
        ("the same while 1,000 wait for another kind of host", "≤ 1 ms", _ms(busy)),
        (f"{crowded}: finished", "all", str(crowd["finished"])),
        ("their time over that of slots that are never idle", "", f"{crowd['over_ideal']:g}×"),
        (looks, "0", str(watched["idle_while_waiting"])),
        ("opening and closing a sandbox: an agent of its own over a slot", "", times),
    ]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    where = f"Python {found['python']}, {found['cores']} cores; ratios within one run."
    return "\n".join([*lines, "", where])


def _ms(row: dict[str, float]) -> str:
    return f"{row['median_ms']:.3f} and {row['p99_ms']:.3f} ms"


def with_table(readme: str) -> str:
    """Return a README with the table between its marks."""
    return between(readme, BEGIN, END, table(json.loads(RESULTS.read_text(encoding="utf-8"))))


def missed(found: dict[str, Any]) -> list[str]:
    """List the missed targets."""
    reached = {
        "acquire_p99_ms": found["acquire"]["p99_ms"] <= TARGETS["acquire_p99_ms"],
        "idle_while_waiting": found["watched_crowd"]["idle_while_waiting"] == TARGETS["idle_while_waiting"],
        "finished": found["crowd"]["finished"] == found["watched_crowd"]["finished"] == TARGETS["finished"],
    }
    return [name for name, good in reached.items() if not good]


def main() -> int:
    """Measure, print, and write the results if requested."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--rounds", type=int, default=50, help="sandboxes opened; a hundred times as many slots taken")
    parser.add_argument("--write", action="store_true", help="keep the result in pool.json and the package's README")
    arguments = parser.parse_args()
    found = asyncio.run(measure(arguments.rounds))
    print_results(found, write=arguments.write, results=RESULTS, page=README, with_figures=with_table)
    for name in (misses := missed(found)):
        sys.stderr.write(f"target missed: {name}\n")
    return bool(misses)


if __name__ == "__main__":
    raise SystemExit(main())
