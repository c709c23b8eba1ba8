"""Removes secrets from texts of others: an engine or a service may repeat its configuration in an error."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hermes_core.contracts.errors import HermesError
from hermes_core.redaction.secrets import WITHHELD

if TYPE_CHECKING:
    from hermes_core.contracts.rollout import Failure, RolloutOutcome

E = TypeVar("E", bound=HermesError)
_SHORTEST: Final = 8
"""Characters. Shorter values, such as an `env` of `MODE: test`, would be cut out of unrelated words."""


class SecretScrubber:
    """Removes known secrets from errors and records; output of models and commands is not changed."""

    def __init__(self, secrets: Iterable[str]) -> None:
        long = sorted({text for text in secrets if len(text) >= _SHORTEST}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, long))) if long else None

    def text(self, text: str) -> str:
        """Return a text without the secrets."""
        return text if self._pattern is None else self._pattern.sub(WITHHELD, text)

    def values(self, value: Any) -> Any:
        """Return JSON values without the secrets."""
        if self._pattern is None:
            return value
        if isinstance(value, Mapping):
            return {name: self.values(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.values(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def error(self, error: E) -> E:
        """Remove the secrets from an error and its causes, in place; returns the error."""
        if self._pattern is None:
            return error
        self._reword(error)
        seen: set[int] = set()
        effect: BaseException | None = error
        while effect is not None and id(effect) not in seen:
            seen.add(id(effect))
            effect = self._clear(effect)
        return error

    def _clear(self, effect: BaseException) -> BaseException | None:
        """Remove the secrets from the causes that are shown with an error; returns the cause."""
        cause = effect.__cause__ or effect.__context__
        if cause is None or not self._repeats(cause):
            return cause
        self._reword(cause)
        if self._repeats(cause):
            # Its text is not in its arguments; its other attributes can be anything, and can be read-only.
            cause = _substitute(cause, self.text(_description(cause)))
        if effect.__cause__ is None:
            effect.__context__ = cause
        else:
            effect.__cause__ = cause
        return cause

    def _reword(self, error: BaseException) -> None:
        for name in ("message", "hint") if isinstance(error, HermesError) else ():
            if isinstance(said := getattr(error, name, None), str):
                setattr(error, name, self.text(said))
        with contextlib.suppress(AttributeError, TypeError):
            error.args = tuple(self.text(part) if isinstance(part, str) else part for part in error.args)

    def _repeats(self, error: BaseException) -> bool:
        return self._pattern is not None and self._pattern.search(_description(error)) is not None

    def outcome(self, outcome: RolloutOutcome) -> RolloutOutcome:
        """Return an outcome without the secrets in its failures and its provenance."""
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


class RewordedError(Exception):
    """Replaces an error that repeats a secret which cannot be removed from it."""


def _substitute(error: BaseException, text: str) -> RewordedError:
    other = RewordedError(text).with_traceback(error.__traceback__)
    other.__cause__, other.__context__ = error.__cause__, error.__context__
    other.__suppress_context__ = error.__suppress_context__
    return other


def _description(error: BaseException) -> str:
    """Return what is printed of an error without its causes: text, notes, and the members of a group."""
    import traceback

    is_group = isinstance(error, BaseExceptionGroup)
    return "".join(traceback.format_exception(type(error), error, None, chain=is_group)).strip()
