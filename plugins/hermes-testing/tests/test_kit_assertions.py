"""Failures in a suite show the compared values: pytest rewrites the assertions of all modules, at every depth."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MUTANTS = Path(__file__).parent / "mutants"
CASES = {
    "lease_store_mutants.py::TestHoldsNothing::test_a_lease_is_held_until_it_is_given_up": (
        "suites/lease_store.py",
        "At index 0 diff: 0 != 2",
    ),
    "parser/parser_mutants.py::TestStripsContent::test_plain_text_is_unchanged": (
        "suites/parser/calls.py",
        "At index 0 diff: 'leading and trailing' != '  leading and trailing  '",
    ),
}


def test_a_failing_assertion_of_a_suite_shows_its_values(tmp_path):
    tests = [str(MUTANTS / test) for test in CASES]
    command = [sys.executable, "-m", "pytest", *tests, "-c", str(MUTANTS / "pytest.ini"), "--tb=short"]
    path = os.pathsep.join([str(MUTANTS), str(MUTANTS / "parser"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert [shown for case in CASES.values() for shown in case if shown not in done.stdout] == []
