"""The state of reading a call: its name and parameters, and where and how it ended."""

from __future__ import annotations

import re
from typing import Any

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers.markup.dialect import Dialect

Parameter = tuple[str, str, str, bool]
"""A parameter as written: name, attribute, text, and whether its closing mark was there. A plain tuple, because nothing
is cheaper to create.
"""


class Call:
    """An unfinished call, good or bad; it keeps what has been read while waiting for more text.

    `at` is how far its parameters are certain, `given` their names, `reading` the state of its reader. When `is_read`,
    `end` is where the call ends: after its closing mark if it `is_closed`; `is_cut` if it never ends. `doubt` says
    which value may contain a swallowed parameter, `junk` is text in place of a parameter, `slip` says what is wrong
    with the call's own tag, and `repairs` lists mistakes of the model whose meaning is certain.
    """

    __slots__ = (
        "at",
        "dialect",
        "doubt",
        "end",
        "given",
        "is_closed",
        "is_cut",
        "is_read",
        "junk",
        "name",
        "parameters",
        "reading",
        "reason",
        "repairs",
        "slip",
        "start",
        "status",
        "tools",
    )

    def __init__(self, dialect: Dialect, tools: Any) -> None:
        self.dialect = dialect
        self.tools = tools
        self.start = self.end = self.at = -1
        self.name = ""
        self.parameters: list[Parameter] = []
        self.given: set[str] = set()
        self.repairs: list[str] = []
        self.status = AttemptStatus.OK
        self.reason = self.junk = self.slip = self.doubt = ""
        self.reading: Any = None
        self.is_read = self.is_closed = self.is_cut = False

    def finish(self, end: int, *, is_closed: bool = False, is_cut: bool = False) -> None:
        """Set where and how the call ended."""
        self.end = end
        self.is_closed = is_closed
        self.is_cut = is_cut
        self.is_read = True

    def fail(self, status: AttemptStatus, reason: str) -> None:
        """Set what is wrong with it."""
        self.status = status
        self.reason = reason

    def repair_end(self, name: str) -> None:
        """Note that the closing mark of a parameter appears more than once."""
        self.repair(f"{name.strip()}: its closing mark appears twice")

    def repair(self, told: str) -> None:
        """Note a mistake, once."""
        if told not in self.repairs:
            self.repairs.append(told)


def parameter_of(tag: re.Match[str], text: str, *, is_closed: bool = True) -> Parameter:
    """Return the parameter of an opening tag."""
    return tag[1].strip(), tag[2] if tag.re.groups > 1 else "", text, is_closed
