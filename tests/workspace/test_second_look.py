"""The second look at tests that failed beside others: few of them, by themselves, and told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from workspace import ROOT

UNSTEADY = """
from pathlib import Path

def test_unsteady():
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError

def test_steady():
    pass
"""


def _run_pytest(root: Path, source: str, *options: str) -> int:
    (root / "test_some.py").write_text(source, encoding="utf-8")
    (root / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "--rootdir", str(root), *options]
    return subprocess.run(command, cwd=root, capture_output=True, check=False).returncode


def _second_look(root: Path) -> tuple[int, list[str]]:
    command = [sys.executable, str(ROOT / "scripts" / "second_look.py"), str(root)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    return result.returncode, result.stdout.split()


def test_what_failed_once_is_named_and_only_it_is_run_again(tmp_path: Path):
    assert _run_pytest(tmp_path, UNSTEADY) == 1
    assert _second_look(tmp_path) == (0, ["test_some.py::test_unsteady"])
    assert _run_pytest(tmp_path, UNSTEADY, "--last-failed", "--last-failed-no-failures=none") == 0
    assert _second_look(tmp_path)[0] == 1, "nothing is left to look at"


def test_what_fails_again_stays_failed(tmp_path: Path):
    broken = "def test_broken():\n    raise AssertionError\n"
    assert _run_pytest(tmp_path, broken) == 1
    assert _second_look(tmp_path)[0] == 0
    assert _run_pytest(tmp_path, broken, "--last-failed", "--last-failed-no-failures=none") == 1


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("def test_fine():\n    pass\n", id="none-failed"),
        pytest.param("import nothing_of_this_name\n", id="a-module-that-cannot-be-collected"),
        pytest.param("".join(f"def test_{n}():\n    raise AssertionError\n" for n in range(4)), id="too-many"),
    ],
)
def test_no_second_look_is_taken_where(source: str, tmp_path: Path):
    _run_pytest(tmp_path, source)
    assert _second_look(tmp_path)[0] == 1
