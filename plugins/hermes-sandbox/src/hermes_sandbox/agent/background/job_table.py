"""The background processes of a slot, and the operations on them."""

from __future__ import annotations

import errno
import os
import time

from hermes_sandbox.agent.background.jobs import Job
from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAX_RUNNING_JOBS = 64
MAX_ENDED_JOBS = 64
KEEP_ENDED_JOBS = 1800.0
"""Seconds that an ended process is kept."""


class Jobs:
    """The running processes, and recently ended ones."""

    def __init__(self, slot: Any, clock: Callable[[], float] = time.time) -> None:
        self._slot = slot
        self._clock = clock
        self._count = 0
        self._jobs: dict[str, Job] = {}
        self._dropped: list[Job] = []

    def start(self, request: dict[str, Any], command: bytes) -> Job:
        """Start one more."""
        if sum(job.running for job in self._jobs.values()) >= MAX_RUNNING_JOBS:
            raise BlockingIOError(errno.EAGAIN, f"{MAX_RUNNING_JOBS} background processes are running already")
        self._count += 1
        # Not a number that restarts after a reset, so that no old name can mean a new process.
        job = Job(self._slot, f"job_{os.urandom(6).hex()}", f"{self._slot.marker}.j{self._count}")
        job.start(request, command)
        self._jobs[job.name] = job
        return job

    def find(self, name: str) -> Job:
        """Return one by its name."""
        self._prune()
        job = self._jobs.get(name)
        if job is None:
            raise ProcessLookupError(errno.ESRCH, f"no background process {name!r}")
        return job

    def listing(self) -> list[dict[str, Any]]:
        """Describe all, oldest first."""
        self._prune()
        return [job.describe() for job in self._jobs.values()]

    def _prune(self) -> None:
        ended = sorted((job for job in self._jobs.values() if not job.running), key=lambda job: job.ended_at or 0.0)
        surplus = len(ended) - MAX_ENDED_JOBS
        oldest = self._clock() - KEEP_ENDED_JOBS
        for index, job in enumerate(ended):
            if index < surplus or (job.ended_at or 0.0) < oldest:
                job.release()
                self._dropped.append(self._jobs.pop(job.name))

    def busy(self) -> bool:
        """Tell whether any process is running: then the slot is not idle."""
        return any(job.running for job in self._jobs.values())

    def close(self) -> None:
        """Close all of them."""
        for job in [*self._jobs.values(), *self._dropped]:
            job.close()


def jobs_of(slot: Any) -> Jobs:
    """Return the slot's processes."""
    jobs: Jobs = slot.features.setdefault("jobs", Jobs(slot))
    return jobs


def _start_job(slot: Any, request: dict[str, Any], body: bytes, answer: Any) -> Callable[[], None]:
    # Not one of CALLS: those act as the slot's user, who cannot switch users for a new process.
    answer(jobs_of(slot).start(request, body).describe())
    return lambda: None


def _list_jobs(slot: Any, _request: dict[str, Any], _body: bytes) -> dict[str, Any]:
    return {"jobs": jobs_of(slot).listing()}


def _poll_job(slot: Any, request: dict[str, Any], _body: bytes) -> dict[str, Any]:
    return jobs_of(slot).find(request["job"]).describe()


def _read_job(slot: Any, request: dict[str, Any], _body: bytes, answer: Any) -> Callable[[], None]:
    # Not one of CALLS either: those cannot answer with a body.
    answer(*jobs_of(slot).find(request["job"]).read(request["offset"], request["limit"]))
    return lambda: None


def _wait_for_job(slot: Any, request: dict[str, Any], _body: bytes, answer: Any) -> Callable[[], None]:
    return jobs_of(slot).find(request["job"]).wait(request["timeout"], answer)


def _write_to_job(slot: Any, request: dict[str, Any], body: bytes, answer: Any) -> Callable[[], None]:
    return jobs_of(slot).find(request["job"]).write(body, answer)


def _kill_job(slot: Any, request: dict[str, Any], _body: bytes, answer: Any) -> Callable[[], None]:
    return jobs_of(slot).find(request["job"]).kill(request["grace"], answer)


def _close_job(slot: Any, request: dict[str, Any], _body: bytes) -> dict[str, Any]:
    jobs_of(slot).find(request["job"]).close_input()
    return {}


def _resize_job(slot: Any, request: dict[str, Any], _body: bytes) -> dict[str, Any]:
    jobs_of(slot).find(request["job"]).resize(request["rows"], request["cols"])
    return {}


CALLS = {"job_list": _list_jobs, "job_poll": _poll_job, "job_close": _close_job, "job_resize": _resize_job}
WAITS = {
    "job_start": _start_job,
    "job_read": _read_job,
    "job_wait": _wait_for_job,
    "job_write": _write_to_job,
    "job_kill": _kill_job,
}
