"""The Nomad job of this process; each group of it is one container."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hermes_backend_nomad.api import NomadApi
from hermes_backend_nomad.failures import (
    ContainerStartError,
    NomadAccessError,
    NomadAnswerError,
    NomadError,
    NomadUnreachableError,
)
from hermes_backend_nomad.reading import newest, placement_error, why_not_running
from hermes_core.cancellation import run_uncancelled

_FIRST_LOOK: Final = 0.05
_SLOWEST_LOOK: Final = 1.0
"""Seconds between polls when Nomad answers a blocking query at once without a change."""
_TRIES: Final = 3
"""Failed queries in a row before the waiting starts fail."""
_UNANSWERED: Final = (NomadUnreachableError, NomadAnswerError)
"""Failures that leave the job unchanged."""


@dataclass(frozen=True, slots=True)
class _Start:
    """A starting group: the evaluation that places it, its image, and the future of its allocation."""

    since: int
    image: str
    running: asyncio.Future[Mapping[str, Any]]


class Fleet:
    """The containers of one process, as groups of one job.

    The job exists while it has groups. It is scaled by registering it with other groups, never by Nomad's scale
    request, which is refused during a deployment. Concurrent changes are registered together.

    Args:
        api: The API of Nomad.
        job_id: The job's id.
        describe: Builds the job's description from its groups.
        start_timeout: Seconds within which a new container must run.
        purge: Whether to remove the job from Nomad when it has no groups left.
    """

    def __init__(
        self,
        api: NomadApi,
        job_id: str,
        describe: Callable[[list[Mapping[str, Any]]], Mapping[str, Any]],
        *,
        start_timeout: float,
        purge: bool,
    ) -> None:
        self.job_id = job_id
        self.begin: Callable[[], Awaitable[None]] = _nothing
        """Called before the job is first registered, and again after it has ended."""
        self.end: Callable[[], Awaitable[None]] = _nothing
        """Called when the job has certainly ended."""
        self._api = api
        self._describe = describe
        self._start_timeout = start_timeout
        self._purge = purge
        self._groups: dict[str, Mapping[str, Any]] = {}
        self._numbers = itertools.count(1)
        self._lock = asyncio.Lock()
        self._wanted = 0
        self._registered = 0
        self._exists = False
        self._held: set[str] = set()
        """The groups that may be registered at Nomad."""
        self._evaluation = 0
        self._starting: dict[str, _Start] = {}
        self._watching: asyncio.Task[None] | None = None

    def next_name(self) -> str:
        """Return a new group name, never used before in the job."""
        return f"sandbox-{next(self._numbers)}"

    async def start(self, group: Mapping[str, Any], *, image: str) -> Mapping[str, Any]:
        """Add a group and return its allocation once it runs; leave nothing behind on failure.

        Raises:
            NomadError: It does not start, for Nomad's reason.
            DriverConfigError: It can never start.
        """
        name = group["Name"]
        self._groups[name] = group
        try:
            since = await self._apply()
            async with asyncio.timeout(self._start_timeout):
                return await self._await_running(name, since, image)
        except TimeoutError as error:
            await run_uncancelled(self.stop(name))
            raise ContainerStartError(
                f"{name} of job {self.job_id} did not start within {self._start_timeout:g} s",
                hint="raise start_timeout for large images; nomad job status shows what it waits for",
            ) from error
        except BaseException:
            await run_uncancelled(self.stop(name))
            raise

    async def stop(self, name: str) -> None:
        """Remove a group from the job, which ends only its allocation; a missing group is not an error."""
        self._groups.pop(name, None)
        if name in self._held:
            await self._apply()

    async def aclose(self) -> None:
        """End the job if it may still exist: a registration may have succeeded without an answer."""
        self._groups.clear()
        if self._watching is not None:
            self._watching.cancel()
        if self._exists:
            await self._apply()

    async def _apply(self) -> int:
        """Register the job's present groups; return the index of the evaluation that applies them."""
        self._wanted += 1
        mine = self._wanted
        await asyncio.sleep(0)  # collect other changes of the same loop iteration
        async with self._lock:
            if self._registered < mine:
                upcoming = self._wanted
                await (self._register() if self._groups else self._deregister())
                self._registered = upcoming
            return self._evaluation

    async def _register(self) -> None:
        first = not self._exists
        if first:
            await self.begin()
        self._exists = True
        before, groups = self._held, dict(self._groups)
        self._held = before | set(groups)
        try:
            answer = await self._api.register(self._describe(list(groups.values())))
        except _UNANSWERED:
            self._held = before
            if first:
                self._exists = False
                await self.end()
            raise
        self._held = set(groups)
        self._evaluation = int(answer["EvalCreateIndex"])

    async def _deregister(self) -> None:
        if self._exists:
            await self._api.deregister(self.job_id, purge=self._purge)
            self._exists, self._held = False, set()
            await self.end()

    async def _await_running(self, name: str, since: int, image: str) -> Mapping[str, Any]:
        start = _Start(since, image, asyncio.get_running_loop().create_future())
        self._starting[name] = start
        if self._watching is None or self._watching.done():
            self._watching = asyncio.ensure_future(self._watch())
        try:
            return await start.running
        finally:
            del self._starting[name]

    async def _watch(self) -> None:
        """Watch all starting groups with one blocking query at a time."""
        index, pause, silent = 0, _FIRST_LOOK, 0
        try:
            while self._starting:
                try:
                    found, new = await self._api.allocations(self.job_id, after=index)
                    await self._look(found)
                except NomadError as error:
                    # One failed query is not a failed start of all watched groups.
                    silent += 1
                    if isinstance(error, NomadAccessError) or silent >= _TRIES:
                        raise
                    await asyncio.sleep(_SLOWEST_LOOK)
                    continue
                silent = 0
                # A lower index comes from another server.
                is_news, index = new > index, new if new >= index else 0
                pause = _FIRST_LOOK if is_news else min(_SLOWEST_LOOK, pause * 1.5)
                if not is_news:
                    await asyncio.sleep(pause)
        except asyncio.CancelledError:
            self._tell_all(ContainerStartError(f"job {self.job_id} is being ended"))
            raise
        except Exception as error:  # noqa: BLE001 - after any error all waiters get it
            self._tell_all(error)

    def _tell_all(self, error: Exception) -> None:
        for start in self._starting.values():
            _settle(start.running, error)

    async def _look(self, allocations: Sequence[Mapping[str, Any]]) -> None:
        waiting = [(name, start) for name, start in self._starting.items() if not start.running.done()]
        found = {name: newest(allocations, name) for name, _ in waiting}
        evaluations = await self._api.evaluations(self.job_id) if None in found.values() else ()
        for name, start in waiting:
            allocation = found[name]
            if allocation is None:
                reason = placement_error(evaluations, name, start.since)
            elif allocation["ClientStatus"] == "running" and allocation["DesiredStatus"] == "run":
                _settle(start.running, allocation)
                continue
            else:
                reason = why_not_running(allocation, image=start.image)
            if reason is not None:
                _settle(start.running, reason)


def _settle(future: asyncio.Future[Mapping[str, Any]], result: Mapping[str, Any] | Exception) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


async def _nothing() -> None:
    return None
