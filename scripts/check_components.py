"""Say which components that tests need are absent, and fail where one is, before suites skip what needs it.

Tries each component of the root conftest.py once. The list of skips that are allowed says which may be absent.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from check_skips import patterns

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from conftest import PROBES, skip_reason  # noqa: E402 - the tests' own look, beside no package


def main(arguments: Sequence[str]) -> int:
    """Print what was seen of each component; 1 where one is absent that the list does not name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--allowed", type=Path, required=True)
    options = parser.parse_args(arguments)
    allowed = patterns(options.allowed.read_text(encoding="utf-8"))
    refused = 0
    for name, probe in PROBES.items():
        seen = probe()
        said = skip_reason(name, seen or "")
        may = seen is None or any(pattern.fullmatch(said) for pattern in allowed)
        refused += not may
        print(f"component {name}: works" if seen is None else f"{said}{'' if may else '; NOT on the list'}")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
