"""The progress display of a run: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TextIO, cast

from hermes_core.cli import one_line, plural
from hermes_core.contracts.rollout import RewardStatus

if TYPE_CHECKING:
    from rich.console import Console

Clock = Callable[[], float]

_RATE_WINDOW: Final = 10.0
_REFRESH_PER_SECOND: Final = 5
_MAX_KINDS_NOTED: Final = 20


class Progress(ABC):
    """Counts events and displays the counts; an event costs a few additions, and drawing has its own rate.

    A display that loses its stream becomes silent and does not stop the run. The first failure of each kind is shown at
    once, the others only in the summary.
    """

    def __init__(self, total: int, *, done: int, clock: Clock) -> None:
        self.total = total
        self.done = done
        self.failed = 0
        self.retries = 0
        self.running: set[str] = set()
        self.turns = 0
        self._clock = clock
        self._start = clock()
        self._done_before = done
        self._reward_sum = 0.0
        self._rewards = 0
        self._kinds: set[tuple[str, str]] = set()
        self._samples: deque[tuple[float, int]] = deque([(self._start, 0)])

    def note_start(self, rollout_id: str) -> None:
        """Note that a rollout began, or began again."""
        self.running.add(rollout_id)

    def turn(self, rollout_id: str) -> None:  # noqa: ARG002 - displays that list single rollouts need it
        """Note one answered model call."""
        self.turns += 1

    def note_retry(self, rollout_id: str) -> None:  # noqa: ARG002 - displays that list single rollouts need it
        """Note that a rollout gets another attempt."""
        self.retries += 1

    def note_outcome(self, outcome: Mapping[str, Any]) -> None:
        """Note the one outcome of a rollout."""
        self.running.discard(outcome["rollout_id"])
        self.done += 1
        failures = [failure for key in ("failure", "reward_failure") if (failure := outcome.get(key))]
        if failures or outcome.get("reward_status") == RewardStatus.ERROR:
            self.failed += 1
        self._add_reward(outcome)
        for failure in failures:
            self._note_kind(outcome, failure)

    def recall(self, outcomes: Iterable[Mapping[str, Any]]) -> None:
        """Count the rewards of rollouts that were recorded before a resume."""
        for outcome in outcomes:
            self._add_reward(outcome)

    def _add_reward(self, outcome: Mapping[str, Any]) -> None:
        reward = outcome.get("reward")
        counts = outcome.get("reward_status") == RewardStatus.OK and outcome.get("disposition") != "drop"
        if counts and reward is not None and math.isfinite(reward):
            self._reward_sum += reward
            self._rewards += 1

    @abstractmethod
    def note(self, text: str) -> None:
        """Show a line that is not overwritten."""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    def mean_reward(self) -> float | None:
        """Mean over the run's rollouts that have a reward and were not dropped, earlier ones included."""
        return self._reward_sum / self._rewards if self._rewards else None

    @property
    def elapsed(self) -> float:
        """Seconds since the display was created."""
        return self._clock() - self._start

    def turns_per_second(self) -> float:
        """Return the rate of about the last ten seconds; each call adds one sample."""
        now = self._clock()
        self._samples.append((now, self.turns))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _RATE_WINDOW:
            self._samples.popleft()
        then, turns = self._samples[0]
        return (self.turns - turns) / (now - then) if now > then else 0.0

    def seconds_left(self) -> float | None:
        """Estimate the seconds left from the rollouts since this start; None before the first one has ended."""
        ended = self.done - self._done_before
        return None if ended <= 0 else max(0, self.total - self.done) * self.elapsed / ended

    def status(self) -> str:
        """Return the current counts and rates as one line."""
        parts = [f"{len(self.running)} running", *self._results()]
        parts.append(f"{self.turns_per_second():.1f} turns/s")
        left = self.seconds_left()
        if left is not None and self.done < self.total:
            parts.append(f"about {_clock_time(left)} left")
        return ", ".join(parts)

    def closing(self) -> str:
        """Return the final counts as one line; the rate is the mean since this start."""
        parts = [f"{len(self.running)} unfinished"] if self.running else []
        rate = self.turns / self.elapsed if self.elapsed > 0 else 0.0
        return ", ".join([*parts, *self._results(), plural(self.turns, "turn"), f"{rate:.1f} turns/s"])

    def _results(self) -> Iterator[str]:
        yield f"{self.failed} failed"
        if self.retries:
            yield "1 retry" if self.retries == 1 else f"{self.retries:,} retries"
        if self.mean_reward is not None:
            yield f"mean reward {self.mean_reward:.3f}"

    def _note_kind(self, outcome: Mapping[str, Any], failure: Mapping[str, Any]) -> None:
        kind = (str(failure.get("blame")), str(failure.get("type")))
        if kind not in self._kinds and len(self._kinds) < _MAX_KINDS_NOTED:
            self._kinds.add(kind)
            where = f"{kind[1]} ({kind[0]}) in {outcome['rollout_id']}"
            self.note(f"first {where}: {failure.get('message')}")


class _Stream:
    """A text stream that drops its output when its reader is gone, because a lost display must not end the run.

    Without it, rich ends the process on a broken pipe.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost = False
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def isatty(self) -> bool:
        return True

    def _try(self, action: Callable[..., object], *arguments: str) -> None:
        if self._lost:
            return
        try:
            action(*arguments)
        except (OSError, ValueError):
            # ValueError: the stream was closed.
            self._lost = True


class PlainProgress(Progress):
    """Prints plain lines, for logs and pipes: at most one status in `interval` seconds, and a last one."""

    def __init__(self, total: int, *, done: int, stream: TextIO, clock: Clock, interval: float) -> None:
        super().__init__(total, done=done, clock=clock)
        self._stream = _Stream(stream)
        self._interval = interval
        self._next = self._start + interval

    def turn(self, rollout_id: str) -> None:
        """Note one answered model call."""
        super().turn(rollout_id)
        self._tick()

    def note_outcome(self, outcome: Mapping[str, Any]) -> None:
        """Note the one outcome of a rollout."""
        super().note_outcome(outcome)
        self._tick()

    def note(self, text: str) -> None:
        """Write the line."""
        self._write(text)

    def __enter__(self) -> Self:
        already = f", {self.done} of them already done" if self.done else ""
        self._write(f"{plural(self.total, 'rollout')}{already}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write(f"[{_clock_time(self.elapsed)}] {self.done}/{self.total} done, {self.closing()}")

    def _tick(self) -> None:
        now = self._clock()
        if now >= self._next:
            self._next = now + self._interval
            self._write(f"[{_clock_time(self.elapsed)}] {self.done}/{self.total} done, {self.status()}")

    def _write(self, text: str) -> None:
        self._stream.write(one_line(text, 500, encoding=self._stream.encoding) + "\n")
        self._stream.flush()


class LiveProgress(Progress):
    """Shows a bar and a status line, which a separate thread redraws in place."""

    def __init__(self, total: int, *, done: int, console: Console, clock: Clock) -> None:
        from rich.live import Live

        super().__init__(total, done=done, clock=clock)
        self._console = console
        self._closed = False
        # Standard output can be another file than this stream, so nothing is redirected into the display.
        self._live = Live(
            get_renderable=self._frame,
            console=self._console,
            refresh_per_second=_REFRESH_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def note(self, text: str) -> None:
        """Print the line above the bar."""
        from rich.text import Text

        line = Text(one_line(text, 500, encoding=self._console.encoding))
        self._console.print(line, soft_wrap=True)

    def __enter__(self) -> Self:
        self._live.start()
        # A killed run could not show a hidden cursor again.
        self._console.show_cursor(show=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        self._live.stop()

    def _frame(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        share = f"{self.done / self.total:.0%}" if self.total else "100%"
        counts = Text(f"{self.done}/{self.total}  {share}  {_clock_time(self.elapsed)}", style="bold")
        bar.add_row(ProgressBar(total=max(1, self.total), completed=min(self.done, self.total)), counts)
        words = self.closing() if self._closed else self.status()
        return Group(bar, Text(words, style="red" if self.failed else "", no_wrap=True, overflow="crop"))


def open_progress(
    total: int,
    *,
    done: int = 0,
    stream: TextIO,
    force_terminal: bool | None = None,
    interval: float = 10.0,
    clock: Clock = time.monotonic,
) -> Progress:
    """Choose the display: live on a terminal, else plain lines. `done` rollouts were recorded before a resume."""
    if stream.isatty() if force_terminal is None else force_terminal:
        from rich.console import Console

        console = Console(
            file=cast("TextIO", _Stream(stream)), force_terminal=True, markup=False, highlight=False, emoji=False
        )
        if not console.is_dumb_terminal:
            return LiveProgress(total, done=done, console=console, clock=clock)
    return PlainProgress(total, done=done, stream=stream, clock=clock, interval=interval)


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
