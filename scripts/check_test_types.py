"""Check the bodies of the tests with mypy, one folder at a time: every package has a `conftest.py` of its own.

Looser than for sources: a test needs no annotations, but what it calls must exist and fit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from workspace import ROOT

CONFIG = ROOT / "tests" / "mypy.ini"


def main(arguments: Sequence[str]) -> int:
    """Check every given folder that holds Python files; report all before failing."""
    results = [_check(Path(argument)) for argument in arguments if any(Path(argument).rglob("*.py"))]
    return max(results, default=0)


def _check(folder: Path) -> int:
    print(f"types of {folder}: ", end="", flush=True)
    command = [sys.executable, "-m", "mypy", "--config-file", str(CONFIG), str(folder)]
    # What several tests of a package share lies in `support/`, and is imported by its bare name; tests/ takes those of
    # hermes-tokens as well.
    supports = [str(folder / "support"), *map(str, sorted(folder.glob("*/support")))]
    places = dict.fromkeys([*supports, "plugins/hermes-tokens/tests/support"])
    variables = {**os.environ, "MYPYPATH": os.pathsep.join(places)}
    return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
