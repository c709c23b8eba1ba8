"""Fail when a test was skipped for a reason that is not on the committed list.

Reads pytest's junit xml files. The list holds one regular expression a line, which must match the whole reason; what
stands behind it on lines starting with `#` says why the skip is acceptable.
"""

from __future__ import annotations

import argparse
import re
import sys
import xml.etree.ElementTree as ET
from ast import literal_eval
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element


def main(arguments: Sequence[str]) -> int:
    """Compare the reports with the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--allowed", type=Path, required=True)
    parser.add_argument("reports", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    allowed = patterns(options.allowed.read_text(encoding="utf-8"))
    found = [skip for report in options.reports for skip in skips(report)]
    refused = [skip for skip in found if not any(pattern.fullmatch(skip[1]) for pattern in allowed)]
    print(f"skips: {len(found)} in all, {len(refused)} not on the list {options.allowed}")
    for test, reason in refused:
        print(f"  {test}: {reason}")
    return 1 if refused else 0


def patterns(text: str) -> list[re.Pattern[str]]:
    """Return the list's expressions."""
    lines = (line.strip() for line in text.splitlines())
    return [re.compile(line, re.DOTALL) for line in lines if line and not line.startswith("#")]


def skips(report: Path) -> Iterator[tuple[str, str]]:
    """Yield test and reason of every skip; expected failures are no skips."""
    # The report was written by our own pytest a moment ago.
    for case in ET.parse(report).getroot().iter("testcase"):
        for skipped in case.iter("skipped"):
            if skipped.get("type") != "pytest.xfail":
                yield f"{case.get('classname')}::{case.get('name')}", reason(skipped)


def reason(skipped: Element) -> str:
    """Return why; of a module that was skipped whole, the message says only that, and the text ends with the reason."""
    message = skipped.get("message") or ""
    if message == "collection skipped":
        return str(literal_eval(skipped.text or "''")[-1]).removeprefix("Skipped: ")
    return message


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
