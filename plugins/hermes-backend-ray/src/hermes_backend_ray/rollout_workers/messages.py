"""Messages between a run and its workers: pickles, as both sides have the same versions, and errors as plain values."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, Final, Literal

from hermes_core.contracts import errors
from hermes_core.contracts.engine import EngineRun
from hermes_core.contracts.errors import BackendError, HermesError, UserError
from hermes_core.contracts.rollout import RolloutOutcome
from hermes_runner import replacement_outcome

Kind = Literal["turn", "event", "note", "done", "raised", "cancelled"]
News = tuple[Kind, str, Any]
"""One message of a worker: its kind, its subject (a rollout, a hook, a key), and its content."""
Answer = tuple[bool, Any]
"""Whether a call succeeded, and its value, or the error as `describe_error` returns it."""
FIELDS: Final = ("type", "message", "hint", "fatal")


def pack(value: object) -> bytes:
    """Serialise a value without loss: floats, bytes and lone surrogates stay as they are."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def unpack(data: bytes) -> Any:
    """Read what the other side of the same run packed."""
    return pickle.loads(data)  # noqa: S301 - a worker runs our own code, and Ray itself pickles all messages


def pack_outcome(outcome: RolloutOutcome) -> bytes:
    """Serialise an outcome; if a plugin put an unserialisable value into it, return an outcome with that error."""
    try:
        return pack(outcome)
    except Exception as error:  # noqa: BLE001 - pickling runs code of arbitrary objects
        return pack(replacement_outcome(outcome, error))


def key_of(rollout_id: str, attempt: int) -> str:
    """Return the key of an attempt, for which one reply counts."""
    return f"{rollout_id}#{attempt}"


def describe_error(error: BaseException) -> dict[str, Any]:
    """Describe an error in plain values, because an exception's class need not survive pickling."""
    if isinstance(error, HermesError):
        return dict(zip(FIELDS, (type(error).__name__, error.message, error.hint, error.fatal), strict=True))
    text = f"{type(error).__name__}: {error}"
    return dict(zip(FIELDS, ("BackendError", text, None, False), strict=True))


def rebuilt(description: Mapping[str, Any], where: str) -> HermesError:
    """Return the described error again, with the worker it came from; a plugin's class becomes one of the core's."""
    name, message, hint, fatal = (description[field] for field in FIELDS)
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, HermesError) and kind.fatal == fatal):
        kind = UserError if fatal else BackendError
    made: HermesError = kind(f"{where}: {message}", hint=hint)
    return made


def orders(run: EngineRun, config: Mapping[str, Any]) -> bytes:
    """Pack what a worker needs to know about the run, without the run's secrets."""
    hooks = [hook for hook in run.registry.event_hooks if run.registry.listens(hook)]
    return pack({"run_id": run.run_id, "config": dict(config), "hooks": hooks})
