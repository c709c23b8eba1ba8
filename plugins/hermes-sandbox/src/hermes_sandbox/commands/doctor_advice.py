"""Advice on what to type next if a backend does not work."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from hermes_core.discovery import package_for, unmet_requirements
from hermes_sandbox.backend.options import UNBOUNDED

if TYPE_CHECKING:
    from hermes_sandbox.backend.probing import Finding

_PROGRAMS: Final = {"srun": "apt-get install slurm-client, or `module load slurm`, or go to a login node"}
"""How to get a program. The first program that a backend requires represents all of them."""
_MODULE: Final = re.compile(r"the module '([^']+)', which it needs, is not installed")
_OPTION: Final = re.compile(r"^the options of backend:(\S+) are wrong: (\S+) is missing$")
_UNSET: Final = re.compile(r" is missing$| has no address,|^the pool has no backend$")
_NOT_FETCHED: Final = re.compile(r"^image (\S+) is not (?:on the engine|in the cache)")
_EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "ssh": {"host": "HOST", "user": "USER"},
    "ray": {"address": "auto"},
    "pool": {"backends": [{"backend": "docker", "options": {"image": "python:3.11"}}]},
}
"""Options without which a backend cannot be tried."""


def missing(name: str, requires: Iterable[str], environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return what is missing of a backend's requirements and what to type, or None if nothing is."""
    programs = [item.removeprefix("bin:") for item in requires if item.startswith("bin:")]
    absent = [program for program in programs if unmet_requirements((f"bin:{program}",), environ)]
    if absent:
        said = f"the program {absent[0]} is not on PATH"
        if absent[1:]:
            said = f"the programs {', '.join(absent)} are not on PATH"
        return said, _PROGRAMS.get(absent[0], f"install {absent[0]}, or add its directory to PATH")
    if problems := unmet_requirements((item for item in requires if not item.startswith("bin:")), environ):
        said, _, command = problems[0].partition(" (")
        return said, command.removesuffix(")") or f"hermes-core plugins show backend:{name}"
    return None


def advice(finding: Finding, options: Mapping[str, Any]) -> str | None:
    """Return what to type next: the backend's own hint, or a command if options are missing."""
    if _MODULE.search(finding.detail):
        return f"pip install {package_for('backend', finding.backend) or _MODULE.findall(finding.detail)[0]}"
    if not options and finding.backend in _EXAMPLES and _UNSET.search(finding.detail):
        example = json.dumps(_EXAMPLES[finding.backend])
        return f"hermes-core doctor {finding.backend} --backend-options '{example}'"
    if not options and (image := _NOT_FETCHED.match(finding.detail)):
        example = json.dumps({"image": image[1]})
        return f"hermes-core doctor {finding.backend} --backend-options '{example}' fetches it, or your run's own"
    if absent := _OPTION.match(finding.detail):
        return f"set the option {absent[2]} of {absent[1]}; its page in docs/backends has all of them"
    return finding.hint


def unbounded_advice(finding: Finding, others: Iterable[Finding]) -> tuple[str, str]:
    """Return a message about a level without a process limit, and what to do about it."""
    said = f"nothing bounds them: {(finding.processes or '').removeprefix(UNBOUNDED)}"
    same = (one for one in others if one.backend == finding.backend)
    bounded = [one.isolation for one in same if (one.processes or "")[:1].isdecimal()]
    if bounded:
        return said, f"--isolation {bounded[0]}, where they are bounded"
    return said, "its page in docs/backends says where they are bounded"
