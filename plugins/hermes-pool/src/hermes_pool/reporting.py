"""What those who get no slot are told."""

from __future__ import annotations

import copy

from hermes_core.contracts.errors import BackendError, HermesError
from hermes_pool.errors import SlotUnavailableError
from hermes_pool.statistics import PoolStats


def said(error: BaseException) -> str:
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
        told = BackendError(said(error))
    told.__cause__ = error
    return told


def gave_up(name: str, failures: int, error: BaseException) -> BackendError:
    """Return what those who wait are told after many failed starts in a row."""
    how_often = "the start of one failed" if failures == 1 else f"{failures} starts in a row have failed, the last"
    told = BackendError(
        f"pool {name!r} has no host of this kind: {how_often} with: {said(error)}",
        hint=getattr(error, "hint", None) or "the backend's own words say what failed; hermes-core doctor checks it",
    )
    told.__cause__ = error
    return told


def too_late(stats: PoolStats, timeout: float, failure: BaseException | None) -> SlotUnavailableError:
    """Return what somebody is told whose time has run out."""
    why = "" if failure is None else f"; the last start of a host failed: {said(failure)}"
    message = f"no slot of pool {stats.name!r} within {timeout:g} s: {stats.summary()}{why}"
    return SlotUnavailableError(message, stats, hint=_next_step(stats, failure))


def too_many(stats: PoolStats) -> SlotUnavailableError:
    """Return what somebody is told for whom the queue has no place."""
    return SlotUnavailableError(
        f"the queue of pool {stats.name!r} is full: {stats.summary()}",
        stats,
        hint="run fewer rollouts at once (max_concurrent), or raise max_waiting",
    )


def _next_step(stats: PoolStats, failure: BaseException | None) -> str:
    if isinstance(failure, HermesError) and failure.hint:
        return failure.hint
    if stats.hosts.get("starting"):
        return "hosts are still starting: raise acquire_timeout"
    if sum(stats.hosts.values()) >= stats.max_hosts:
        return "raise max_hosts or slots_per_host, or run fewer rollouts at once (max_concurrent)"
    return "raise acquire_timeout, or look at why hosts cannot be started"
