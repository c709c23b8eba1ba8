"""Prints the reports on backends, for `doctor` and `sandboxes probe`."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping
from typing import Any, TextIO

from hermes_sandbox.commands.backend_report import BackendReport


def is_terminal(stream: TextIO) -> bool:
    """Return whether a person reads the lines, which are then wrapped, and not a program."""
    return stream.isatty()


class ReportPrinter:
    """Prints some lines for each backend as soon as they are known; with `in_detail` a line for all that works."""

    def __init__(self, stream: TextIO, *, in_detail: bool = False) -> None:
        self._stream = stream
        self._in_detail = in_detail
        self._columns = shutil.get_terminal_size().columns if is_terminal(stream) else 0
        self._said: dict[tuple[str, str], str] = {}
        self.width = 0
        """Length of the longest name."""

    def begin(self, name: str) -> None:
        """Print the name of the backend that is tried now."""
        self._stream.write(f"{name:{self.width}}  ")
        self._stream.flush()

    def print(self, report: BackendReport) -> None:
        """Print the result and what to do. A problem that another backend has too is printed only once."""
        works = f"works at {', '.join(report.works)}" if report.works else "does not work here"
        works = works if report.tried else "is not tried"
        self._stream.write(f"{works if report.installed else 'is not installed'}\n")
        for bound in report.processes:
            self._processes(bound)
        for detail in report.details if self._in_detail else ():
            self._write_wrapped(detail, "    ")
        for trouble in report.troubles:
            other = self._said.setdefault((trouble["message"], trouble["hint"]), report.backend)
            if other != report.backend and report.installed:
                self._write_wrapped(f"for the reason that {other} has, above", "    ")
            else:
                self._trouble(trouble, partly=bool(report.works), installed=report.installed)

    def _processes(self, bound: Mapping[str, Any]) -> None:
        """Print the process limit of a level. A level without one still works."""
        self._write_wrapped(f"processes at {bound['level']}: {bound['message']}", "    ")
        if not bound["bounded"]:
            self._write_wrapped(f"→ {bound['hint']}", "    ", "      ")

    def _trouble(self, trouble: Mapping[str, Any], *, partly: bool, installed: bool) -> None:
        at = f"{', '.join(trouble['levels'])}: " if partly and trouble["levels"] else ""
        if installed:
            self._write_wrapped(f"{at}{trouble['message']}", "    ")
        self._write_wrapped(f"→ {trouble['hint']}", "    ", "      ")

    def _write_wrapped(self, text: str, indent: str, further: str | None = None) -> None:
        if self._columns:
            text = textwrap.fill(
                text,
                self._columns,
                initial_indent=indent,
                subsequent_indent=further or indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
        self._stream.write(f"{text if self._columns else indent + text}\n")
