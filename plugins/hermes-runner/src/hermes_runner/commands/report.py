"""`hermes-core report`: rebuild the summary and the report from a run's rollouts."""

from __future__ import annotations

import argparse
from pathlib import Path


class ReportCommand:
    """The command `report`."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.description = "Rebuild summary.json and report.html from DIR/rollouts.jsonl and print the summary."
        parser.add_argument("directory", metavar="DIR", type=Path, help="output folder of a run, such as runs/latest")
        parser.add_argument(
            "--max-tasks", type=int, default=30, metavar="N", help="rows of the printed table (default: %(default)s)"
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Write both files and print the table; lines that are not rollouts are counted and skipped."""
        from rich.console import Console

        from hermes_core.cli import plural
        from hermes_runner.report.rebuild import rebuild
        from hermes_runner.report.summary import render_summary

        directory: Path = arguments.directory
        summary = rebuild(directory)
        paths = [str(directory / name) for name in ("rollouts.jsonl", "summary.json", "report.html")]
        render_summary(summary, Console(), paths=paths, max_tasks=max(0, arguments.max_tasks))
        unreadable = summary["rollouts"]["unreadable_lines"]
        if unreadable:
            verbs = "is not a rollout and was" if unreadable == 1 else "are not rollouts and were"
            Console(stderr=True).print(f"{plural(unreadable, 'line')} of rollouts.jsonl {verbs} skipped")
        return 0
