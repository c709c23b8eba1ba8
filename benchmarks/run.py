"""Every benchmark in one command: writes `results.json` and the table of docs/benchmarks.md from it.

`python -m benchmarks.run` measures (about four minutes); `--table` only rewrites the page from the committed JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from benchmarks.readme_marks import between

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures: begin, written by benchmarks/run.py -->", "<!-- figures: end -->"
MODULES = {
    "rollouts": "benchmarks.rollouts.framework_cost",
    "terminal_rollouts": "benchmarks.rollouts.terminal_cost",
    "sandbox": "benchmarks.sandboxes.local_sandbox",
    "sandbox_start": "benchmarks.sandboxes.start",
    "startup": "benchmarks.startup",
    "run_start": "benchmarks.run_start",
}


def measure(peers_python: str | None, names: Collection[str]) -> dict[str, Any]:
    """Run the named modules one after the other; a missed target is recorded, not an error."""
    peers = [] if peers_python is None else ["--peers-python", peers_python]
    results: dict[str, Any] = {"python": platform.python_version(), "cores": os.cpu_count()}
    for name, module in MODULES.items():
        if name not in names:
            continue
        print(f"{name} …", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", module, *(peers if name == "sandbox_start" else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        results[name] = json.loads(done.stdout)
    return results


def table(results: dict[str, Any]) -> str:
    """Render the figures as Markdown."""
    rows = [*_rollout_rows(results["rollouts"]), *_terminal_rows(results["terminal_rollouts"])]
    rows += _sandbox_rows(results["sandbox"])
    rows += [*_start_rows(results["sandbox_start"]), *_startup_rows(results["startup"])]
    rows += _run_start_rows(results["run_start"])
    head = ["| what | target | reached |", "|---|---|---|"]
    where = f"Python {results['python']}, {results['cores']} cores; ratios within one run."
    where += f" The start of a run was measured on {results['run_start']['date']}."
    return "\n".join([*head, *(f"| {what} | {target} | {reached} |" for what, target, reached in rows), "", where])


Row = tuple[str, str, str]


def _rollout_rows(found: dict[str, Any]) -> list[Row]:
    ratios, short = found["ratios"], found["cpu_ms_per_turn"]["6"]
    plain = f"{short['ours']:.2f} ms against {short['plain']:.2f} ms"
    return [
        (
            "framework CPU per turn beside a plain aiohttp loop, 6 turns",
            "≤ 4×",
            f"{ratios['cpu_ratio_6_turns']:.1f}× ({plain})",
        ),
        ("the same at 50 turns", "", f"{ratios['cpu_ratio_50_turns']:.1f}×"),
        ("growth of our CPU per turn from 6 to 50 turns", "≤ 1.2×", f"{ratios['growth_6_to_50_turns']:.2f}×"),
        (
            "512 rollouts in flight, 500 ms model latency: wall time over the ideal",
            "≤ 1.25×",
            f"{ratios['wall_over_ideal_512']:.2f}×",
        ),
        ("peak memory of the same", "≤ 86 MB", f"{ratios['peak_rss_mb_512']:.0f} MB"),
    ]


def _startup_rows(found: dict[str, Any]) -> list[Row]:
    ratios = found["ratio_to_bare"]
    return [
        ("`import hermes_core` over a bare interpreter", "≤ 1.5×", f"{ratios['import hermes_core']:.2f}×"),
        (
            f"`hermes-core plugins list`, {found['plugins_installed']} plugins, over a bare interpreter",
            "≤ 10×",
            f"{ratios['hermes-core plugins list']:.1f}×",
        ),
    ]


def _run_start_rows(found: dict[str, Any]) -> list[Row]:
    whole, starts = found["to_the_end"], found["to_the_first_call"]
    limit = found["targets"]["first_call_s"]

    def times_bare(cell: dict[str, float]) -> str:
        return f"{cell['processor_ratio_to_bare']:.0f}× a bare interpreter"

    rows = [
        (
            f"`hermes-core run`, from the start of its process to its first model call, {name}",
            f"≤ {limit:g} s",
            f"{cell['wall_s']:.2f} s ({cell['processor_s']:.2f} s of processor time, {times_bare(cell)})",
        )
        for name, cell in starts.items()
    ]
    printed = whole["hermes-core run --print-config"]
    shown = (f"{name} {whole[name]['processor_s'] * 1000:.0f} ms" for name in whole if name.startswith("import"))
    beside = ", ".join([f"a bare interpreter {whole['bare']['processor_s'] * 1000:.0f} ms", *shown])
    return [
        *rows,
        (
            "processor time of `hermes-core run --print-config`",
            "",
            f"{printed['processor_s']:.2f} s ({times_bare(printed)})",
        ),
        ("processor time beside that, in the same run", "", beside),
    ]


def _sandbox_rows(found: dict[str, Any]) -> list[Row]:
    rows: list[Row] = []
    for level in ("none", "bwrap"):
        for kind, command in (("fork", "`/bin/true`"), ("builtin", "`true`")):
            cell = found[level]["latency"][kind]
            figures = f"{cell['ratio']:.1f}× ({cell['session_ms']:.1f} ms against {cell['bare_bash_ms']:.1f} ms)"
            rows.append(
                (f"command in a warm session over a bare `bash -c`, {command}, isolation `{level}`", "≤ 2.5×", figures)
            )
        printed = found[level]["printing_200_mb"]
        growth = max(printed["caller_growth_mb"], printed["agent_growth_mb"])
        rows.append((f"memory growth while a command prints 200 MB, isolation `{level}`", "≤ 5 MB", f"{growth:.1f} MB"))
    return rows


def _terminal_rows(found: dict[str, Any]) -> list[Row]:
    rows: list[Row] = []
    plain = found["cpu_ms_per_turn"]["plain"]
    for level in ("none", "bwrap"):
        if level not in found["ratios"]:
            continue
        ratio = found["ratios"][level]
        limit = found["targets"].get(level)
        reached = f"{ratio:.1f}× ({found['cpu_ms_per_turn'][level]:.2f} ms against {plain:.2f} ms)"
        what = "CPU per turn of a rollout with five commands, its sandbox included, beside a plain loop with `bash -c`"
        rows.append((f"{what}, isolation `{level}`", f"≤ {limit:g}×" if limit else "", reached))
    for judge, milliseconds in found["cpu_ms_per_judgement"].items():
        what = f"CPU of a judgement by {judge} that do nothing, with an agent of its own, isolation `none`"
        rows.append((what.replace("command that do", "command that does"), "", f"{milliseconds:.0f} ms"))
    return rows


def _start_rows(found: dict[str, Any]) -> list[Row]:
    rows: list[Row] = []
    starts, targets = found["starts"], found["targets"]
    for level in ("none", "bwrap"):
        cell = starts[level]
        if "skipped" in cell:
            continue
        limits = {figure: limit[level] for figure, limit in targets.items() if level in limit}
        rows += [
            (
                f"CPU of a sandbox that is opened, runs one command and is closed, isolation `{level}`",
                f"≤ {limits['cpu_ms']:g} ms" if "cpu_ms" in limits else "",
                f"{cell['cpu_ms']:.1f} ms ({cell['children_ms']:.1f} ms inside, {cell['caller_ms']:.1f} ms its caller)",
            ),
            (
                "the same over a Python that ends at once",
                f"≤ {limits['over_bare_python']:g}×" if "over_bare_python" in limits else "",
                f"{cell['over_bare_python']:.2f}×",
            ),
            (
                "the same, 64 at a time",
                f"≥ {limits['starts_per_second']:g}/s" if "starts_per_second" in limits else "",
                f"{cell['starts_per_second']:.0f}/s",
            ),
        ]
    anchors = (
        ("bare_python", "a Python that ends at once"),
        ("bash", "`bash -c true`"),
        ("bwrap_bash", "the same in bwrap"),
        ("sandlock_bash", "the same in sandlock"),
    )
    shown = (f"{text} {starts[name]['cpu_ms']:.1f} ms" for name, text in anchors if "skipped" not in starts[name])
    rows.append(("CPU beside that, in the same run", "", ", ".join(shown)))
    large = found["starts_of_a_large_caller"]
    names = {"bwrap": "sandbox `bwrap`", "bash_other_user": "`bash` as another user by the standard library"}
    shown = (
        f"{text} {large[name]['caller_ms']:.1f} ms" for name, text in names.items() if "wall_ms" in large.get(name, {})
    )
    return [*rows, ("CPU of a caller with 1 GB of memory for one start", "", ", ".join(shown))]


def write_table(results: dict[str, Any]) -> None:
    """Put the table between the page's two marks."""
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")


def with_table(readme: str, results: dict[str, Any]) -> str:
    """Return a page with the table in its place."""
    return between(readme, BEGIN, END, table(results))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--table", action="store_true", help="only rewrite docs/benchmarks.md from the committed results"
    )
    parser.add_argument("--peers-python", help="a Python that has sandlock; without it that one is not measured")
    parser.add_argument("--only", action="append", choices=[*MODULES], help="measure this one again; may be repeated")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    if not options.table:
        results |= measure(options.peers_python, options.only or MODULES)
        RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    write_table(results)
    missed = [name for name, found in results.items() if isinstance(found, dict) and not found["met"]]
    print("missed targets in: " + ", ".join(missed) if missed else "all targets met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
