"""Name the tests that failed in the last run, if they are few enough to be run once more by themselves.

A machine that runs many tests at once can hold one of them up for longer than it waits. What passes alone is
unsteady: it does not fail a run, and the run names it, since it is to be mended all the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FEW: Final = 3
"""More than so many failures have a cause, which a second look would only delay."""


def main(arguments: Sequence[str]) -> int:
    """Print the tests, one a line; 1 if there are none, or too many."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, help="where pytest keeps its cache")
    failed = last_failed(parser.parse_args(arguments).root)
    print(*failed, sep="\n")
    return 0 if worth_a_second_look(failed) else 1


def last_failed(root: Path) -> list[str]:
    """Return what pytest noted as failed; nothing if it noted nothing."""
    noted = root / ".pytest_cache" / "v" / "cache" / "lastfailed"
    return sorted(json.loads(noted.read_text(encoding="utf-8"))) if noted.exists() else []


def worth_a_second_look(failed: Sequence[str]) -> bool:
    """Tell whether they are few, and tests: a module that cannot be collected has no load to blame."""
    return 0 < len(failed) <= FEW and all("::" in test for test in failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
