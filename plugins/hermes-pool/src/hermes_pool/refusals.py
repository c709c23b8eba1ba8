"""What those who get no slot are told."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hermes_core.contracts.errors import BackendError, HermesError, NoPythonError, SandboxRefusedError
from hermes_pool.errors import HostStartTimeoutError, SlotUnavailableError
from hermes_pool.options import OptionNames
from hermes_pool.statistics import PoolStats

_PLAIN: Final = OptionNames()
_FINAL: Final = (SandboxRefusedError, NoPythonError)
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


def named(error: HermesError, label: str) -> HermesError:
    """Return a copy of an error of one member, of the same type, whose message begins with the member's name."""
    told = retold(error)
    assert isinstance(told, HermesError)
    HermesError.__init__(told, f"member {label} of the pool: {error.message}", hint=error.hint)
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
    """Return the error for a sandbox that no member of a pool can serve, with what is wrong with each.

    If all have refused for the same reason, such as an image without Python, it is of that type: no retry would help.
    """
    alike = (kind for kind in _FINAL if all(isinstance(error, kind) for error in failures.values()))
    return next(alike, BackendError)(
        f"no member of the pool can be used: {_list(failures)}",
        hint=_first_hint(failures.values()) or "hermes-core doctor tells what each backend lacks",
    )


def all_left(failures: Sequence[BaseException]) -> BaseException:
    """Return what is told of the hosts of all backends that could not be ended."""
    if len(failures) == 1:
        return failures[0]
    return BackendError("; ".join(message_of(error) for error in failures), hint=_first_hint(failures))


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
    failures: Mapping[str, BaseException],
    names: OptionNames = _PLAIN,
) -> SlotUnavailableError:
    """Return the error of a waiter in a queue that does not move, with what last failed at each member."""
    why = f"; last failures: {_list(failures)}" if failures else ""
    message = f"no slot of pool {stats.name!r} was given out or back within {timeout:g} s: {stats.summary()}{why}"
    return SlotUnavailableError(message, stats, hint=_first_hint(failures.values()) or _next_step(stats, names))


def no_offer(
    stats: PoolStats,
    timeout: float,
    failures: Mapping[str, BaseException],
    names: OptionNames = _PLAIN,
) -> SlotUnavailableError:
    """Return what somebody is told to whom no member of the pool has said in time whether it can serve him."""
    why = f": {_list(failures)}" if failures else ""
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


def _first_hint(failures: Iterable[BaseException]) -> str | None:
    return next((hint for error in failures if (hint := getattr(error, "hint", None))), None)


def _next_step(stats: PoolStats, names: OptionNames) -> str:
    if sum(stats.hosts.values()) >= stats.max_hosts:
        return _join(_FEWER, *names.advise_raising("max_hosts", "slots_per_host"))
    return _join("look at why hosts cannot be started", *names.advise_raising("acquire_timeout"))


def _list(failures: Mapping[str, BaseException]) -> str:
    return "; ".join(f"{label}: {message_of(error)}" for label, error in failures.items())


def _join(*steps: str) -> str:
    return ", or ".join(steps)
