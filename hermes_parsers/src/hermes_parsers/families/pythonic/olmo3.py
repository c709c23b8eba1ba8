"""Olmo 3: Python calls, one a line, between marks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.engine.scanning.stream import ScanStream
from hermes_parsers.families.pythonic.call_syntax import NAME
from hermes_parsers.families.pythonic.parser import MARKED, PythonicParser
from hermes_parsers.writing import dumps


class Olmo3Parser(PythonicParser):
    r"""`<function_calls>f(a="x")\ng(b=null)</function_calls>`: one call per line, values as JSON.

    This is the template of Olmo 3; models also write newlines inside the marks and Python literals.
    """

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|im_end|>",)
    stream_type: ClassVar[type[ScanStream]] = ScanStream
    openers: ClassVar[tuple[str, ...]] = ("<function_calls>",)
    pattern: ClassVar[str] = ""
    body: ClassVar[str] = rf"{MARKED}(?:{NAME}(?:\(|\Z)|\Z)"
    head: ClassVar[re.Pattern[str]] = re.compile(rf"<function_calls>{MARKED}(?={NAME}\()")
    separator: ClassVar[str] = ",?+"
    closer: ClassVar[str] = "</function_calls>"
    quotes_loosely: ClassVar[bool] = False
    needs_closer: ClassVar[bool] = True

    def write_calls(self, calls: Sequence[WrittenCall]) -> str:
        """Write one call per line between the marks."""
        lines = [self.write_call(call, index) for index, call in enumerate(calls)]
        return self.openers[0] + "\n".join(lines) + self.closer

    def write_value(self, value: Any) -> str:
        """Write JSON."""
        return dumps(value)
