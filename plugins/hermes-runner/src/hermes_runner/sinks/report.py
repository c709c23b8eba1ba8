"""The sink `report`: `report.html`, written once from what the run has recorded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from hermes_runner.output import REPORT, ROLLOUTS
from hermes_runner.report.writer import write_report


@final
class ReportSink:
    """Writes the page when the summary is there: one that grew with the outcomes would be written again for each."""

    def open(self, folder: str) -> None:
        """Note where the run records."""
        self._folder = Path(folder)

    def write(self, outcome: Mapping[str, Any]) -> None:
        """Do nothing: the outcome is in the run's own file, which the page is made from."""

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write the page; it appears whole or not at all."""
        with (self._folder / ROLLOUTS).open("rb") as lines:
            write_report(self._folder / REPORT, summary, lines)

    def close(self) -> None:
        """Do nothing: no file is open."""
