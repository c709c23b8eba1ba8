"""Check a component's requirements without importing anything."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from operator import eq, ge, gt, le, lt, ne
from typing import Final

_DISTRIBUTION: Final = re.compile(r"([A-Za-z0-9][\w.-]*)\s*((?:(?:[<>]=?|==|!=|~=)\s*[\w.+!*-]+\s*,?\s*)*)")
_CLAUSE: Final = re.compile(r"([<>]=?|==|!=|~=)\s*([\w.+!*-]+)")
_VERSION: Final = re.compile(r"v?(?:\d+!)?(\d+(?:\.\d+)*)(?:[._-]?(dev|a|b|c|rc|alpha|beta|pre|preview)[._-]?(\d*))?")
_STAGES: Final = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "c": -1, "rc": -1, "pre": -1, "preview": -1}
_COMPARISONS: Final = {">=": ge, "~=": ge, "<=": le, ">": gt, "<": lt, "==": eq, "!=": ne}

FORMS: Final = "dist:NAME[>=VERSION], bin:PROGRAM or env:VARIABLE"


def unmet_requirements(requires: Iterable[str], environ: Mapping[str, str]) -> list[str]:
    """Return what is missing, a line each with how to get it."""
    return [problem for item in requires if (problem := _problem(item, environ)) is not None]


def unreadable_requirements(requires: Iterable[str]) -> list[str]:
    """Return the requirements that have none of the known forms."""
    return [item for item in requires if not _is_readable(item)]


def _is_readable(item: str) -> bool:
    kind, _, rest = item.partition(":")
    if kind == "dist":
        return _DISTRIBUTION.fullmatch(rest) is not None
    return kind in {"bin", "env"} and bool(rest) and not rest.isspace()


def _problem(item: str, environ: Mapping[str, str]) -> str | None:
    kind, _, rest = item.partition(":")
    if kind == "bin":
        return None if shutil.which(rest, path=environ.get("PATH")) else f"the program {rest!r} is not on PATH"
    if kind == "env":
        return None if environ.get(rest) else f"the environment variable {rest} is not set"
    return _distribution_problem(rest)


def _distribution_problem(requirement: str) -> str | None:
    from hermes_core.discovery.installation.distributions import installed_version

    match = _DISTRIBUTION.fullmatch(requirement)
    assert match is not None, "declarations with unreadable requirements do not load"
    name, clauses = match.groups()
    installed = installed_version(name)
    if installed is None:
        return f"the package {name} is not installed (pip install '{requirement}')"
    if not all(_satisfies(installed, operator, version) for operator, version in _CLAUSE.findall(clauses)):
        return f"expected package {name} {clauses.strip()}, got {installed} (pip install '{requirement}')"
    return None


def _satisfies(installed: str, operator: str, wanted: str) -> bool:
    if wanted.endswith(".*"):
        parts = wanted[:-2].split(".")
        is_same = [str(part) for part in _key(installed)[0]][: len(parts)] == parts
        return is_same if operator == "==" else not is_same
    fixed = _key(wanted)[0][:-1] if operator == "~=" else []
    return _key(installed)[0][: len(fixed)] == fixed and _COMPARISONS[operator](_order(installed), _order(wanted))


def _key(version: str) -> tuple[list[int], int, int]:
    match = _VERSION.match(version)
    if match is None:
        return [], 0, 0
    return [int(part) for part in match[1].split(".")], _STAGES.get(match[2] or "", 0), int(match[3] or 0)


def _order(version: str) -> tuple[list[int], int, int]:
    release, stage, number = _key(version)
    while release[-1:] == [0]:
        release.pop()  # 1.0 is 1
    return release, stage, number
