"""Secrets that come back: an engine or a service may repeat in an error what it was given."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hermes_core.contracts.secrecy import WITHHELD

if TYPE_CHECKING:
    from hermes_core.contracts.errors import HermesError
    from hermes_core.contracts.rollout import Failure, RolloutOutcome

E = TypeVar("E", bound="HermesError")
_SHORTEST: Final = 6
"""Characters; what is shorter, as an `env` of `MODE: 1`, would be taken out of words that mean something else."""


class Discretion:
    """Takes known secrets out of what others say; what a model and its commands say is left as it is."""

    def __init__(self, secrets: Iterable[str]) -> None:
        long = sorted({text for text in secrets if len(text) >= _SHORTEST}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, long))) if long else None

    def text(self, text: str) -> str:
        """Return a text without them."""
        return text if self._pattern is None else self._pattern.sub(WITHHELD, text)

    def values(self, value: Any) -> Any:
        """Return plain values without them."""
        if self._pattern is None:
            return value
        if isinstance(value, Mapping):
            return {name: self.values(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.values(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def error(self, error: E) -> E:
        """Take them out of an error itself, and of those that caused it; returns it."""
        cause: BaseException | None = error
        seen: set[int] = set()
        while self._pattern is not None and cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            for name in ("message", "hint"):
                if isinstance(said := getattr(cause, name, None), str):
                    setattr(cause, name, self.text(said))
            cause.args = tuple(self.text(part) if isinstance(part, str) else part for part in cause.args)
            cause = cause.__cause__ or cause.__context__
        return error

    def outcome(self, outcome: RolloutOutcome) -> RolloutOutcome:
        """Return an outcome without them in its failures and its provenance."""
        if self._pattern is None:
            return outcome
        return dataclasses.replace(
            outcome,
            failure=self._failure(outcome.failure),
            reward_failure=self._failure(outcome.reward_failure),
            provenance=self.values(outcome.provenance),
        )

    def _failure(self, failure: Failure | None) -> Failure | None:
        return None if failure is None else dataclasses.replace(failure, message=self.text(failure.message))
