"""What those who get no slot are told."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Final

from hermes_core.contracts.errors import BackendError, HermesError
from hermes_pool.errors import HostStartTimeoutError, SlotUnavailableError
from hermes_pool.options import OptionNames
from hermes_pool.statistics import PoolStats

_PLAIN: Final = OptionNames()
_FEWER: Final = "run fewer rollouts at once (max_concurrent)"


def message_of(error: BaseException) -> str:
    """Return an error's message without its hint."""
    if isinstance(error, HermesError):
        return error.message
    return f"{type(error).__name__}: {error}"


def is_final(error: BaseException) -> bool:
    """Tell whether starting a host again would come to the same."""
    if isinstance(error, HermesError):
        return not error.retryable
    return not isinstance(error, OSError)


def retold(error: BaseException) -> BaseException:
    """Return an error for one of several who are told it; one object would collect the traceback of each."""
    try:
        told = copy.copy(error)
    except TypeError:  # it cannot be made again from its text
        told = BackendError(message_of(error))
    told.__cause__ = error
    return told


def gave_up(name: str, failures: int, error: BaseException) -> BackendError:
    """Return what those who wait are told after many failed starts in a row."""
    how_often = "the start of one failed" if failures == 1 else f"{failures} starts in a row have failed, the last"
    kind = HostStartTimeoutError if isinstance(error, HostStartTimeoutError) else BackendError
    told = kind(
        f"pool {name!r} has no host of this kind: {how_often} with: {message_of(error)}",
        hint=getattr(error, "hint", None) or "the backend's own words say what failed; hermes-core doctor checks it",
    )
    told.__cause__ = error
    return told


def all_failed(failures: Mapping[str, BaseException]) -> BackendError:
    """Return what is told where no member of a pool works, by what is wrong with each."""
    hints = (hint for error in failures.values() if (hint := getattr(error, "hint", None)))
    return BackendError(
        f"no member of the pool can be used: {_list(failures)}",
        hint=next(hints, "hermes-core doctor tells what each backend lacks"),
    )


def all_left(failures: Sequence[BaseException]) -> BaseException:
    """Return what is told of the hosts of all backends that could not be ended."""
    if len(failures) == 1:
        return failures[0]
    hints = (hint for error in failures if (hint := getattr(error, "hint", None)))
    return BackendError("; ".join(message_of(error) for error in failures), hint=next(hints, None))


def is_late(name: str, seconds: float, names: OptionNames = _PLAIN) -> BackendError:
    """Return what those are told who need not wait for a host that does not start, because others may have one."""
    return BackendError(
        f"no host of pool {name!r} has started within {seconds:.3g} s",
        hint=_join(
            "look at why its engine starts none",
            *(f"where that is its usual time, {step}" for step in names.advise_raising("acquire_timeout")),
        ),
    )


def start_given_up(name: str, seconds: float, names: OptionNames = _PLAIN) -> HostStartTimeoutError:
    """Return why a host that does not start is given up."""
    return HostStartTimeoutError(
        f"a host of pool {name!r} was not started within {seconds:.3g} s",
        hint=_join(
            "look at why its engine does not answer",
            *(f"where hosts take that long, {step}" for step in names.advise_raising("start_timeout")),
        ),
    )


def not_ready(name: str, seconds: float, names: OptionNames = _PLAIN) -> HostStartTimeoutError:
    """Return why a member is passed over that has a host, but not what a sandbox in it needs."""
    return HostStartTimeoutError(
        f"member {name!r} of the pool was not ready within {seconds:.3g} s",
        hint=_join(
            "look at what it waits for, as an allocation",
            *(f"where that takes so long, {step}" for step in names.advise_raising("start_timeout")),
        ),
    )


def too_late(
    stats: PoolStats,
    timeout: float,
    failure: BaseException | None,
    names: OptionNames = _PLAIN,
) -> SlotUnavailableError:
    """Return what somebody is told who waits in a queue that does not move."""
    why = "" if failure is None else f"; the last start of a host failed: {message_of(failure)}"
    message = f"no slot of pool {stats.name!r} was given out or back within {timeout:g} s: {stats.summary()}{why}"
    return SlotUnavailableError(message, stats, hint=_next_step(stats, failure, names))


def no_offer(
    stats: PoolStats,
    timeout: float,
    troubles: Mapping[str, BaseException],
    names: OptionNames = _PLAIN,
) -> SlotUnavailableError:
    """Return what somebody is told to whom no member of the pool has said in time whether it can serve him."""
    why = f": {_list(troubles)}" if troubles else ""
    return SlotUnavailableError(
        f"no member of pool {stats.name!r} has offered a host within {timeout:g} s{why}",
        stats,
        hint=_join("look at why their engines do not answer", *names.advise_raising("start_timeout")),
    )


def too_many(stats: PoolStats, names: OptionNames = _PLAIN) -> SlotUnavailableError:
    """Return what somebody is told for whom the queue has no place."""
    return SlotUnavailableError(
        f"the queue of pool {stats.name!r} is full: {stats.summary()}",
        stats,
        hint=_join(_FEWER, *names.advise_raising("max_waiting")),
    )


def _next_step(stats: PoolStats, failure: BaseException | None, names: OptionNames) -> str:
    if isinstance(failure, HermesError) and failure.hint:
        return failure.hint
    if sum(stats.hosts.values()) >= stats.max_hosts:
        return _join(_FEWER, *names.advise_raising("max_hosts", "slots_per_host"))
    return _join("look at why hosts cannot be started", *names.advise_raising("acquire_timeout"))


def _list(failures: Mapping[str, BaseException]) -> str:
    return "; ".join(f"{label}: {message_of(error)}" for label, error in failures.items())


def _join(*steps: str) -> str:
    return ", or ".join(steps)
