"""What a registry knows besides its plugins: components, conflicts, trouble with events.

Apart from the records of plugins because a listing needs those alone, and every dataclass costs start-up time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_core.discovery.installation.records import PluginRecord
    from hermes_core.specs import Declaration


class ComponentState(StrEnum):
    """How far a component came; `declared` ones have not been imported yet."""

    DECLARED = "declared"
    UNAVAILABLE = "unavailable"
    BROKEN = "broken"
    READY = "ready"


@dataclass(slots=True, kw_only=True)
class Component:
    """One declared component of one registry; it has been checked once its requirements were evaluated."""

    kind: str
    spec: Declaration
    plugin: PluginRecord
    state: ComponentState = ComponentState.DECLARED
    reason: str = ""
    is_checked: bool = False
    target: Any = None

    @property
    def label(self) -> str:
        """Kind and name, as the config writes them."""
        return f"{self.kind}:{self.spec.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A name that several plugins declare and no `prefer` line settles."""

    kind: str
    name: str
    plugins: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventProblem:
    """A plugin's hook that raised or was slow, counted; `message` and `seconds` are of the last time."""

    plugin: str
    hook: str
    kind: str
    count: int
    message: str
    seconds: float
