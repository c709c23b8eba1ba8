"""Groups failures by cause: what failed, who is to blame, and the message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

OTHER_MESSAGES: Final = "(other messages)"
_MAX_KEPT: Final = 500
_MAX_SHOWN: Final = 20
_MAX_MESSAGE: Final = 500

_Key = tuple[str, str, str, str]


@dataclass(slots=True)
class _Group:
    count: int
    message: str
    rollout_id: str


class FailureGroups:
    """Counts failures by phase, blame, type and the first line of the message.

    The first 500 kinds have separate groups. Further messages share one group for each phase, blame and type, so memory
    is bounded and the counts add up.
    """

    def __init__(self) -> None:
        self._groups: dict[_Key, _Group] = {}

    def add(self, phase: str, failure: Mapping[str, Any], rollout_id: str) -> None:
        """Count one failure; the first of a kind is its example."""
        blame, kind = str(failure.get("blame")), str(failure.get("type"))
        message = str(failure.get("message"))[:_MAX_MESSAGE]
        first_line, _, _ = message.partition("\n")
        if (phase, blame, kind, first_line) not in self._groups and len(self._groups) >= _MAX_KEPT:
            first_line = message = OTHER_MESSAGES
        group = self._groups.setdefault((phase, blame, kind, first_line), _Group(0, message, rollout_id))
        group.count += 1

    def most_common(self) -> list[dict[str, Any]]:
        """Return up to 20 groups, the most frequent first; no type gets a second one before each type has one."""
        ranked, by_type = sorted(self._groups.items(), key=lambda item: (-item[1].count, item[0])), Counter[Any]()
        places: dict[_Key, int] = {}
        for key, _ in ranked:
            places[key] = by_type[key[:3]]
            by_type[key[:3]] += 1
        chosen = sorted(ranked, key=lambda item: places[item[0]])[:_MAX_SHOWN]
        chosen.sort(key=lambda item: (-item[1].count, places[item[0]], item[0]))
        return [
            {"phase": phase, "blame": blame, "type": kind, "count": group.count}
            | {"message": group.message, "rollout_id": group.rollout_id}
            for (phase, blame, kind, _), group in chosen
        ]

    def more(self) -> dict[str, int]:
        """Return how many kinds `most_common` leaves out, and how many failures those are."""
        left = sum(group.count for group in self._groups.values()) - sum(group["count"] for group in self.most_common())
        return {"kinds": max(0, len(self._groups) - _MAX_SHOWN), "count": left}
