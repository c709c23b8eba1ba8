"""Where reasoning ends that is never closed: a call that was surely meant must not be lost with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_parsers.engine.scan import Scan

if TYPE_CHECKING:
    from hermes_parsers.engine.parser import ScanningParser


def end_of_unclosed(parser: ScanningParser, scan: Scan, body: int) -> int:
    """Return where the first calls begin that end the reasoning, or the text's end; see `ends_reasoning`.

    Of calls with only space between them one has to be good, or nothing else may follow them: a model that thinks about
    how calls are written writes some that are none.
    """
    text = scan.text
    openers = parser.openers if parser.ends_reasoning is None else parser.ends_reasoning
    probe = scan.probe(text)
    at = body if openers else len(text)
    begin, behind = len(text), -1
    while (found := parser.marks.sure(text, at)) is not None:
        start, count = found.start(), len(probe.drafts)
        end = parser.read_whole(probe, start) if found[0] in openers else -1
        at = max(start + 1, probe.resume) if end < 0 else end
        if len(probe.drafts) == count:
            continue
        if behind < 0 or text[behind:start].strip():
            begin = start
        behind = at
        if any(draft.check_name().is_good for draft in probe.drafts[count:]):
            return begin
    return len(text) if behind < 0 or text[behind:].strip() else begin
