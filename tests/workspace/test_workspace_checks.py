"""The checks themselves: each finding can be provoked, and what is fine stays unmentioned."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import check_skips
import check_style
import pytest
from workspace import ROOT

REFUSED = {
    "an except that swallows everything": ("try:\n    f()\nexcept Exception:\n    pass\n", "broad except"),
    "a bare except": ("try:\n    f()\nexcept:\n    pass\n", "broad except"),
    "a broad one among several": ("try:\n    f()\nexcept (OSError, Exception):\n    pass\n", "broad except"),
    "a lint code that is no reason": ("try:\n    f()\nexcept Exception:  # noqa: BLE001\n    x = 1\n", "broad except"),
    "a suppression without a reason": ("import os  # noqa: F401\n", "needs its reason"),
    "an ignored type error without a reason": ("x: int = 'a'  # type: ignore[assignment]\n", "needs its reason"),
    "an assignment to the environment": ("import os\nos.environ['A'] = 'b'\n", "process environment"),
    "a deletion from the environment": ("import os\ndel os.environ['A']\n", "process environment"),
    "a default put into the environment": ("import os\nos.environ.setdefault('A', 'b')\n", "process environment"),
    "the imported mapping": ("from os import environ\nenviron.update(A='b')\n", "process environment"),
    "putenv": ("import os\nos.putenv('A', 'b')\n", "process environment"),
    "a long function": ("def f():\n" + "    x = 1\n" * 60, "function f has 61 lines"),
    "a long file": ("x = 1\n" * 451, "451 lines, at most 450"),
}
ACCEPTED = {
    "a reason on the line": "try:\n    f()\nexcept Exception:  # noqa: BLE001 - the plugin boundary\n    pass\n",
    "a reason above it": "try:\n    f()\n# Whatever a plugin raises is recorded.\nexcept Exception:\n    x = 1\n",
    "cleaning up and raising on": "try:\n    f()\nexcept BaseException:\n    g()\n    raise\n",
    "a narrow except": "try:\n    f()\nexcept OSError:\n    pass\n",
    "a suppression with its reason": "import os  # noqa: F401 - re-exported\n",
    "reading the environment": "import os\nx = os.environ.get('A')\ny = {**os.environ}\n",
    "a mapping of that name elsewhere": "sandbox.environ['A'] = 'b'\n",
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_ruff_has_no_rule_for_is_found(tmp_path: Path, text: str, message: str):
    path = tmp_path / "module.py"
    path.write_text(text, encoding="utf-8")
    assert message in "\n".join(check_style.check(path))


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_what_has_its_reason_passes(tmp_path: Path, text: str):
    path = tmp_path / "module.py"
    path.write_text(text, encoding="utf-8")
    assert list(check_style.check(path)) == []


def test_a_file_name_that_says_nothing_is_refused(tmp_path: Path):
    path = tmp_path / "_helpers.py"
    path.write_text("", encoding="utf-8")
    (finding,) = check_style.check(path)
    assert "the name says nothing" in finding


def _pytest(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on one file under the repository's own conftest.py, with no program on PATH."""
    shutil.copy(ROOT / "conftest.py", folder / "conftest.py")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    component(name): needs it\n", encoding="utf-8")
    (folder / "test_it.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env={"PATH": str(folder)})


def test_a_test_whose_component_is_absent_is_skipped_with_what_was_seen(tmp_path: Path):
    result = _pytest(tmp_path, "import pytest\n@pytest.mark.component('docker')\ndef test_it():\n    assert False\n")
    assert "1 skipped" in result.stdout
    assert "component docker: docker is not installed" in result.stdout


def test_a_component_that_is_installed_but_refuses_is_absent(tmp_path: Path):
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\necho 'cannot connect to the daemon' >&2\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    result = _pytest(tmp_path, "import pytest\n@pytest.mark.component('docker')\ndef test_it():\n    assert False\n")
    assert "docker exited with 1: cannot connect to the daemon" in result.stdout


def test_a_test_whose_component_works_runs(tmp_path: Path):
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    program.chmod(0o755)
    result = _pytest(tmp_path, "import pytest\n@pytest.mark.component('docker')\ndef test_it():\n    pass\n")
    assert "1 passed" in result.stdout


def test_an_unknown_component_is_an_error(tmp_path: Path):
    result = _pytest(tmp_path, "import pytest\n@pytest.mark.component('doker')\ndef test_it():\n    pass\n")
    assert result.returncode != 0
    assert "component('doker') is unknown" in result.stdout + result.stderr


def test_a_skip_that_is_not_on_the_list_fails_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = (
        "import pytest\n"
        "def test_listed():\n    pytest.skip('component docker: no engine')\n"
        "def test_other():\n    pytest.skip('did not feel like it')\n"
        "@pytest.mark.xfail(reason='known')\ndef test_expected():\n    assert False\n"
    )
    report, allowed = tmp_path / "report.xml", tmp_path / "allowed.txt"
    _pytest(tmp_path, text, f"--junit-xml={report}")
    allowed.write_text("# No engine in CI.\ncomponent docker: .*\n", encoding="utf-8")
    assert check_skips.main(["--allowed", str(allowed), str(report)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"skips: 2 in all, 1 not on the list {allowed}",
        "  test_it::test_other: did not feel like it",
    ]
    allowed.write_text("component docker: .*\ndid not feel like it\n", encoding="utf-8")
    assert check_skips.main(["--allowed", str(allowed), str(report)]) == 0


def test_the_reason_of_a_module_that_is_skipped_whole_is_read_from_its_text(tmp_path: Path) -> None:
    report, allowed = tmp_path / "tests.xml", tmp_path / "allowed.txt"
    text = "(&apos;/tests/test_a.py&apos;, 5, &apos;Skipped: jax is not installed&apos;)"
    skipped = f'<skipped message="collection skipped">{text}</skipped>'
    report.write_text(f'<testsuite><testcase name="test_a">{skipped}</testcase></testsuite>')

    allowed.write_text("jax is not installed\n")
    assert check_skips.main(["--allowed", str(allowed), str(report)]) == 0
    allowed.write_text("collection skipped\n")
    assert check_skips.main(["--allowed", str(allowed), str(report)]) == 1
