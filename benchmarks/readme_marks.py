"""Results of a benchmark: printed, kept in a file, and written into a README or a page between two marks."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def between(readme: str, begin: str, end: str, text: str) -> str:
    """Return a README with this text between its marks; raises `ValueError` unless each mark occurs exactly once."""
    if readme.count(begin) != 1 or readme.count(end) != 1:
        raise ValueError(f"expected a README with {begin} and {end}, each once")
    before, _, rest = readme.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{text}\n{end}{after}"


def print_results(
    found: Mapping[str, Any], *, write: bool, results: Path, page: Path, with_figures: Callable[[str], str]
) -> None:
    """Print results as JSON; `write` also keeps them in a file, and then writes the page with their figures."""
    text = json.dumps(found, indent=2) + "\n"
    sys.stdout.write(text)
    if write:
        results.write_text(text, encoding="utf-8")
        page.write_text(with_figures(page.read_text(encoding="utf-8")), encoding="utf-8")
