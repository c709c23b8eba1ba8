"""The packages of this workspace, read from the members that the root pyproject.toml names.

Standard library only: the set-up runs it before anything is installed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Package:
    """One distribution of the workspace and where it lies."""

    folder: Path
    data: dict[str, Any]

    @property
    def name(self) -> str:
        """The distribution's name in its normal form."""
        return normalized(self.data["project"]["name"])

    @property
    def import_name(self) -> str:
        """The one package under `src/`."""
        (source,) = [path for path in (self.folder / "src").iterdir() if (path / "__init__.py").is_file()]
        return source.name

    @property
    def version(self) -> str:
        """The static version."""
        return str(self.data["project"]["version"])

    @property
    def dependencies(self) -> list[str]:
        """What every user of the package gets."""
        return list(self.data["project"].get("dependencies", []))

    @property
    def extras(self) -> dict[str, list[str]]:
        """What a user may ask for besides, by the extra's name."""
        return dict(self.data["project"].get("optional-dependencies", {}))

    @property
    def test_dependencies(self) -> list[str]:
        """What the package's own tests need besides the shared test runner (dependency group `test`)."""
        return list(self.data.get("dependency-groups", {}).get("test", []))


def packages(root: Path = ROOT) -> tuple[Package, ...]:
    """Return every member of the workspace, in the order of the members' patterns, then by folder name."""
    folders = [folder for pattern in _members(root) for folder in sorted(root.glob(pattern))]
    return tuple(Package(folder, _toml(folder / "pyproject.toml")) for folder in folders if _is_package(folder))


def normalized(name: str) -> str:
    """Return a distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_name(requirement: str) -> str:
    """Return the normalized name a requirement line starts with."""
    match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", requirement.strip())
    if match is None:
        message = f"not a requirement: {requirement!r}"
        raise ValueError(message)
    return normalized(match.group())


def third_party(root: Path = ROOT, *, for_tests: bool = False) -> Iterator[str]:
    """Yield what the packages require, at run time or besides for their tests, that is no package of this workspace.

    Tests see all extras: what they bring is tested like everything else. What the root pyproject.toml calls heavy, the
    demo does without.
    """
    members = packages(root)
    own = {package.name for package in members}
    heavy = set(_toml(root / "pyproject.toml").get("tool", {}).get("hermes", {}).get("heavy", []))
    for package in members:
        late = package.dependencies if package.name in heavy else []
        extras = [line for lines in package.extras.values() for line in lines]
        tests = [*package.test_dependencies, *extras, *late]
        lines = tests if for_tests else [line for line in package.dependencies if line not in late]
        yield from (line for line in lines if requirement_name(line) not in own)


def _members(root: Path) -> list[str]:
    return list(_toml(root / "pyproject.toml")["tool"]["uv"]["workspace"]["members"])


def _is_package(folder: Path) -> bool:
    return (folder / "pyproject.toml").is_file()


def _toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))
