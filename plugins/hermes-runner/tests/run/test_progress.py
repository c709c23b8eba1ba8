"""The live and the plain progress display, with a clock that the tests set."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_runner.run.progress import LiveProgress, PlainProgress, open_progress

ESCAPES = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def outcome(number: int = 0, reward: float | None = 1.0, **changes: Any) -> dict[str, Any]:
    status = "skipped" if reward is None else "ok"
    return {"rollout_id": f"r{number}", "reward": reward, "reward_status": status, "failure": None} | changes


def failure(kind: str = "BackendError", message: str = "gone") -> dict[str, str]:
    return {"blame": "backend", "type": kind, "message": message}


def plain(total: int = 10, **options: Any) -> tuple[Any, io.StringIO, Clock]:
    stream, clock = io.StringIO(), Clock()
    return open_progress(total, stream=stream, clock=clock, **options), stream, clock


def test_a_pipe_gets_plain_lines_and_a_terminal_the_live_display(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(open_progress(1, stream=io.StringIO()), PlainProgress)
    assert isinstance(open_progress(1, stream=io.StringIO(), force_terminal=True), LiveProgress)


def test_a_terminal_that_cannot_redraw_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(open_progress(1, stream=io.StringIO(), force_terminal=True), PlainProgress)


def test_lines_come_at_most_every_interval_and_once_at_the_end():
    progress, stream, clock = plain(interval=5.0)
    with progress:
        for number in range(10):
            clock.now += 1.0
            progress.note_start(f"r{number}")
            for _ in range(100):
                progress.turn(f"r{number}")
            progress.note_outcome(outcome(number, number / 10))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "10 rollouts"
    assert [line.split()[0] for line in lines[1:]] == ["[0:05]", "[0:10]", "[0:10]"]
    assert lines[-1] == "[0:10] 10/10 done, 0 failed, mean reward 0.450, 1,000 turns, 100.0 turns/s"


def test_a_status_line_says_how_far_how_fast_and_how_long():
    progress, stream, clock = plain(total=4, interval=10.0)
    with progress:
        for number in range(3):
            progress.note_start(f"r{number}")
        clock.now += 10.0
        progress.note_outcome(outcome(0, 0.5) | {"rollout_id": "r0"})
    line = stream.getvalue().splitlines()[1]
    assert line == "[0:10] 1/4 done, 2 running, 0 failed, mean reward 0.500, 0.0 turns/s, about 0:30 left"


def test_a_resumed_run_starts_where_it_was_and_estimates_from_now():
    progress, stream, clock = plain(total=100, done=90, interval=1.0)
    with progress:
        clock.now += 2.0
        progress.note_outcome(outcome())
    assert stream.getvalue().splitlines()[0] == "100 rollouts, 90 of them already done"
    assert "91/100 done" in stream.getvalue()
    assert progress.seconds_left() == pytest.approx(18.0)


def test_after_a_resume_the_mean_is_of_the_whole_run():
    progress, stream, _ = plain(total=4, done=3)
    with progress:
        progress.recall([outcome(0, 0.0), outcome(1, None), outcome(2, 0.9, disposition="drop")])
        assert progress.mean_reward == 0.0
        progress.note_outcome(outcome(3, 1.0))
    assert (progress.done, progress.mean_reward) == (4, 0.5)
    assert "4/4 done, 0 failed, mean reward 0.500" in stream.getvalue()


def test_attempts_that_are_repeated_are_counted_in_the_line():
    progress, stream, clock = plain(total=2, interval=1.0)
    with progress:
        progress.note_start("r0")
        assert "retr" not in progress.status()
        progress.note_retry("r0")
        clock.now += 1.0
        progress.note_outcome(outcome(0))
        progress.note_retry("r1")
        clock.now += 1.0
        progress.note_outcome(outcome(1))
    first, last = stream.getvalue().splitlines()[1:3]
    assert "0 failed, 1 retry, mean reward" in first
    assert "0 failed, 2 retries, mean reward" in last
    assert "2 retries" in progress.closing()


def test_the_turn_rate_forgets_what_is_long_ago():
    progress, _, clock = plain()
    for _ in range(100):
        progress.turn("r")
    clock.now += 1.0
    assert progress.turns_per_second() == pytest.approx(100.0)
    for _ in range(30):
        clock.now += 1.0
        rate = progress.turns_per_second()
    assert rate == 0.0


def test_rollouts_without_a_reward_do_not_lower_the_mean():
    progress, _, _ = plain()
    assert progress.mean_reward is None
    progress.note_outcome(outcome(1, 0.8))
    progress.note_outcome(outcome(2, None, failure=failure()))
    progress.note_outcome(outcome(3, None, reward_status="error", reward_failure=failure("VerifierError")))
    progress.note_outcome(outcome(4, float("nan")))
    assert (progress.done, progress.failed, progress.mean_reward) == (4, 2, 0.8)


def test_a_dropped_rollout_does_not_count_in_the_mean():
    progress, _, _ = plain()
    progress.note_outcome(outcome(1, 0.8))
    progress.note_outcome(outcome(2, 0.0, disposition="drop"))
    progress.note_outcome(outcome(3, 0.4, disposition="mask"))
    assert progress.mean_reward == pytest.approx(0.6)


def test_a_count_of_one_is_in_the_singular():
    progress, stream, _ = plain(total=1)
    with progress:
        progress.note_start("r0")
        progress.turn("r0")
        progress.note_outcome(outcome(0))
    assert stream.getvalue().splitlines()[0] == "1 rollout"
    assert "1 turn," in stream.getvalue()


def test_a_retried_rollout_runs_once():
    progress, _, _ = plain()
    progress.note_start("r0")
    progress.note_start("r0")
    assert progress.running == {"r0"}
    progress.note_outcome(outcome(0))
    assert not progress.running


def test_the_first_failure_of_each_kind_is_shown_at_once():
    progress, stream, _ = plain()
    for number in range(50):
        progress.note_outcome(outcome(number, None, failure=failure(message=f"gone {number}")))
    progress.note_outcome(outcome(51, None, failure=failure("Other")))
    lines = stream.getvalue().splitlines()
    assert lines == ["first BackendError (backend) in r0: gone 0", "first Other (backend) in r51: gone"]


@given(st.text(max_size=80))
@settings(max_examples=60, deadline=None)
def test_plain_lines_hold_no_control_codes_whatever_the_error_says(text):
    progress, stream, _ = plain()
    with progress:
        progress.note(text)
        progress.note_outcome(outcome(1, None, rollout_id=text, failure=failure(text, text)))
    assert not ESCAPES.search(stream.getvalue())


def test_the_live_display_shows_untrusted_text_as_it_is(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    stream = io.StringIO()
    with open_progress(3, stream=stream, force_terminal=True) as progress:
        progress.note_start("r1")
        progress.note("[bold]task[/bold] \x1b]0;owned\x07 :smile:")
        progress.note_outcome(outcome(1, 0.25))
    shown = stream.getvalue()
    assert "[bold]task[/bold] \\x1b]0;owned\\x07 :smile:" in shown
    assert "\x1b]0;" not in shown
    assert "1/3" in shown
    assert "mean reward 0.250" in shown


def test_the_live_display_leaves_the_streams_alone_and_the_cursor_visible(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream, out = io.StringIO(), sys.stdout
    with open_progress(1, stream=stream, force_terminal=True):
        assert sys.stdout is out
        assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("terminal", [False, True])
def test_a_display_that_loses_its_stream_does_not_stop_the_run(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with open_progress(1, stream=Broken(), force_terminal=terminal) as progress:
        progress.note("anybody there?")
        progress.note_outcome(outcome())
    assert progress.done == 1


def test_a_stream_that_knows_only_ascii_gets_escapes():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with open_progress(1, stream=stream) as progress:
        progress.note("naïve 漢字")
    assert b"na\\xefve \\u6f22\\u5b57" in stream.buffer.getvalue()


def test_nothing_to_do_is_shown_without_a_crash(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with open_progress(0, stream=io.StringIO(), force_terminal=True):
        pass
    with open_progress(0, stream=io.StringIO()):
        pass
