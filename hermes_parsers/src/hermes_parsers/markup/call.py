"""What is read of a call: its name and parameters, and where and how it ended."""

from __future__ import annotations

import re
from typing import Any

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers.markup.dialect import Dialect

Parameter = tuple[str, str, str, bool]
"""A parameter as it stood: name, attribute, text, and whether its own closing mark was there.

A plain tuple: messages are made of them, and nothing is cheaper to make.
"""


class Call:
    """A call in the making, good or bad; what has been read of it stays when more text has to be waited for.

    `at` is how far its parameters are read for sure, `given` their names, `reading` what its reader remembers. When
    `is_read`, `end` is where the call has ended: behind its closing mark if it `is_closed`; `is_cut` if it never
    ends. `doubt` says which value may have swallowed a parameter, `junk` is text that stood where a parameter was
    wanted, `slip` what is wrong with the call's own tag, and `repairs` says what the model wrote otherwise than it
    should, where what it meant is beyond doubt.
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
        """Say where the call has ended, and how."""
        self.end = end
        self.is_closed = is_closed
        self.is_cut = is_cut
        self.is_read = True

    def fail(self, status: AttemptStatus, reason: str) -> None:
        """Say what is wrong with it."""
        self.status = status
        self.reason = reason

    def repair_end(self, name: str) -> None:
        """Note that the closing mark of a parameter stands there more than once."""
        self.repair(f"{name.strip()}: its closing mark stands there twice")

    def repair(self, told: str) -> None:
        """Note once what was written otherwise than it should be."""
        if told not in self.repairs:
            self.repairs.append(told)


def parameter_of(tag: re.Match[str], text: str, *, is_closed: bool = True) -> Parameter:
    """Return the parameter of an opening tag."""
    return tag[1].strip(), tag[2] if tag.re.groups > 1 else "", text, is_closed
