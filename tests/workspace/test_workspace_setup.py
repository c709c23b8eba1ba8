"""The set-up of the private environment, on a small workspace of its own that needs no package index."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from workspace import ROOT

STATE = "hermes-setup.json"
# A build backend in the package's own folder: an editable install is a .pth file in a wheel.
BACKEND = """
import pathlib, zipfile

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    name = "one-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory, name), "w") as archive:
        archive.writestr("one.pth", str(pathlib.Path("src").resolve()) + "\\n")
        info = "one-0.1.0.dist-info"
        archive.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: one\\nVersion: 0.1.0\\n")
        archive.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(info + "/RECORD", "")
    return name
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "one"
version = "0.1.0"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a workspace of one package without requirements."""
    root = tmp_path / "workspace"
    (root / "scripts").mkdir(parents=True)
    for name in ("setup_env.py", "workspace.py"):
        shutil.copy(ROOT / "scripts" / name, root / "scripts" / name)
    (root / "requirements").mkdir()
    for name in ("run.txt", "dev.txt", "bare.txt"):
        (root / "requirements" / name).write_text("# nothing\n", encoding="utf-8")
    (root / "pyproject.toml").write_text('[tool.uv.workspace]\nmembers = ["one"]\n', encoding="utf-8")
    source = root / "one" / "src" / "one"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("", encoding="utf-8")
    (root / "one" / "backend.py").write_text(BACKEND, encoding="utf-8")
    (root / "one" / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    return root


def _set_up(root: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "scripts" / "setup_env.py"), "--venv", str(root / "env"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def _imports(root: Path) -> bool:
    command = [str(root / "env" / "bin" / "python"), "-c", "import one"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def test_a_second_call_does_nothing_and_a_changed_package_is_installed_again(root: Path):
    first = _set_up(root)
    assert (first.returncode, "ready" in first.stderr) == (0, True), first.stderr
    assert _imports(root)
    assert _set_up(root).stderr == ""
    assert _set_up(root, "--group", "run").stderr == ""
    with (root / "one" / "pyproject.toml").open("a", encoding="utf-8") as project:
        project.write('description = "changed"\n')
    again = _set_up(root)
    assert "installing one" in again.stderr
    assert "making" not in again.stderr


def test_pip_installs_what_uv_could_not(root: Path, tmp_path: Path):
    wheel = tmp_path / "uv-0.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        program = zipfile.ZipInfo("uv-0.1.data/scripts/uv")
        program.external_attr = 0o100755 << 16
        archive.writestr(program, "#!/bin/sh\necho no index in reach >&2; exit 2\n")
        archive.writestr("uv-0.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: uv\nVersion: 0.1\n")
        archive.writestr("uv-0.1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("uv-0.1.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    pins = f"# pins\nuv==0.1 \\\n    --hash=sha256:{digest}\n"
    (root / "requirements" / "dev.txt").write_text(pins, encoding="utf-8")
    result = _set_up(root, env={**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)})
    assert result.returncode == 0, result.stderr
    assert "no index in reach\nsetup: uv could not install them" in result.stderr
    assert _imports(root)


def test_an_interrupted_set_up_starts_over(root: Path):
    environment = root / "env"
    environment.mkdir()
    note = {"interpreter": "x", "pins": "", "packages": "", "groups": [], "made_here": True, "busy": True}
    (environment / STATE).write_text(json.dumps(note), encoding="utf-8")
    (environment / "half-written").write_text("", encoding="utf-8")
    result = _set_up(root)
    assert result.returncode == 0, result.stderr
    assert "unfinished" in result.stderr
    assert not (environment / "half-written").exists()
    assert _imports(root)


def test_parallel_calls_make_one_environment(root: Path):
    command = [sys.executable, str(root / "scripts" / "setup_env.py"), "--venv", str(root / "env")]
    calls = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = "".join(call.communicate()[1] for call in calls)
    assert [call.returncode for call in calls] == [0, 0]
    assert said.count("setup: making") == 1
    assert said.count("setup: ready") == 1


def test_a_folder_that_is_no_environment_is_left_alone(root: Path):
    (root / "env").mkdir()
    (root / "env" / "thesis.txt").write_text("mine", encoding="utf-8")
    result = _set_up(root)
    assert result.returncode == 1
    assert "is not a virtual environment" in result.stderr
    assert "hint:" in result.stderr
    assert (root / "env" / "thesis.txt").read_text(encoding="utf-8") == "mine"


def test_an_environment_made_by_hand_is_used_and_never_removed(root: Path):
    subprocess.run([sys.executable, "-m", "venv", str(root / "env")], check=True)
    (root / "env" / "mine").write_text("", encoding="utf-8")
    assert "made by hand" in _set_up(root).stderr
    (root / "requirements" / "dev.txt").write_text("# other pins\n", encoding="utf-8")
    assert _set_up(root).returncode == 0
    assert (root / "env" / "mine").exists()
    assert _imports(root)


@pytest.mark.parametrize("installer", ["pip", "none"])
def test_a_python_without_ensurepip_falls_back_or_says_what_to_install(root: Path, tmp_path: Path, installer: str):
    # As on a Debian without python3-venv: `venv` runs `ensurepip` with -I in the new environment, so the module is
    # taken away by a stand-in for the interpreter that refuses it, and, in the second case, refuses pip as well.
    refused = {"pip": "*ensurepip*", "none": "*ensurepip*|*pip*"}[installer]
    script = root / "scripts" / "setup_env.py"
    text = script.read_text(encoding="utf-8")
    wrapper = tmp_path / "python3"
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in "-m venv --clear"*) ;; "-m venv "*) exit 1 ;; {refused}) exit 1 ;; esac\n'
        f'exec {sys.executable} "$@"\n',
        encoding="utf-8",
    )
    wrapper.chmod(0o755)
    script.write_text(text.replace("sys.executable, ", f'"{wrapper}", '), encoding="utf-8")
    result = _set_up(root, env={**os.environ, "PATH": "/usr/bin:/bin"})
    assert "no ensurepip" in result.stderr
    if installer == "pip":
        assert result.returncode == 0, result.stderr
        assert _imports(root)
    else:
        assert result.returncode == 1
        assert "apt-get install python3-venv" in result.stderr
        assert not (root / "env").exists()


def _fake(folder: Path, name: str, version: str) -> None:
    path = folder / name
    verdict = 0 if tuple(map(int, version.split("."))) >= (3, 11) else 1
    path.write_text(f'#!/bin/sh\ncase "$2" in *print*) echo {version} ;; *) exit {verdict} ;; esac\n', encoding="utf-8")
    path.chmod(0o755)


def _find(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", str(ROOT / "scripts" / "find_python.sh")]
    variables = {"PATH": str(folder), **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables)


def test_a_newer_python_is_found_beside_an_old_python3(tmp_path: Path):
    _fake(tmp_path, "python3", "3.9.2")
    _fake(tmp_path, "python3.12", "3.12.1")
    assert _find(tmp_path).stdout.strip() == str(tmp_path / "python3.12")


def test_a_python_that_is_only_a_name_is_passed_over(tmp_path: Path):
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    (tmp_path / "python3").chmod(0o755)
    _fake(tmp_path, "python3.11", "3.11.9")
    assert _find(tmp_path).stdout.strip() == str(tmp_path / "python3.11")


def test_too_old_a_python_is_named_with_what_to_install(tmp_path: Path):
    _fake(tmp_path, "python3", "3.9.2")
    result = _find(tmp_path)
    assert result.returncode == 1
    assert "3.11 or newer is needed; found: python3=3.9.2" in result.stderr
    assert "apt-get install" in result.stderr


def test_the_python_somebody_chose_is_the_only_candidate(tmp_path: Path):
    _fake(tmp_path, "python3", "3.13.0")
    _fake(tmp_path, "python3.12", "3.12.1")
    assert _find(tmp_path, PYTHON="python3.12").stdout.strip() == str(tmp_path / "python3.12")


def test_the_requirements_of_an_example_are_installed_once_and_again_when_they_change(root: Path):
    example = root / "example.txt"
    example.write_text("# nothing\n", encoding="utf-8")
    arguments = ("--group", "run", "--also", str(example))
    assert "installing" in _set_up(root, *arguments).stderr
    assert "example.txt" not in _set_up(root, *arguments).stderr
    example.write_text("# still nothing\n", encoding="utf-8")
    assert f"installing {example}" in _set_up(root, *arguments).stderr
