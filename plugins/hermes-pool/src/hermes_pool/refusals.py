"""The errors of waiters that get no slot."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from hermes_core.contracts.errors import BackendError, HermesError
from hermes_pool.errors import HostStartTimeoutError, SlotUnavailableError
from hermes_pool.options import OptionNames
from hermes_pool.statistics import PoolStats

Problem = TypeVar("Problem", bound=HermesError)
_PLAIN: Final = OptionNames()
_FEWER: Final = "run fewer rollouts at once (max_concurrent)"


def message_of(error: BaseException) -> str:
    """Return an error's message without its hint."""
    if isinstance(error, HermesError):
        return error.message
    return f"{type(error).__name__}: {error}"


def is_final(error: BaseException) -> bool:
    """Tell whether another start of a host would fail in the same way."""
    if isinstance(error, HermesError):
        return not error.retryable
    return not isinstance(error, OSError)


def copy_error(error: BaseException) -> BaseException:
    """Return a copy of an error for one of several waiters; one object would collect the tracebacks of all."""
    try:
        copied = copy.copy(error)
    except TypeError:  # its constructor takes more than `args` has
        copied = type(error).__new__(type(error), *error.args)
        copied.__dict__.update(vars(error))
    copied.__cause__ = error
    return copied


def with_member_name(error: HermesError, label: str) -> HermesError:
    """Return a copy of an error of one member, of the same type, whose message begins with the member's name."""
    return _with_message(error, f"member {label} of the pool: {error.message}")


def _with_message(error: Problem, message: str) -> Problem:
    copied = copy_error(error)
    assert isinstance(copied, type(error))
    HermesError.__init__(copied, message, hint=error.hint)
    return copied


def repeated_failure_error(name: str, failures: int, error: BaseException) -> BackendError:
    """Return the error after many failed starts in a row."""
    how_often = "the start of one failed" if failures == 1 else f"{failures} starts in a row have failed, the last"
    kind = HostStartTimeoutError if isinstance(error, HostStartTimeoutError) else BackendError
    failure = kind(
        f"pool {name!r} has no host of this kind: {how_often} with: {message_of(error)}",
        hint=getattr(error, "hint", None) or "run hermes-core doctor, which checks the backend",
    )
    failure.__cause__ = error
    return failure


def no_member_error(failures: Mapping[str, BaseException]) -> BackendError:
    """Return the error for a sandbox that no member of a pool can serve, with what is wrong with each.

    If all have refused it for good, as for an image without Python, it is of the first one's type: no retry would help.
    """
    message = f"no member of the pool can be used: {_list(failures)}"
    refusals = [error for error in failures.values() if isinstance(error, BackendError) and not error.retryable]
    if refusals and len(refusals) == len(failures):
        return _with_message(refusals[0], message)
    hint = _first_hint(failures.values()) or "run hermes-core doctor, which says what each backend lacks"
    return BackendError(message, hint=hint)


def hosts_left_error(failures: Sequence[BaseException]) -> BaseException:
    """Return one error for all hosts that could not be ended, on every member."""
    if len(failures) == 1:
        return failures[0]
    return BackendError("; ".join(message_of(error) for error in failures), hint=_first_hint(failures))


def late_start_error(name: str, seconds: float, names: OptionNames = _PLAIN) -> BackendError:
    """Return the failure of a member whose hosts do not start in time, while other members may serve the waiters."""
    return BackendError(
        f"no host of pool {name!r} has started within {seconds:.3g} s",
        hint=_join(
            "find out why its engine starts none",
            *(f"if that is its usual time, {step}" for step in names.advise_raising("acquire_timeout")),
        ),
    )


def start_timeout_error(name: str, seconds: float, names: OptionNames = _PLAIN) -> HostStartTimeoutError:
    """Return the error of a host whose start has taken longer than `start_timeout`."""
    return HostStartTimeoutError(
        f"a host of pool {name!r} was not started within {seconds:.3g} s",
        hint=_join(
            "find out why its engine does not answer",
            *(f"if its hosts take that long, {step}" for step in names.advise_raising("start_timeout")),
        ),
    )


def member_not_ready_error(name: str, seconds: float, names: OptionNames = _PLAIN) -> HostStartTimeoutError:
    """Return the error of a member that has a host, but did not get ready in time what a sandbox in it needs."""
    return HostStartTimeoutError(
        f"member {name!r} of the pool was not ready within {seconds:.3g} s",
        hint=_join(
            "find out what it waits for, such as an allocation",
            *(f"if that usually takes so long, {step}" for step in names.advise_raising("start_timeout")),
        ),
    )


def acquire_timeout_error(
    stats: PoolStats,
    timeout: float,
    failures: Mapping[str, BaseException],
    names: OptionNames = _PLAIN,
) -> SlotUnavailableError:
    """Return the error of a waiter in a queue that does not move, with what last failed at each member."""
    why = f"; last failures: {_list(failures)}" if failures else ""
    message = f"no slot of pool {stats.name!r} was given out or back within {timeout:g} s: {stats.summary()}{why}"
    return SlotUnavailableError(message, stats, hint=_first_hint(failures.values()) or _next_step(stats, names))


def no_offer_error(
    stats: PoolStats,
    timeout: float,
    failures: Mapping[str, BaseException],
    names: OptionNames = _PLAIN,
) -> SlotUnavailableError:
    """Return the error of a waiter that has got no offer from any member within `start_timeout`."""
    why = f": {_list(failures)}" if failures else ""
    return SlotUnavailableError(
        f"no member of pool {stats.name!r} has offered a host within {timeout:g} s{why}",
        stats,
        hint=_join("find out why their engines do not answer", *names.advise_raising("start_timeout")),
    )


def queue_full_error(stats: PoolStats, names: OptionNames = _PLAIN) -> SlotUnavailableError:
    """Return the error of a waiter that finds the queue full."""
    return SlotUnavailableError(
        f"the queue of pool {stats.name!r} is full: {stats.summary()}",
        stats,
        hint=_join(_FEWER, *names.advise_raising("max_waiting")),
    )


def _first_hint(failures: Iterable[BaseException]) -> str | None:
    return next((hint for error in failures if (hint := getattr(error, "hint", None))), None)


def _next_step(stats: PoolStats, names: OptionNames) -> str:
    if sum(stats.hosts.values()) >= stats.max_hosts:
        return _join(_FEWER, *names.advise_raising("max_hosts", "slots_per_host"))
    return _join("find out why hosts cannot be started", *names.advise_raising("acquire_timeout"))


def _list(failures: Mapping[str, BaseException]) -> str:
    return "; ".join(f"{label}: {message_of(error)}" for label, error in failures.items())


def _join(*steps: str) -> str:
    return ", or ".join(steps)
