"""One self-contained `report.html` of a run, and how to build it again."""

from __future__ import annotations

from hermes_runner.report.rebuild import rebuild
from hermes_runner.report.writer import write_report

__all__ = ["rebuild", "write_report"]
