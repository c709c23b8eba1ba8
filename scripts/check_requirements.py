"""Check what the packages require: siblings bounded on both sides, and pins in requirements/*.txt that still fit."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version
from workspace import ROOT, Package, packages, requirement_name, third_party


def main(arguments: Sequence[str]) -> int:
    """Check the workspace, by default the one this script lies in."""
    root = Path(arguments[0]) if arguments else ROOT
    findings = [*sibling_findings(packages(root)), *pin_findings(root)]
    print(*findings, sep="\n", end="\n" if findings else "")
    print(f"requirements: {len(findings)} findings")
    return 1 if findings else 0


def sibling_findings(members: Sequence[Package]) -> Iterator[str]:
    """Yield every requirement on a package of this workspace that is unbounded or excludes the version in the tree."""
    versions = {member.name: member.version for member in members}
    for member in members:
        lines = [*member.dependencies, *member.test_dependencies, *(r for rs in member.extras.values() for r in rs)]
        for requirement in map(Requirement, lines):
            version = versions.get(requirement_name(requirement.name))
            if version is None:
                continue
            operators = {part.operator for part in requirement.specifier}
            if not (operators & {">=", ">"} and operators & {"<", "<="}) and not operators & {"==", "~="}:
                yield f"{member.name}: `{requirement}` needs a lower and an upper bound, for example >=0.1,<0.2"
            elif not requirement.specifier.contains(version, prereleases=True):
                yield f"{member.name}: `{requirement}` excludes the version in this tree, {version}"


def pin_findings(root: Path) -> Iterator[str]:
    """Yield every run-time requirement that the committed pins do not satisfy."""
    for name in ("run.txt", "dev.txt"):
        pins = pinned(root / "requirements" / name)
        for requirement in map(Requirement, third_party(root)):
            found = pins.get(requirement_name(requirement.name), [])
            if not any(requirement.specifier.contains(version, prereleases=True) for version in found):
                shown = ", ".join(map(str, found)) or "nothing"
                yield f"requirements/{name}: `{requirement}` is wanted, {shown} is pinned; run `make lock`"


def pinned(path: Path) -> dict[str, list[Version]]:
    """Return the pinned versions by name; one name has several where they differ by platform or Python."""
    pins: dict[str, list[Version]] = {}
    for match in re.finditer(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", path.read_text(encoding="utf-8"), re.MULTILINE):
        pins.setdefault(requirement_name(match[1]), []).append(Version(match[2]))
    return pins


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
