"""What a registry knows besides its plugins: components, conflicts, failures of event listeners.

Kept apart from the records of plugins: a listing needs only those, and every dataclass costs start-up time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_core.discovery.installation.records import PluginRecord
    from hermes_core.specs import Declaration


class ComponentState(StrEnum):
    """How far a component was taken; `declared` ones have not been imported yet."""

    DECLARED = "declared"
    UNAVAILABLE = "unavailable"
    BROKEN = "broken"
    READY = "ready"


@dataclass(slots=True, kw_only=True)
class Component:
    """One declared component of one registry."""

    kind: str
    spec: Declaration
    plugin: PluginRecord
    state: ComponentState = ComponentState.DECLARED
    reason: str = ""
    is_checked: bool = False
    target: Any = None

    @property
    def label(self) -> str:
        """Kind and name, as written in a config."""
        return f"{self.kind}:{self.spec.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A name that several plugins declare and no `prefer` line settles."""

    kind: str
    name: str
    plugins: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventProblem:
    """Counts how often a plugin's hook raised or was slow; `message` and `seconds` are from the last time."""

    plugin: str
    hook: str
    kind: str
    count: int
    message: str
    seconds: float
