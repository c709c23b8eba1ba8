"""What the environment decides and a model never does: network, isolation, and how long a call may take."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_core.contracts.sandbox import IsolationLevel, SandboxSpec
from hermes_tools.agent_tools import POLICY_WORDS

SHORTEST: Final = 1.0
LONGEST: Final = 600.0
DEFAULT_TIMEOUT: Final = 30.0
MARGIN: Final = 30.0
"""Seconds beyond a call's own timeout after which it is given up; a lost sandbox says so before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a trajectory's commands may do."""

    allow_network: bool = True
    require_sandbox: bool = False
    require_stateful_sandbox: bool = False

    @property
    def needs_isolation(self) -> bool:
        """Whether a plain process of the machine is not enough; without isolation no network can be kept away."""
        return self.require_sandbox or self.require_stateful_sandbox or not self.allow_network

    def words(self) -> dict[str, bool]:
        """Return the arguments that take the place of whatever a model wrote."""
        return {name: getattr(self, name) for name in sorted(POLICY_WORDS)}

    def apply(self, spec: SandboxSpec, levels: tuple[str, ...] | None) -> SandboxSpec:
        """Return what the sandbox must be; `levels` are those that its backend declares, if they are known.

        Raises:
            SandboxRefusedError: Isolation is required and the backend has none.
        """
        fields: dict[str, Any] = {}
        if not self.allow_network:
            fields["network"] = "none"
        if self.needs_isolation and spec.isolation in {None, "none"}:
            fields["isolation"] = _isolating(levels, spec.isolation)
        return dataclasses.replace(spec, **fields)

    def violation(self, provenance: Mapping[str, Any]) -> str | None:
        """Say in what a sandbox that exists falls short; None if in nothing. Nothing is run in one that does."""
        if self.needs_isolation and provenance.get("isolation", "none") == "none":
            return "Isolation is required, and this sandbox has none"
        if not self.allow_network and provenance.get("network", "full") != "none":
            return "No network is allowed, and this sandbox has one"
        return None


def timeout_of(given: Any, asked: Any, default: float) -> float:
    """Return a call's timeout in seconds: the given one, else the model's, both within 1 … 600, else the default.

    What is no finite number counts as not given.
    """
    for seconds in (given, asked):
        if isinstance(seconds, int | float) and not isinstance(seconds, bool) and abs(seconds) < float("inf"):
            return min(LONGEST, max(SHORTEST, float(seconds)))
    return default


def _isolating(levels: tuple[str, ...] | None, asked: str | None) -> IsolationLevel:
    if levels is None:
        return "container"
    found = next((level for level in levels if level != "none"), None)
    if found is None or asked == "none":
        why = "isolation 'none' is asked for" if asked == "none" else "the backend offers none"
        raise SandboxRefusedError(
            f"isolation is required (require_sandbox, or allow_network: false), and {why}",
            hint="choose a backend that isolates, or an isolation of its own, or relax the policy",
        )
    return cast("IsolationLevel", found)
