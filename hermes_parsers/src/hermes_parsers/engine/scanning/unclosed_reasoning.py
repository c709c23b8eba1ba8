"""Find the end of reasoning that is never closed: a call that was certainly meant must not be lost in it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from hermes_parsers.engine.scanning.quoted_marks import Quotes
from hermes_parsers.engine.scanning.reader import FormatReader
from hermes_parsers.engine.scanning.scan import Draft, Scan


def end_of_unclosed(parser: FormatReader, scan: Scan, body: int, known: AbstractSet[str] | None) -> int:
    """Return where the first calls begin that end the reasoning, or the end of the text; see `ends_reasoning`.

    Of calls with only space between them, one must be good, name a `known` tool and not be quoted, or nothing else may
    follow them: a model that thinks about calls writes some that it does not mean.
    """
    text = scan.text
    openers = parser.openers if parser.ends_reasoning is None else parser.ends_reasoning
    probe, quotes = scan.probe(text), Quotes((text,), body)
    at = body if openers else len(text)
    begin, behind, is_quoted = len(text), -1, False
    while (found := parser.stops.sure(text, at)) is not None:
        start, count = found.start(), len(probe.drafts)
        end = parser.read_whole(probe, start) if found[0] in openers else -1
        at = max(start + 1, probe.resume) if end < 0 else end
        if len(probe.drafts) == count:
            continue
        if behind < 0 or text[behind:start].strip():
            begin, is_quoted = start, quotes.has(start)
        behind = at
        quotes.skip_to(at)
        if not is_quoted and any(_is_meant(draft, known) for draft in probe.drafts[count:]):
            return begin
    return len(text) if behind < 0 or text[behind:].strip() else begin


def _is_meant(draft: Draft, known: AbstractSet[str] | None) -> bool:
    """Whether a call that is not quoted ends the reasoning, no matter what follows it."""
    return draft.check_name().is_good and (known is None or draft.name in known)
