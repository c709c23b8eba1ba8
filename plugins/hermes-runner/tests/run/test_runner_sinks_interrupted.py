"""Sinks of a run that cannot start, or is ended while they have work: each is closed, or named as not closed."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import threading

import pytest
from noting_sinks import Noting, cancel

from hermes_core.contracts.errors import UserError
from hermes_core.specs import EngineSpec, SinkSpec
from hermes_runner.config import RunConfig
from hermes_runner.run.local_engine import LocalEngine
from hermes_runner.run.run import Run, execute
from hermes_runner.run.scheduling import Recorder
from hermes_runner.run.sinks import SinkFeed
from hermes_testing.watching import TooSoon, with_more_time


@pytest.fixture
def config(tmp_path):
    task = {"id": "a", "prompt": "Write a.", "verifier": {"name": "half"}, "solution": ["echo a > answer.txt"]}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")

    def new_config(*names, group_size=50):
        values = {"tasks": str(tmp_path / "tasks.jsonl"), "out": str(tmp_path / "out"), "group_size": group_size}
        values |= {"enabled_toolsets": ["terminal"], "sinks": list(names), "max_concurrent": 1, "engine": "noting"}
        return RunConfig.parse({**values, "report": False}, source="the test")

    return new_config


def with_sinks(registry, **given):
    for name, sink in given.items():
        spec = SinkSpec(name=name, summary="Notes.", target="test:Noting")
        registry = registry.with_component(spec, sink)
    return registry


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("method", ["write", "write_summary", "close"])
async def test_whatever_a_sink_raises_the_others_and_the_engine_are_closed(engines, config, error, method):
    class Summing(Noting):
        def write_summary(self, summary):
            del summary
            self.calls.append("summary")

    class Raising(Summing):
        def write(self, outcome):
            self.fail("write")

        def write_summary(self, summary):
            self.fail("write_summary")

        def close(self):
            self.fail("close")

        def fail(self, called):
            if called == method:
                raise error("of the sink")

    bad, other = Raising(), Summing()
    registry, closed = engines
    stream = io.StringIO()
    run = Run(config("bad", "other", group_size=2), with_sinks(registry, bad=bad, other=other), stream=stream)
    result = await run.execute()
    assert other.calls == ["open", "write", "write", "summary", "close"]
    assert len(closed) == 1
    said = f"bad: PluginEscapeError: {error.__name__}: of the sink"
    assert said in (result.summary["run"]["sink_errors"] if method == "write" else stream.getvalue())
    assert result.clean is (method != "write")


async def test_a_sink_that_raises_ctrl_c_as_it_begins_ends_the_run_with_its_name(engines, config):
    class Raising(Noting):
        def open(self, folder):
            raise KeyboardInterrupt

    registry, closed = engines
    first = Noting()
    with pytest.raises(UserError, match="sink 'bad' cannot begin: PluginEscapeError: KeyboardInterrupt"):
        await Run(
            config("first", "bad"), with_sinks(registry, first=first, bad=Raising()), stream=io.StringIO()
        ).execute()
    assert (first.calls, len(closed)) == (["open", "close"], 1)


@pytest.fixture
def ctrl_c():
    """Let SIGINT through: what a shell starts in the background, such as a test run, ignores it."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


class Pressing(Noting):
    """A sink that presses Ctrl-C in its first write, and again each time that the run waits for that write to end."""

    def __init__(self, times):
        super().__init__()
        self.times = times
        self.waits, self.release = threading.Semaphore(0), threading.Event()

    def write(self, outcome):
        if self.calls == ["open"]:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1, self.times):
                assert self.waits.acquire(timeout=60)
                os.kill(os.getpid(), signal.SIGINT)
            if self.times == 3:
                self.release.wait(60)
        super().write(outcome)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_ctrl_c_during_a_call_of_a_sink_closes_the_other_sinks_and_the_engine(
    ctrl_c, engines, config, monkeypatch, tmp_path, times
):
    registry, closed = engines
    pressing, other, stream = Pressing(times), Noting(), io.StringIO()
    drain = SinkFeed.drain

    async def tell_and_drain(feed):
        pressing.waits.release()
        await drain(feed)

    monkeypatch.setattr(SinkFeed, "drain", tell_and_drain)
    registry = with_sinks(registry, pressing=pressing, other=other)
    with pytest.raises(KeyboardInterrupt, match=r"of 50 rollouts recorded"):
        execute(config("pressing", "other"), registry, api_key=None, stream=stream)
    pressing.release.set()
    recorded = len((tmp_path / "out" / "rollouts.jsonl").read_bytes().splitlines())
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["rollouts"]["total"] == recorded
    assert other.calls == ["open", *["write"] * recorded, "close"]
    assert len(closed) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    is_warned = "warning: sink pressing: was not closed, because the run was ended" in stream.getvalue()
    assert (is_warned, times < 3) in {(True, False), (False, True)}


def test_ctrl_c_ends_a_run_whose_event_loop_a_plugin_blocks(ctrl_c, engines, config, monkeypatch):
    registry, closed = engines

    def block(*_):
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        raise AssertionError("Ctrl-C twice did not end what blocks the event loop")

    monkeypatch.setattr(LocalEngine, "refusals", block)
    usual = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        execute(config(), registry, api_key=None, stream=io.StringIO())
    assert len(closed) == 1
    assert signal.getsignal(signal.SIGINT) is usual


def test_ctrl_c_while_the_event_loop_closes_is_not_lost(ctrl_c, engines, config, monkeypatch):
    registry, closed = engines

    async def press(*_):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(asyncio.BaseEventLoop, "shutdown_default_executor", press)
    with pytest.raises(KeyboardInterrupt, match="50 of 50 rollouts recorded"):
        execute(config(), registry, api_key=None, stream=io.StringIO())
    assert len(closed) == 1


@pytest.fixture
def engines(registry):
    """A registry with the engine `noting`, and the list of those that were closed."""
    closed = []

    class NotingEngine(LocalEngine):
        async def aclose(self):
            await super().aclose()
            closed.append(self)

    spec = EngineSpec(name="noting", summary="-", target="test:NotingEngine")
    return registry.with_component(spec, NotingEngine), closed


@pytest.fixture
def draining(monkeypatch):
    """Set whenever a run begins to wait for its sinks' last outcomes."""
    begun, drain = asyncio.Event(), SinkFeed.drain

    async def tell_and_drain(feed):
        begun.set()
        await drain(feed)

    monkeypatch.setattr(SinkFeed, "drain", tell_and_drain)
    return begun


async def ended_while_draining(running, slow_sink, draining):
    """End a run as a signal does, and once more while it waits for its sinks."""
    await slow_sink.begun.wait()
    for _ in range(2):
        running.cancel()
        await draining.wait()
        draining.clear()


async def test_a_run_that_is_ended_twice_closes_its_sinks_and_its_engine(
    engines, config, slow_sink, draining, tmp_path
):
    registry, closed = engines
    other, stream = Noting(), io.StringIO()
    run = Run(config("slow_sink", "other"), with_sinks(registry, slow_sink=slow_sink, other=other), stream=stream)
    running = asyncio.ensure_future(run.execute())
    await ended_while_draining(running, slow_sink, draining)
    slow_sink.release.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    recorded = len((tmp_path / "out" / "rollouts.jsonl").read_bytes().splitlines())
    assert slow_sink.calls == other.calls == ["open", *["write"] * recorded, "close"]
    assert len(closed) == 1
    assert "was not closed" not in stream.getvalue()
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["rollouts"]["total"] == recorded


async def test_a_run_that_is_ended_three_times_names_the_sink_it_did_not_close(engines, config, slow_sink, draining):
    registry, closed = engines
    other, stream = Noting(), io.StringIO()
    run = Run(config("slow_sink", "other"), with_sinks(registry, slow_sink=slow_sink, other=other), stream=stream)
    running = asyncio.ensure_future(run.execute())
    await ended_while_draining(running, slow_sink, draining)
    await cancel(running)
    assert slow_sink.calls == ["open"]
    assert (other.calls[-1], len(closed)) == ("close", 1)
    assert "warning: sink slow_sink: was not closed, because the run was ended" in stream.getvalue()


async def test_sinks_that_had_begun_are_closed_when_another_cannot(engines, config):
    class Refusing(Noting):
        def open(self, folder):
            raise OSError("no such table")

    registry, closed = engines
    first, last = Noting(), Noting()
    registry = with_sinks(registry, first=first, bad=Refusing(), last=last)
    with pytest.raises(UserError, match="sink 'bad' cannot begin: OSError: no such table"):
        await Run(config("first", "bad", "last"), registry, stream=io.StringIO()).execute()
    assert (first.calls, last.calls, len(closed)) == (["open", "close"], [], 1)


async def test_a_sink_that_took_too_long_to_begin_is_closed_when_it_has_begun(tmp_path):
    class Slow(Noting):
        def __init__(self):
            super().__init__()
            self.release, self.closed = threading.Event(), threading.Event()

        def open(self, folder):
            self.calls.append("begun")
            assert self.release.wait(60)
            super().open(folder)

        def close(self):
            super().close()
            self.closed.set()

    class Folder:
        path = tmp_path

    async def attempt(seconds):
        slow, first = Slow(), Noting()
        recorder = Recorder(Folder(), {"first": first, "slow": slow}, sink_timeout=seconds)
        try:
            with pytest.raises(UserError, match=f"cannot begin: it took more than {seconds:g} s"):
                await recorder.start()
            TooSoon.unless(slow.calls and first.calls, "the call had not begun")
            await recorder.close()
        finally:
            slow.release.set()
        assert await asyncio.to_thread(slow.closed.wait, 60)
        assert (slow.calls, first.calls) == (["begun", "open", "close"], ["open", "close"])

    await with_more_time(attempt)
