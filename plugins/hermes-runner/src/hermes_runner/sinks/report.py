"""The sink `report`: writes `report.html` once, at the end, from the recorded rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from hermes_runner.output import REPORT, ROLLOUTS
from hermes_runner.report.writer import write_report


@final
class ReportSink:
    """Writes the page when it gets the summary: an update for each outcome would write the whole page each time."""

    def open(self, folder: str) -> None:
        """Note the folder of the run."""
        self._folder = Path(folder)

    def write(self, outcome: Mapping[str, Any]) -> None:
        """Do nothing: the page is built from `rollouts.jsonl`, which has the outcome."""

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write the page; the file is replaced as a whole or not at all."""
        with (self._folder / ROLLOUTS).open("rb") as lines:
            write_report(self._folder / REPORT, summary, lines)

    def close(self) -> None:
        """Do nothing: no file is open."""
