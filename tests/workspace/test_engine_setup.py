"""What `make engine` says before it installs anything, and that no other command runs its tests."""

from __future__ import annotations

import subprocess
import sys

import pytest
from setup_engine import VERSION, EngineError, install, is_complete, unsuitable
from workspace import ROOT


@pytest.mark.parametrize(
    ("machine", "flags", "words"),
    [("aarch64", "", "got aarch64"), ("x86_64", "sse avx avx2", "AVX-512"), ("x86_64", "avx512vl", "AVX-512")],
)
def test_a_machine_that_cannot_run_the_engine_is_told_what_it_lacks(machine, flags, words):
    assert words in unsuitable(machine, f"flags : {flags}\n")


def test_a_machine_with_the_instructions_lacks_nothing():
    assert unsuitable("x86_64", "flags : sse avx512f avx512vl\n") is None


@pytest.mark.parametrize("build", ["", "+cpu"])
def test_an_environment_that_has_this_version_is_left_alone(tmp_path, build):
    record = tmp_path / "lib" / "python3.11" / "site-packages" / f"vllm-{VERSION}{build}.dist-info" / "RECORD"
    assert not is_complete(tmp_path)
    record.parent.mkdir(parents=True)
    record.touch()
    before = sorted(tmp_path.rglob("*"))
    install(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_environment_of_somebody_else_that_lacks_it_is_not_changed(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "venv").symlink_to(tmp_path / "theirs")
    with pytest.raises(EngineError, match="remove the link"):
        install(tmp_path / "venv")
    assert list((tmp_path / "theirs").iterdir()) == []


def test_no_other_command_collects_the_tests_of_the_engine():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "engine",
        "tests",
    ]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert "test_engine_setup.py" in found
    assert "tests/engine/" not in found
