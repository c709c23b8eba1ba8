"""CI looks for components before its suites would skip their tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from workspace import ROOT


def look(allowed: Path) -> subprocess.CompletedProcess[str]:
    """Look where no program is found."""
    environ = {**os.environ, "PATH": "", "HERMES_TEST_APPTAINER": ""}
    command = [sys.executable, str(ROOT / "scripts" / "check_components.py"), "--allowed", str(allowed)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("pattern", "code", "said"), [("", 1, "docker is not installed; NOT on the list"), (".+", 0, "")]
)
def test_an_absent_component_fails_unless_the_list_of_skips_allows_it(
    tmp_path: Path, pattern: str, code: int, said: str
):
    allowed = tmp_path / "allowed.txt"
    allowed.write_text(pattern)
    done = look(allowed)
    assert (done.returncode, done.stderr) == (code, "")
    assert "component docker: docker is not installed" in done.stdout
    assert said in done.stdout
