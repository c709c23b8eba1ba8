"""dots.llm: `<invoke name="…">` with parameters, or a JSON object, in `<dots_function_call>`."""

from __future__ import annotations

import re
from functools import cached_property
from typing import ClassVar, Final

from hermes_parsers.engine.scanning.parser import ScanningParser
from hermes_parsers.engine.scanning.scan import UNDECIDED, Scan, Wait, sees, skip_space
from hermes_parsers.families.json.hermes import HermesParser
from hermes_parsers.families.xml.json_blocks import pass_closers, read_leftovers
from hermes_parsers.families.xml.minimax import MinimaxM2Parser
from hermes_parsers.markup.dialect import SPACES, Dialect, invoke_dialect

_BLOCK: Final = ("<dots_function_call>", "</dots_function_call>")
# An object follows a mark or a doubled mark, with an optional name; a stray brace before a tag is not an object.
_JSON_BEGINS: Final = re.compile(
    rf"(?:{re.escape(_BLOCK[0])}{SPACES}){{1,2}}(?:\{{{SPACES}(?:[\"'}}]|\Z)|[^\s<{{])"
).match


class _JsonCalls(HermesParser):
    """The form with JSON."""

    openers: ClassVar[tuple[str, ...]] = (_BLOCK[0],)
    closers: ClassVar = {_BLOCK[0]: _BLOCK[1]}


class DotsParser(MinimaxM2Parser):
    """Any number of `<invoke>` in one block; an object with a name and arguments is read as well."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|endofresponse|>",)
    dialects: ClassVar[tuple[Dialect, ...]] = (invoke_dialect("", (_BLOCK,)),)
    openers: ClassVar[tuple[str, ...]] = dialects[0].openers
    ends_reasoning: ClassVar[tuple[str, ...]] = (_BLOCK[0],)

    def read(self, scan: Scan, at: int) -> Wait:
        """Read a block of either form."""
        begin = at
        for _ in range(2):
            if (yield from sees(scan, _BLOCK[0], begin)):
                begin = yield from skip_space(scan, begin + len(_BLOCK[0]))
        if begin > at and scan.text.startswith("{", begin):
            yield from skip_space(scan, begin + 1)
        end = (yield from self._json.read(scan, at)) if _JSON_BEGINS(scan.text, at) else -1
        if end < 0:
            return (yield from super().read(scan, at))
        if scan.text.endswith(_BLOCK[1], 0, end):
            return (yield from pass_closers(scan, end, _BLOCK[1:]))
        return (yield from read_leftovers(scan, end, self.openers, _BLOCK[1:]))

    def read_now(self, scan: Scan, at: int) -> int:
        """Leave JSON to `read`."""
        return UNDECIDED if _JSON_BEGINS(scan.text, at) else super().read_now(scan, at)

    @cached_property
    def _json(self) -> ScanningParser:
        return _JsonCalls()
