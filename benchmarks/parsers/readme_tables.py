"""Write the generated tables of hermes-parsers' README from the catalog and the committed results.

Usage: python -m benchmarks.parsers.readme_tables
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.parsers import behaviours, speed
from benchmarks.readme_marks import between

README = Path(__file__).parents[2] / "hermes_parsers" / "README.md"


def formats() -> str:
    """List every format with all its names and its stop tokens."""
    from hermes_parsers import FAMILIES

    lines = ["| names | models and format | stop tokens |", "|---|---|---|"]
    for family in FAMILIES:
        names = ", ".join(f"`{name}`" for name in family.names)
        cells = names, family.summary, _stops(family.names[0])
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def _stops(name: str) -> str:
    from hermes_core.contracts.parsing import StoppingParser
    from hermes_parsers import get_parser

    if name == "response_template":
        return "the tokenizer's"
    parser = get_parser(name)
    tokens = parser.stop_tokens if isinstance(parser, StoppingParser) else ()
    return ", ".join(f"`{token}`" for token in tokens) or "-"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def tables() -> dict[str, str]:
    """Return every generated table by its mark."""
    return {
        "formats": formats(),
        "behaviours": behaviours.table(json.loads(behaviours.RESULTS.read_text(encoding="utf-8"))),
        "speed": speed.table(json.loads(speed.RESULTS.read_text(encoding="utf-8"))),
    }


def with_tables(readme: str) -> str:
    """Return a README with each table in its place."""
    for mark, text in tables().items():
        begin, end = f"<!-- {mark}: begin, written by benchmarks/parsers/readme_tables.py -->", f"<!-- {mark}: end -->"
        readme = between(readme, begin, end, text)
    return readme


def main() -> int:
    """Rewrite the README."""
    README.write_text(with_tables(README.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
