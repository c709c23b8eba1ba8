"""Sample for many requests at a time, in a separate thread; weights change only between two batches."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tiny_rl.model.padded_batches import width
from tiny_rl.model.sampling import Sampled, Sampling, sample
from tiny_rl.model.transformer import Params

CONTEXT: Final = 512
"""The maximum number of tokens of prompt and answer together."""
_ROWS: Final = (8, 32)
MOST_STOPS: Final = 4
# Requests of one group arrive within a few milliseconds; a batch of one costs nearly as much as one of eight.
_LINGER: Final = 0.004


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One request to sample."""

    request_id: str
    prompt: Sequence[int]
    limit: int
    temperature: float = 1.0
    top_p: float = 1.0
    stop_ids: Sequence[int] = ()
    seed: int = 0
    result: Future[Result] = field(default_factory=Future)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The tokens sampled for a job, with the name of the weights; empty if it was aborted before."""

    ids: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    ranks: Sequence[int] = ()
    version: str = ""
    is_aborted: bool = False


class Engine:
    """Batches jobs of similar prompt length as they arrive. `close` ends the thread after the batch that is running."""

    def __init__(self, params: Params, version: str) -> None:
        self._params, self.version = params, version
        self._jobs: deque[Job] = deque()
        self._update: tuple[Params, str, Future[None]] | None = None
        self._wakeful = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue a job; its `result` is set when it has been sampled."""
        with self._wakeful:
            self._jobs.append(job)
            self._wakeful.notify()

    def update(self, params: Params, version: str) -> Future[None]:
        """Switch to new weights as soon as no batch is running."""
        done: Future[None] = Future()
        with self._wakeful:
            if self._update is not None:
                self._update[2].set_result(None)
            self._update = (params, version, done)
            self._wakeful.notify()
        return done

    def abort(self, request_ids: Sequence[str]) -> None:
        """Drop waiting jobs; a running batch continues for its other rows."""
        with self._wakeful:
            aborted = [job for job in self._jobs if job.request_id in request_ids]
            for job in aborted:
                self._jobs.remove(job)
        for job in aborted:
            job.result.set_result(Result(version=self.version, is_aborted=True))

    def close(self) -> None:
        """End the thread."""
        with self._wakeful:
            self._closed = True
            self._wakeful.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wakeful:
                self._wakeful.wait_for(lambda: self._jobs or self._update or self._closed)
                if self._closed:
                    return
            time.sleep(_LINGER)
            self._refresh()
            jobs = self._taken()
            if jobs:
                self._answer(jobs)

    def _refresh(self) -> None:
        with self._wakeful:
            update, self._update = self._update, None
        if update is not None:
            self._params, self.version, done = update
            done.set_result(None)

    def _taken(self) -> list[Job]:
        """Take the oldest job and the waiting jobs of the same shape."""
        with self._wakeful:
            if not self._jobs:
                return []
            shape = _shape(self._jobs[0])
            taken = [job for job in self._jobs if _shape(job) == shape][: _ROWS[-1]]
            for job in taken:
                self._jobs.remove(job)
            return taken

    def _answer(self, jobs: Sequence[Job]) -> None:
        try:
            results = sampled(self._params, self.version, jobs)
        except Exception as error:  # noqa: BLE001 - all waiters must get the error, whatever it is
            for job in jobs:
                job.result.set_exception(error)
            return
        for job, result in zip(jobs, results, strict=True):
            job.result.set_result(result)


def sampled(params: Params, version: str, jobs: Sequence[Job]) -> list[Result]:
    """Sample one batch of jobs whose shapes are the same."""
    size = next(rows for rows in _ROWS if rows >= len(jobs))
    time_width, new = _shape(jobs[0])
    prompts, pads = np.zeros((size, time_width), np.int32), np.zeros(size, np.int32)
    sampling = _no_sampling(size)
    for row, job in enumerate(jobs):
        pads[row] = time_width - len(job.prompt)
        prompts[row, pads[row] :] = job.prompt
        sampling.temperature[row], sampling.top_p[row] = job.temperature, job.top_p
        sampling.stop_ids[row, : len(job.stop_ids)] = job.stop_ids
        sampling.seeds[row], sampling.limit[row] = (job.seed ^ job.seed >> 32) & 0xFFFFFFFF, job.limit
    found = Sampled(*map(np.asarray, sample(params, prompts, pads, sampling, new=new)))
    return [_result(found, row, version) for row in range(len(jobs))]


def _result(found: Sampled, row: int, version: str) -> Result:
    length = int(found.lengths[row])
    return Result(
        ids=found.ids[row, :length].tolist(),
        logprobs=found.logprobs[row, :length].tolist(),
        ranks=found.ranks[row, :length].tolist(),
        version=version,
    )


def _no_sampling(size: int) -> Sampling:
    """Return a padding row, for which nothing is sampled."""
    return Sampling(
        temperature=np.ones(size, np.float32),
        top_p=np.ones(size, np.float32),
        stop_ids=np.full((size, MOST_STOPS), -1, np.int32),
        seeds=np.zeros(size, np.uint32),
        limit=np.zeros(size, np.int32),
    )


def _shape(job: Job) -> tuple[int, int]:
    """Return the width of prompts and the number of new tokens of a job's batch."""
    return width(len(job.prompt)), width(job.limit)
