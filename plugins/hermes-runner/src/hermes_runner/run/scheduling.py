"""Run many rollouts concurrently, and record each outcome."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import HermesError, OutputError, UserError
from hermes_core.contracts.events import Sink
from hermes_core.contracts.model import encode
from hermes_core.contracts.rollout import Failure, RewardStatus, RolloutOutcome, StopReason
from hermes_core.rollout import RolloutSpec, WorkerThreads
from hermes_runner.file_writing import JsonlFile
from hermes_runner.output import OutputFolder
from hermes_runner.policy import Policy
from hermes_runner.run.failure_watch import FailureWatch
from hermes_runner.run.sinks import SinkFeed


class Observer(Protocol):
    """What observes the run: the progress display."""

    def note_start(self, rollout_id: str) -> None:
        """Note that a rollout has begun."""
        ...

    def note_retry(self, rollout_id: str) -> None:
        """Note that a rollout is run again."""
        ...

    def note_outcome(self, outcome: Mapping[str, Any]) -> None:
        """Note that a rollout is recorded."""
        ...


class Recorder:
    """Writes outcomes to the folder's JSONL in a thread, then queues them for the sinks.

    Outcomes that finish while the thread is busy are written in its next batch: when hundreds end at once, switching
    threads for each costs more than writing it.
    """

    def __init__(self, folder: OutputFolder, sinks: Mapping[str, Sink], *, sink_timeout: float = 60.0) -> None:
        self._folder = folder
        self._thread = WorkerThreads(2)  # a key gets half of the threads: one
        self._waiting: list[_Entry] = []
        self._flushing: asyncio.Task[None] | None = None
        self.sink_errors: Counter[str] = Counter()
        """Errors of sinks while they wrote outcomes, each with its count."""
        self.closing_errors: list[str] = []
        """Errors of sinks after their last outcomes: with the summary and when they were closed."""
        self._feeds = [SinkFeed(name, sink, self.sink_errors, limit=sink_timeout) for name, sink in sinks.items()]

    async def start(self) -> None:
        """Open the sinks."""
        for feed in self._feeds:
            await feed.open(str(self._folder.path))

    async def record(self, outcome: RolloutOutcome) -> Mapping[str, Any]:
        """Write a final outcome and return it as recorded; waits while the queue of a sink is full.

        If the caller is cancelled, the outcome is still written once and queued once for each sink.
        """
        value, line = _serialise(outcome)
        # A cancelled caller still waits: a written outcome must reach every sink, and no write may outlive the file.
        await run_uncancelled(self._write(self._folder.rollouts, line, self._feeds))
        for feed in self._feeds:
            await feed.wait_for_room()
        return value

    async def record_attempt(self, outcome: RolloutOutcome) -> None:
        """Write an attempt that is run again."""
        line = _serialise(outcome)[1]
        await run_uncancelled(self._write(self._folder.attempts, line, ()))

    async def drain(self) -> None:
        """Wait until the sinks have got the last outcomes."""
        for feed in self._feeds:
            await feed.drain()

    async def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Hand the run's summary to the sinks that want it; raises the first `OutputError` after all have got it."""
        errors = []
        for feed in self._feeds:
            try:
                trouble = await feed.write_summary(summary)
            except OutputError as error:
                errors.append(error)
            else:
                self.closing_errors += [] if trouble is None else [trouble]
        self.closing_errors += [error.message for error in errors[1:]]
        if errors:
            raise OutputError(f"sink {errors[0].message}", hint=errors[0].hint) from errors[0]

    async def close(self) -> None:
        """Close the sinks after their last outcomes; a second call does nothing.

        A cancellation ends the wait for the current sink; it is raised after the other sinks are closed.
        """
        interruption: BaseException | None = None
        while self._feeds:
            feed = self._feeds.pop(0)
            try:
                trouble = await feed.close()
            except BaseException as error:  # noqa: BLE001 - raised below
                interruption, trouble = error, feed.unclosed_error
            self.closing_errors += [] if trouble is None else [trouble]
        self._thread.close()
        if interruption is not None:
            raise interruption

    def _write(self, file: JsonlFile, line: bytes, feeds: Sequence[SinkFeed]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((file, line, feeds, done))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        return done

    async def _flush(self) -> None:
        batch: list[_Entry] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                errors = await self._thread.run("write", partial(_append_all, batch))
                for (_, line, feeds, done), error in zip(batch, errors, strict=True):
                    if error is not None:
                        done.set_exception(error)
                        continue
                    for feed in feeds:
                        feed.put(line)
                    done.set_result(None)
        except BaseException as error:
            self._fail([*batch, *self._waiting], error)
            self._waiting = []
            raise
        finally:
            self._flushing = None

    def _fail(self, entries: Sequence[_Entry], error: BaseException) -> None:
        """Tell those who wait for entries that they are not written: the thread cannot start, or the loop stops."""
        for *_, done in entries:
            if isinstance(error, asyncio.CancelledError):
                done.cancel()
            elif not done.done():
                done.set_exception(error)


_Entry = tuple[JsonlFile, bytes, Sequence[SinkFeed], "asyncio.Future[None]"]


def _serialise(outcome: RolloutOutcome) -> tuple[Mapping[str, Any], bytes]:
    value = outcome.to_json()
    try:
        return value, encode(value) + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        # Part of the outcome is not JSON. The rollout still ends in one outcome, which says so.
        value = replacement_outcome(outcome, error).to_json()
        return value, encode(value) + b"\n"


def replacement_outcome(outcome: RolloutOutcome, error: BaseException) -> RolloutOutcome:
    """Return the outcome for a rollout whose own outcome cannot be written: without its contents, with the reason."""
    return dataclasses.replace(
        outcome,
        messages=[],
        stop_reason=StopReason.FRAMEWORK_ERROR,
        reward_status=RewardStatus.SKIPPED,
        reward=None,
        reward_parts={},
        reward_detail="",
        failure=Failure.of(error),
        provenance={},
        disposition="drop",
    )


def _append_all(batch: Sequence[_Entry]) -> list[BaseException | None]:
    return [_append(file, line) for file, line, *_ in batch]


def _append(file: JsonlFile, line: bytes) -> BaseException | None:
    try:
        file.append_line(line)
    except BaseException as error:  # noqa: BLE001 - handed to the rollout whose outcome it was
        return error
    return None


class Scheduler:
    """Runs rollouts from a plan, `max_concurrent` at a time, until all are recorded or a fatal error stops the run.

    `run_attempt` runs one attempt and, like an engine, raises only what must stop the run. `require` raises for a
    rollout that the run does not accept, after it is recorded. `max_failures` and `tasks` are those of `FailureWatch`.
    """

    def __init__(
        self,
        run_attempt: Callable[[RolloutSpec], Awaitable[RolloutOutcome]],
        recorder: Recorder,
        policy: Policy,
        observer: Observer,
        *,
        require: Callable[[RolloutOutcome], None] | None = None,
        max_failures: int = 0,
        tasks: int = 2,
    ) -> None:
        self._require = require
        self._run_attempt = run_attempt
        self._recorder = recorder
        self._policy = policy
        self._observer = observer
        self._unanswered_in_a_row = 0
        self._failures = FailureWatch(max_failures, tasks=tasks)

    def recall(self, outcomes: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Count the failures among rollouts that were recorded before a resume, and yield each rollout."""
        for outcome in outcomes:
            self._failures.recall(outcome)
            yield outcome

    async def run(self, specs: Iterator[RolloutSpec], *, max_concurrent: int) -> None:
        """Run all rollouts; raises the first fatal error after the others have been cancelled and cleaned up."""
        self._patience = max(8, 2 * max_concurrent)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(max_concurrent):
                    group.create_task(self._work(specs))
        except BaseExceptionGroup as errors:
            raise _first(errors.exceptions) from None

    async def _work(self, specs: Iterator[RolloutSpec]) -> None:
        for spec in specs:
            self._failures.check()
            await self._run_rollout(spec)

    async def _run_rollout(self, spec: RolloutSpec) -> None:
        self._observer.note_start(spec.rollout_id)
        outcome = await self._run_attempt(spec)
        while self._policy.wants_retry(outcome, was_suspect=spec.suspect):
            await self._recorder.record_attempt(outcome)
            self._observer.note_retry(spec.rollout_id)
            spec = dataclasses.replace(spec, attempt=spec.attempt + 1, suspect=spec.suspect or outcome.suspect)
            outcome = await self._run_attempt(spec)
        self._give_up_on_a_dead_server(outcome)
        settled = self._policy.settle(outcome)
        self._observer.note_outcome(await self._recorder.record(settled))
        self._failures.note(settled)
        if self._require is not None and settled.disposition == "score":
            self._require(settled)

    def _give_up_on_a_dead_server(self, outcome: RolloutOutcome) -> None:
        """Stop the run if its server is down or refuses everything, before all other rollouts fail in the same way."""
        if outcome.failure is None or outcome.turns > 0 or outcome.stop_reason is not StopReason.MODEL_ERROR:
            self._unanswered_in_a_row = 0
            return
        self._unanswered_in_a_row += 1
        if self._unanswered_in_a_row >= self._patience:
            raise UserError(
                f"the model answered none of the last {self._unanswered_in_a_row} rollouts: {outcome.failure.message}",
                hint="mend that and give the same command again with --retry-failed: it continues",
            )


def _first(errors: Sequence[BaseException]) -> BaseException:
    return next((error for error in errors if isinstance(error, HermesError)), errors[0])
