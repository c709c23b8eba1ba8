"""The registry of background processes: their owners, limits, retention and events."""

from __future__ import annotations

import asyncio

import pytest
from background import Model, model
from sandbox_support import sandbox

from hermes_core.contracts.errors import ProcessLimitError
from hermes_tools import ProcessRegistry
from hermes_tools.processes.process_watch import MATCH_PAUSE, MatchLimit, Watch


class Clock:
    def __init__(self):
        self.time = 1_000_000.0

    def __call__(self):
        return self.time


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_process_is_found_by_its_own_rollout_only():
    """hermes-agent's defect: any rollout could poll, feed and kill another one's process."""
    async with model(rollout_id="first") as first, model(rollout_id="second", registry=first.registry) as second:
        session = await first.background("read line")
        assert (await second.process("list"))["processes"] == []
        for action in ("poll", "log", "wait", "kill", "write", "submit", "close"):
            assert (await second.process(action, session, data="x"))["status"] == "not_found"
        assert (await first.process("poll", session))["status"] == "running"
        stranger = Model(second.context.sandbox, first.registry, "")
        assert (await stranger.process("list"))["processes"] == []


async def test_the_cap_is_per_rollout_and_counts_the_running_ones():
    """hermes-agent's defect: the cap was global and did not bound what runs."""
    async with model(rollout_id="first") as first, model(rollout_id="second", registry=first.registry) as second:
        sessions = [await first.background("read line") for _ in range(64)]
        answer = await first.terminal("true", background=True)
        assert "64" in answer["error"]
        assert (await second.terminal("true", background=True))["error"] is None
        await first.process("submit", sessions[0], data="")
        await first.process("wait", sessions[0])
        assert (await first.terminal("true", background=True))["error"] is None


async def test_starts_at_one_time_cannot_get_past_the_cap():
    async with model() as one:
        starts = [one.terminal("read line", background=True) for _ in range(70)]
        answers = await asyncio.gather(*starts)
        assert sum(answer["error"] is None for answer in answers) == 64
        assert not one.registry.list("rollout-2")
        with pytest.raises(ProcessLimitError):
            await one.context.processes.start("true")


async def test_an_ended_process_is_kept_for_30_minutes_from_its_end():
    """hermes-agent's defect: counted from the start, a job of 31 minutes vanished as soon as it had ended."""
    clock = Clock()
    async with model(clock=clock) as one:
        session = await one.background("read line; exit 3")
        clock.time += 31 * 60
        await one.process("submit", session, data="")
        assert (await one.process("wait", session))["exit_code"] == 3
        clock.time += 29 * 60
        assert (await one.process("poll", session))["uptime_seconds"] == 31 * 60
        clock.time += 2 * 60
        assert (await one.process("poll", session))["status"] == "not_found"


async def test_an_embedding_application_sees_what_is_active():
    async with model() as one:
        registry = one.registry
        assert not registry.has_active_processes("rollout-1")
        session = await one.background("read line")
        assert registry.has_active_processes("rollout-1")
        assert not registry.has_active_processes("rollout-2")
        assert registry.has_active_for_session("chat-1")
        assert not registry.has_active_for_session("chat-2")
        await one.process("submit", session, data="")
        await until(lambda: not registry.has_active_processes("rollout-1"))
        assert not registry.has_active_for_session("chat-1")


async def test_kill_all_ends_the_processes_of_one_rollout_or_of_all():
    async with model(rollout_id="first") as first, model(rollout_id="second", registry=first.registry) as second:
        for one, count in ((first, 3), (second, 2)):
            for _ in range(count):
                await one.background("exec sleep 600")
        assert await first.registry.kill_all("first") == 3
        assert not first.registry.has_active_processes("first")
        assert first.registry.has_active_processes("second")
        assert await first.registry.kill_all() == 2
        assert await first.registry.kill_all() == 0


async def test_the_end_of_a_rollout_forgets_its_processes():
    async with model() as one:
        await one.background("exec sleep 600")
        await one.registry.release("rollout-1")
        assert one.registry.list("rollout-1") == []
        assert not one.registry.has_active_processes("rollout-1")


async def test_a_process_whose_sandbox_went_away_is_lost_and_no_longer_active():
    """hermes-agent's defect: a single failed poll silently counted as the end."""
    registry = ProcessRegistry()
    async with sandbox() as box:
        one = Model(box, registry, "rollout-1")
        session = await one.background("exec sleep 600")
        await box.renew()
        await until(lambda: not registry.has_active_processes("rollout-1"))
        answer = await one.process("poll", session)
        assert answer["status"] == "exited"
        assert "lost" in answer["note"]
        assert (await one.process("kill", session))["status"] == "already_exited"
        waited = await one.process("wait", session)
        assert (waited["status"], waited["exit_code"]) == ("exited", None)
    await registry.aclose()


async def test_observers_are_told_of_start_interval_and_end():
    events = []
    async with model(fire=events.append, min_check_interval=0.05) as one:
        session = await one.background(
            "echo hello; read line; echo bye; exit 3", check_interval=1, notify_on_complete=True
        )
        found = one.context.processes.find(session)
        found.check_interval = 0.05
        await until(lambda: len(events) > 1)
        await one.process("submit", session, data="")
        await until(lambda: events[-1].moment == "ended")
    assert [event.moment for event in events[:2]] == ["started", "interval"]
    assert {(event.rollout_id, event.process_id, event.session_key) for event in events} == {
        ("rollout-1", session, "chat-1")
    }
    last = events[-1]
    assert (last.exit_code, last.reason, last.running, last.notify) == (3, "exited", False, True)
    assert "".join(event.output for event in events) == "hello\nbye\n"


async def test_the_end_is_reported_once():
    events = []
    async with model(fire=events.append) as one:
        session = await one.background("read line")
        await asyncio.gather(one.process("wait", session), one.process("kill", session), one.process("list"))
    assert [event.moment for event in events].count("ended") == 1
    assert events[-1].reason == "killed"


async def test_a_busy_process_is_polled_less_often_the_more_processes_are_watched(monkeypatch):
    """Sixty-four such processes, each looked at every second, used nine tenths of the event loop's time."""
    async with model() as one:
        for _ in range(19):
            await one.background("read line", watch_patterns=["never"])
        command = "read line; head -c 2000000 /dev/zero | tr '\\0' x; read line"
        session = await one.background(command, watch_patterns=["never"])
        source, pauses = one.context.processes.find(session).source, []
        wait = source.wait

        async def noting(execution, *, timeout):
            pauses.append(timeout)
            return await wait(execution, timeout=timeout)

        monkeypatch.setattr(source, "wait", noting)
        await one.process("submit", session, data="")
        await until(lambda: pauses and pauses[-1] == 6)


async def test_observers_are_told_when_a_watched_text_appears():
    events = []
    async with model(fire=events.append) as one:
        session = await one.background("read line; echo server is ready; read line", watch_patterns=["rea", "is ready"])
        await one.process("submit", session, data="")
        await until(lambda: events[-1].moment == "match")
        assert events[-1].pattern == "rea"
        both = await one.background("read line", watch_patterns=["x"], notify_on_complete=True)
        assert one.context.processes.find(both).watch_patterns == ()


def test_a_text_that_arrives_in_two_parts_is_found_and_told_once():
    clock = Clock()
    watch = Watch(("ready",), MatchLimit(clock), clock)
    assert watch.match("it is rea") is None
    assert watch.match("dy now") == "ready"
    assert watch.match(" and on") is None


def test_a_text_that_appears_all_the_time_is_given_up_after_three_strikes():
    clock = Clock()
    watch = Watch(("x",), MatchLimit(clock), clock)
    assert watch.match("x") == "x"
    clock.time += MATCH_PAUSE
    assert watch.match("x") == "x"
    for _ in range(3):
        assert not watch.is_muted
        assert watch.match("x") is None
    assert watch.is_muted
    clock.time += MATCH_PAUSE
    assert watch.match("x") is None


def test_all_processes_together_tell_of_15_matches_in_10_seconds():
    clock = Clock()
    limit = MatchLimit(clock)
    assert [limit.allows() for _ in range(16)] == [True] * 15 + [False]
    clock.time += 11
    assert not limit.allows()
    clock.time += 30
    assert limit.allows()
