"""The log of a sandbox's requests to its proxy, and of the decisions about them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

_KEPT: Final = 256


@dataclass(slots=True)
class EgressDecision:
    """One request to the proxy; the bytes and seconds grow until its connection has ended.

    `host` is empty when the request could not be read. `sent` and `received` are counted from the sandbox's side and
    hold what has passed through the proxy: bodies and heads, and whatever CONNECT carries.
    """

    time: float
    host: str
    port: int
    allowed: bool
    reason: str
    sent: int = 0
    received: int = 0
    seconds: float = 0.0


class EgressLog:
    """The last decisions in full, and exact counts of all.

    Requests without the sandbox's password are only counted (`unauthorized`): they can come from others behind the same
    agent, who could else push the sandbox's own out of its record.
    """

    def __init__(self, *, kept: int = _KEPT) -> None:
        self._decisions: deque[EgressDecision] = deque(maxlen=kept)
        self.allowed = 0
        self.refused = 0
        self.unauthorized = 0
        self.sent = 0
        self.received = 0

    @property
    def decisions(self) -> Sequence[EgressDecision]:
        """The last decisions, oldest first."""
        return tuple(self._decisions)

    def add(self, decision: EgressDecision) -> None:
        """Add a decision; its bytes are counted with `count`."""
        self._decisions.append(decision)
        if decision.allowed:
            self.allowed += 1
        else:
            self.refused += 1

    def count(self, decision: EgressDecision, *, sent: int = 0, received: int = 0) -> None:
        """Count bytes of one decision."""
        decision.sent += sent
        decision.received += received
        self.sent += sent
        self.received += received

    def to_json(self) -> dict[str, Any]:
        """Return the record for the rollout; decisions beyond the last ones are counted as `omitted`."""
        return {
            "allowed": self.allowed,
            "refused": self.refused,
            "unauthorized": self.unauthorized,
            "sent": self.sent,
            "received": self.received,
            "omitted": self.allowed + self.refused - len(self._decisions),
            "decisions": [asdict(decision) for decision in self._decisions],
        }
