"""No committed file names a package index or a path of somebody's machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from workspace import ROOT

# Each is split, so that this file does not hold what it looks for.
INDEX_HOSTS = ("py|pi.org/simple", "files.python|hosted.org", "registry.np|mjs.org", "deb.|debian.org")
INDEX_OPTIONS = (r"index|-url[ =]+\S*//", r"find|-links[ =]+(https?|file)://")
MACHINE_PATHS = (
    r"/ho|me/[a-z]+/",
    r"/Us|ers/[a-z]+/",
    r"/ro|ot/\.",
    r"/wo|rk/main",
    r"/wo|rk/shared",
    r"/wo|rk/\.library",
)


def _committed_files() -> list[Path]:
    """Return the files git knows; a tree without git, such as an unpacked archive, is taken whole."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not any(part.startswith(".venv") for part in path.parts)]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def _hits(pattern: str) -> list[str]:
    expression = re.compile(pattern.replace("|", "", 1))
    hits = []
    for path in _committed_files():
        text = path.read_text(encoding="utf-8", errors="replace")
        hits += [f"{path.relative_to(ROOT)}: {match.group()}" for match in expression.finditer(text)]
    return hits


@pytest.mark.parametrize("pattern", [*INDEX_HOSTS, *INDEX_OPTIONS])
def test_no_committed_file_names_a_package_index(pattern: str):
    assert _hits(pattern) == []


@pytest.mark.parametrize("pattern", MACHINE_PATHS)
def test_no_committed_file_names_a_path_of_one_machine(pattern: str):
    assert _hits(pattern) == []


def test_no_lock_file_of_uv_is_committed():
    # It records the index it was made with; requirements/*.txt hold the same pins without.
    assert not [path for path in _committed_files() if path.name == "uv.lock"]


@pytest.mark.parametrize("name", ["run.txt", "dev.txt"])
def test_every_pin_has_a_version_and_hashes(name: str):
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    entries = [entry for entry in re.split(r"\n(?=[A-Za-z0-9])", text) if not entry.startswith("#")]
    assert entries
    assert [entry for entry in entries if not re.match(r"[\w.-]+==\S+ .*?--hash=sha256:", entry, re.DOTALL)] == []
