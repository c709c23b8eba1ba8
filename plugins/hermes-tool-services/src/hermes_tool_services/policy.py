"""The policy that an environment sets and a model cannot change: network, isolation and timeouts."""

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
"""Seconds beyond a call's own timeout after which it is abandoned; a lost sandbox is reported earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The permissions of a trajectory's commands."""

    allow_network: bool = True
    require_sandbox: bool = False
    require_stateful_sandbox: bool = False

    @property
    def needs_isolation(self) -> bool:
        """Whether isolation is needed; without isolation the network cannot be blocked."""
        return self.require_sandbox or self.require_stateful_sandbox or not self.allow_network

    def words(self) -> dict[str, bool]:
        """Return the arguments that override those of the model."""
        return {name: getattr(self, name) for name in sorted(POLICY_WORDS)}

    def apply(self, spec: SandboxSpec, levels: tuple[str, ...] | None) -> SandboxSpec:
        """Return the sandbox spec with the policy; `levels` are the backend's declared isolation levels, if known.

        Raises:
            SandboxRefusedError: Isolation is required but the backend has none.
        """
        fields: dict[str, Any] = {}
        if not self.allow_network:
            fields["network"] = "none"
        if self.needs_isolation and spec.isolation in {None, "none"}:
            fields["isolation"] = _isolating(levels, spec.isolation)
        return dataclasses.replace(spec, **fields)

    def violation(self, provenance: Mapping[str, Any]) -> str | None:
        """Return how an open sandbox violates the policy, or None. No call runs in such a sandbox."""
        if self.needs_isolation and provenance.get("isolation", "none") == "none":
            return "Isolation is required, and this sandbox has none"
        if not self.allow_network and provenance.get("network", "full") != "none":
            return "No network is allowed, and this sandbox has one"
        return None


def timeout_of(given: Any, asked: Any, default: float) -> float:
    """Return a call's timeout in seconds: the given one, or the model's, both limited to 1 … 600, or the default.

    A value that is not a finite number counts as not given.
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
        why = "isolation 'none' was requested" if asked == "none" else "the backend has none"
        raise SandboxRefusedError(
            f"isolation is required (require_sandbox, or allow_network: false), and {why}",
            hint="use a backend with isolation, set its isolation, or relax the policy",
        )
    return cast("IsolationLevel", found)
