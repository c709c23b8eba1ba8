"""Outcomes on their way to the folder and the sinks, when a wait for them is cancelled or a sink lags behind."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest
from noting_sinks import Noting, cancel

from hermes_core.contracts.rollout import RewardStatus, RolloutOutcome, StopReason
from hermes_runner.output import OutputFolder
from hermes_runner.run import sinks
from hermes_runner.run.scheduling import Recorder
from hermes_runner.run.sinks import SinkFeed
from hermes_testing.watching import eventually


async def open_feed(sink, errors=None):
    feed = SinkFeed("slow_sink", sink, Counter() if errors is None else errors, limit=60)
    await feed.open("")
    return feed


async def test_a_sink_is_fed_on_and_closed_after_a_wait_for_it_was_cancelled(slow_sink):
    feed = await open_feed(slow_sink)
    for _ in range(3):
        feed.put(b"{}")
    waiting = asyncio.create_task(feed.drain())
    await slow_sink.begun.wait()
    await cancel(waiting)
    slow_sink.release.set()
    assert await feed.close() is None
    assert slow_sink.calls == ["open", "write", "write", "write", "close"]


async def test_a_cancelled_wait_can_be_repeated_though_the_queue_is_full(slow_sink, monkeypatch):
    monkeypatch.setattr(sinks, "_WAITING", 1)
    feed = await open_feed(slow_sink)
    feed.put(b"{}")
    await slow_sink.begun.wait()
    for _ in range(2):
        waiting = asyncio.create_task(feed.drain())
        await asyncio.sleep(0)
        await cancel(waiting)
    slow_sink.release.set()
    assert await feed.close() is None
    assert slow_sink.calls == ["open", "write", "close"]


async def test_a_sink_that_was_not_waited_for_is_named_and_gets_no_second_call_at_a_time(slow_sink):
    feed = await open_feed(slow_sink)
    feed.put(b"{}")
    await slow_sink.begun.wait()
    closing = asyncio.create_task(feed.close())
    await asyncio.sleep(0)
    await cancel(closing)
    assert slow_sink.calls == ["open"]
    assert feed.unclosed_error == "slow_sink: was not closed, because the run was ended before it had taken everything"


def outcome(rollout_id):
    return RolloutOutcome(
        rollout_id=rollout_id,
        task_id="a",
        group_id="g",
        index=0,
        split="train",
        seed=0,
        messages=[],
        turns=1,
        stop_reason=StopReason.FINAL_ANSWER,
        reward_status=RewardStatus.OK,
    )


@pytest.fixture
def folder(tmp_path):
    opened = OutputFolder.open(tmp_path / "recorded", {}, facts={})
    yield opened
    opened.close()


@pytest.mark.parametrize("moment", ["while the queue is full", "while the line is written"])
async def test_an_outcome_is_recorded_and_sent_once_though_its_recording_is_cancelled(
    folder, slow_sink, monkeypatch, moment
):
    monkeypatch.setattr(sinks, "_WAITING", 1)
    other = Noting()
    recorder = Recorder(folder, {"slow": slow_sink, "other": other})
    await recorder.start()
    if moment == "while the queue is full":
        await recorder.record(outcome("r0"))
        await slow_sink.begun.wait()
    recording = asyncio.create_task(recorder.record(outcome("r1")))
    if moment == "while the queue is full":
        await eventually(lambda: b'"r1"' in folder.rollouts.path.read_bytes())
    else:
        await asyncio.sleep(0)
    await cancel(recording)
    slow_sink.release.set()
    await recorder.close()
    recorded = folder.rollouts.path.read_bytes().splitlines()
    assert recorder.closing_errors == []
    assert slow_sink.calls == other.calls == ["open", *["write"] * len(recorded), "close"]
    assert recorded[-1].startswith(b'{"rollout_id":"r1"')


def test_a_loop_that_stops_while_an_outcome_is_written_does_not_wait_for_it_forever(folder, monkeypatch):
    begun, release = threading.Event(), threading.Event()

    def append_slowly(_line):
        begun.set()
        assert release.wait(60)

    async def stop_while_two_are_written():
        recorder = Recorder(folder, {})
        recordings = [asyncio.create_task(recorder.record(outcome(name))) for name in ("r0", "r1")]
        assert await asyncio.to_thread(begun.wait, 60)
        return recordings

    monkeypatch.setattr(folder.rollouts, "append_line", append_slowly)
    recordings = asyncio.run(stop_while_two_are_written())
    release.set()
    assert all(recording.cancelled() for recording in recordings)


async def test_an_outcome_that_cannot_be_written_for_lack_of_a_thread_is_an_error_and_the_next_is_written(
    folder, monkeypatch
):
    recorder = Recorder(folder, {})
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", raise_runtime_error)
        for name in ("r0", "r1"):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await recorder.record(outcome(name))
    await recorder.record(outcome("r2"))
    await recorder.close()
    assert [line.split(b'"')[3] for line in folder.rollouts.lines()] == [b"r2"]


def raise_runtime_error(_thread):
    raise RuntimeError("can't start new thread")


async def test_a_sink_that_lags_behind_slows_the_run(folder, slow_sink, monkeypatch):
    monkeypatch.setattr(sinks, "_WAITING", 2)
    recorder = Recorder(folder, {"slow": slow_sink})
    await recorder.start()
    await recorder.record(outcome("r0"))
    await slow_sink.begun.wait()
    await recorder.record(outcome("r1"))
    last = asyncio.create_task(recorder.record(outcome("r2")))
    await eventually(lambda: b'"r2"' in folder.rollouts.path.read_bytes())
    assert not last.done()
    slow_sink.release.set()
    await last
    await recorder.close()
    assert slow_sink.calls == ["open", "write", "write", "write", "close"]
