"""Many slots of one agent: what they share, and what they cannot reach of each other."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
from pathlib import Path

import pytest
from sandbox_support import UID, processes_of, slot_fields
from slot_agents import agent, open_slot, out, run
from time_limits import may_have_been_idle

from hermes_core.contracts.errors import SandboxLostError
from hermes_sandbox.protocol.client import AgentClient
from hermes_sandbox.protocol.slots import AgentSlot
from hermes_testing.suites.backend.commands import most_held
from hermes_testing.watching import TooSoon, eventually, processes_here, sleep_token, with_more_time

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="slots have users of their own only under root")


@pytest.fixture
def place():
    # Not tmp_path: its parents are closed to the users of slots.
    with tempfile.TemporaryDirectory(prefix="hermes-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


async def test_slots_have_workspaces_and_sessions_of_their_own(place):
    """hermes-agent's defect: all rollouts shared one sandbox."""
    async with agent() as client:
        one, other = await open_slot(client, place), await open_slot(client, place)
        await asyncio.gather(run(one, "export X=one; touch mine"), run(other, "export Y=other; cd /usr"))
        assert await out(one, "echo $X ${Y-none} $PWD; ls") == f"one none {one.fields['workspace']}\nmine\n"
        assert await out(other, "echo ${X-none} $Y $PWD") == "none other /usr\n"


async def test_slots_do_not_wait_for_each_other(place):
    async with agent() as client:
        one, other = await open_slot(client, place), await open_slot(client, place)
        waiting = asyncio.create_task(run(one, "until [[ -e go ]]; do sleep 0.01; done; echo went"))
        assert await out(other, "echo first") == "first\n"
        await one.upload({"op": "write", "path": "go", "mode": None}, b"")
        assert (await waiting)[1] == "went\n"


async def test_the_order_of_merged_writes_is_exact_in_many_slots_at_once(place):
    script = "for i in {1..2000}; do echo o$i; echo e$i >&2; done"
    async with agent() as client:
        slots = [await open_slot(client, place) for _ in range(6)]
        header = {"op": "exec", "command": len(script), "stdin": False, "timeout": 60, "limit": 1 << 16}
        header = {**header, "cwd": None, "env": {}, "merge_stderr": True}
        answers = await asyncio.gather(*(slot.request(header, script.encode()) for slot in slots))
        expected = "".join(f"o{i}\ne{i}\n" for i in range(1, 2001)).encode()
        assert [output for _, output in answers] == [expected] * 6


async def test_closing_a_slot_ends_its_processes_deletes_its_workspace_and_touches_no_other(place):
    async with agent() as client:
        one, other = await open_slot(client, place), await open_slot(client, place)
        for slot in (one, other):
            await run(slot, "(setsid sleep 300 >/dev/null 2>&1 &); mkdir -p a/b; chmod 500 a; echo $$ >pid")
        running = asyncio.create_task(run(one, "sleep 300"))
        await out(other, "true")
        await one.aclose()
        with pytest.raises(SandboxLostError):
            await running
        assert not Path(one.fields["workspace"]).exists()
        assert await out(other, "ls; pgrep -c -f 'sleep 300' || true") != ""
        assert processes_of(f"slots{os.getpid()}.{one.number}.") == []
        with pytest.raises(SandboxLostError):
            await run(one, "true")


async def test_a_workspace_that_lay_there_before_is_not_taken_over(place):
    async with agent() as client:
        (place / "taken").mkdir()
        with pytest.raises(FileExistsError):
            await AgentSlot.open(client, slot_fields(place / "taken", own_directory=True), exclusive=False)
        assert (place / "taken").is_dir()


async def test_resetting_a_slot_ends_its_processes_and_keeps_its_files(place):
    async with agent() as client:
        slot, other = await open_slot(client, place), await open_slot(client, place)
        await run(other, "export X=2")
        await run(slot, "export X=1; touch kept; sleep 300 & disown")
        await slot.reset()
        assert await out(slot, "echo ${X-gone} $(ls)") == "gone kept\n"
        assert processes_of(f"slots{os.getpid()}.{slot.number}.") == []
        assert await out(other, "echo $X") == "2\n"


@pytest.mark.parametrize("kinds", [("robust", "robust"), ("live", "live"), ("live", "robust"), ("robust", "live")])
async def test_a_forked_session_goes_on_from_the_same_state(place, kinds):
    async with agent() as client:
        parent, child = [await open_slot(client, place, session=kind) for kind in kinds]
        await run(parent, "cd /usr; export A=1; f() { echo f$A; }")
        await child.request({"op": "fork", "from": parent.number})
        await run(child, "A=2; cd /")
        assert await out(child, "f; pwd") == "f2\n/\n"
        assert await out(parent, "f; pwd") == "f1\n/usr\n"


async def test_a_command_asked_for_twice_runs_once(place):
    async with agent() as client:
        slot = await open_slot(client, place)
        script = "sleep 0.1; echo x >>runs; wc -l <runs"
        both = await asyncio.gather(*(run(slot, script, execution="e1") for _ in range(3)))
        later = await run(slot, script, execution="e1")
        assert [*both, later] == [(0, "1\n")] * 4
        assert await run(slot, script, execution="e2") == (0, "2\n")


async def test_withdrawing_one_of_two_equal_questions_stops_nothing(place):
    async with agent() as client:
        slot = await open_slot(client, place)
        script = "until [[ -e go ]]; do sleep 0.01; done; echo done"
        first = asyncio.create_task(run(slot, script, execution="e"))
        second = asyncio.create_task(run(slot, script, execution="e"))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await slot.upload({"op": "write", "path": "go", "mode": None}, b"")
        assert await second == (0, "done\n")


async def test_an_idle_slot_ends_and_says_why(place):
    """Nothing is left running for a caller that forgot it."""
    async with agent() as client:
        other = await open_slot(client, place)

        async def attempt(lifetime):
            begun = place / f"begun-{lifetime:g}"
            with may_have_been_idle(lifetime, begun):
                idle = await open_slot(client, place, lifetime=lifetime)
                await run(idle, f"touch {begun}; sleep {lifetime + 0.3}; sleep 300 & disown")
            # One that does not end by itself ends with the agent.
            assert await eventually(lambda: idle.lost is not None, seconds=lifetime + 30)
            with pytest.raises(SandboxLostError, match=rf"it was idle for {lifetime:g} s"):
                await run(idle, "true")

        await with_more_time(attempt)
        assert await out(other, "echo here") == "here\n"


async def test_a_slot_that_was_never_opened_is_lost(place):
    async with agent() as client:
        with pytest.raises(SandboxLostError, match="slot 99 is not open"):
            await client.request({"op": "stat", "slot": 99, "path": "."})


async def test_an_agent_starts_again_on_the_same_stream(place):
    async with agent() as client:
        slot = await open_slot(client, place, own_directory=False)
        await run(slot, "touch kept; setsid sleep 300 & disown")
        stream = await client.restart()
        assert processes_of(f"slots{os.getpid()}.{slot.number}.") == []
        again = await AgentClient.connect(stream, {"marker": "again", "limits": {}}, timeout=60)
        fresh = await AgentSlot.open(again, slot.fields, exclusive=True)
        assert await out(fresh, "ls") == "kept\n"
        with pytest.raises(SandboxLostError, match="started again"):
            await client.request({"op": "ping"})
        await again.aclose()


async def test_a_module_travels_when_it_is_needed(place):
    async with agent() as client:
        await client.request({"op": "module", "name": "travelled"}, b"ANSWER = 42\n")
        with pytest.raises(ValueError, match="unknown operation"):
            await client.request({"op": "no_such_thing"})


async def test_a_thousand_slots_cost_the_caller_little_memory(place):
    async with agent() as client:

        async def open_many():
            slots = []
            for _ in range(10):
                slots += [await open_slot(client, place) for _ in range(100)]
                # How long Python leaves rings of garbage depends on all that earlier tests have left in the process.
                gc.collect()
            answers = await asyncio.gather(*(out(slot, "echo $PWD") for slot in slots[::20]))
            assert answers == [f"{slot.fields['workspace']}\n" for slot in slots[::20]]

        # Python's objects, and not the process: whatever else runs in that counts there as well.
        _, held = await most_held(open_many())
        assert held < 8 << 20


@needs_root
async def test_slots_with_users_of_their_own_reach_neither_each_other_nor_the_agent(place):
    async with agent() as client:
        one = await open_slot(client, place, uid=UID + 1, gid=UID + 1)
        other = await open_slot(client, place, uid=UID + 2, gid=UID + 2)
        await run(other, "echo secret >file; export TOKEN=hidden; sleep 300 & disown; echo $! >pid")
        pid = (await out(other, "cat pid")).strip()
        assert await out(one, "id -u; id -g; id -G; umask") == f"{UID + 1}\n{UID + 1}\n{UID + 1}\n0022\n"
        assert "CapEff:\t0000000000000000" in await out(one, "cat /proc/self/status")
        assert "NoNewPrivs:\t1" in await out(one, "cat /proc/self/status")
        agent_pid = client.greeting["pid"]
        for attack in (
            f"kill -9 {pid}",
            f"kill -9 {agent_pid}",
            f"kill -STOP {agent_pid}",
            f"cat /proc/{pid}/environ",
            f"cat /proc/{agent_pid}/environ",
            f"ls -l /proc/{agent_pid}/fd/0",
            f"cat {other.fields['workspace']}/file",
            f"touch {other.fields['workspace']}/x",
        ):
            assert (await run(one, attack + " 2>/dev/null"))[0] != 0, attack
        # Should a slot ever run as root, this must not be root's.
        code, _ = await run(one, f"[[ $(id -u) == {UID + 1} ]] || exit 99; kill -9 -1")
        assert code != 99, "the slot does not run as its user, so nothing was killed"
        assert await out(other, "kill -0 $(cat pid) && cat file") == "secret\n"


@needs_root
async def test_file_calls_of_a_slot_go_no_further_than_its_user(place):
    async with agent() as client:
        slot = await open_slot(client, place, uid=UID + 1, gid=UID + 1)
        (place / "roots").write_text("hidden")
        (place / "roots").chmod(0o600)
        await run(slot, f"ln -s {place}/roots link; ln -s {place} folder; mkdir sub")
        for operation in ("link", "folder/roots"):
            header = {"op": "read", "path": operation, "offset": 0, "length": None, "limit": 99}
            with pytest.raises(PermissionError):
                await slot.download(header, 99)
        for path in ("link", "folder/new"):
            with pytest.raises(PermissionError):
                await slot.upload({"op": "write", "path": path, "mode": None}, b"x")
        with pytest.raises(PermissionError):
            await slot.request({"op": "remove", "path": "folder/roots"})
        await slot.upload({"op": "write", "path": "sub/own", "mode": None}, b"x")
        assert await out(slot, "stat -c '%u %a' sub/own") == f"{UID + 1} 644\n"


async def sleeps(slot):
    """Wait until the one `sleep` that a slot has started is one: it is a shell at first."""
    assert await eventually(lambda: counts_one(slot)), "there is not one sleep"


async def counts_one(slot):
    return await out(slot, "pgrep -c -U $(id -u) sleep") == "1\n"


@needs_root
async def test_closing_a_slot_with_a_user_kills_daemons_and_a_crowd_that_forks(place):
    async with agent() as client:
        slot = await open_slot(client, place, uid=UID + 1, gid=UID + 1, processes=200)
        other = await open_slot(client, place, uid=UID + 2, gid=UID + 2)
        await run(other, "sleep 300 & disown")
        await run(slot, "for i in {1..25}; do (env -i setsid nohup sleep 300 >/dev/null 2>&1 &); done")
        # It forks while it is killed, for half a second: 1,023 processes at most, and no more than 200 at a time.
        crowd = "f() { [ $1 -gt 0 ] && { f $(($1 - 1)) & sleep 0.05; f $(($1 - 1)) & }; }"
        await run(slot, f"{crowd}; (f 9 >/dev/null 2>&1 &) ; sleep 0.2")
        await sleeps(other)
        await slot.aclose()
        assert await out(other, f"pgrep -u {UID + 1} | wc -l; pgrep -c -u {UID + 2} sleep") == "0\n1\n"


@needs_root
async def test_a_timeout_ends_what_escaped_in_its_own_slot_only(place):
    escape = "(env -i setsid bash -c 'trap \"\" INT TERM; touch escaped; exec sleep 300' >/dev/null 2>&1 &)"
    async with agent() as client:
        one = await open_slot(client, place, uid=UID + 1, gid=UID + 1)
        other = await open_slot(client, place, uid=UID + 2, gid=UID + 2)
        await run(other, escape)
        await sleeps(other)

        async def attempt(limit):
            await run(one, "rm -f escaped")
            code, _ = await run(one, f"{escape}; sleep 300", timeout=limit)
            TooSoon.unless(Path(one.fields["workspace"], "escaped").exists(), "nothing had escaped")
            return code

        assert await with_more_time(attempt) == 124
        assert await out(other, f"pgrep -u {UID + 1} -c; pgrep -u {UID + 2} -c sleep") == "0\n1\n"


@needs_root
async def test_a_live_slot_has_a_user_of_its_own_and_ends_with_all_its_jobs(place):
    async with agent() as client:
        other = await open_slot(client, place, uid=UID + 2, gid=UID + 2)

        async def attempt(limit):
            slot = await open_slot(client, place, session="live", uid=UID + 1, gid=UID + 1)
            try:
                await run(slot, "sleep 300 & export X=1")
                answer = await run(slot, "id -u; touch begun; sleep 300", timeout=limit)
                TooSoon.unless(Path(slot.fields["workspace"], "begun").exists(), "the command had not said who it is")
                assert answer == (124, f"{UID + 1}\n")
                assert await out(slot, "echo $X; jobs | wc -l") == "1\n1\n"
            finally:
                await slot.aclose()

        await with_more_time(attempt)
        assert await out(other, f"pgrep -c -u {UID + 1}") == "0\n"


@needs_root
@pytest.mark.parametrize("session", ["robust", "live"])
async def test_what_passes_on_the_output_of_another_user_is_waited_for(place, session):
    async with agent() as client:
        slot = await open_slot(client, place, session=session, uid=UID + 1, gid=UID + 1)
        # Thrice as long as what is waited for in any case, but less of the processor than what filters may use.
        busy = "end=$((${EPOCHREALTIME/./} + 60000)); while ((${EPOCHREALTIME/./} < end)); do :; done"
        assert await out(slot, f"echo through > >({busy}; cat)") == "through\n"


@needs_root
async def test_a_slot_cannot_be_given_to_root(place):
    async with agent() as client:
        with pytest.raises(PermissionError):
            await open_slot(client, place, uid=0, gid=0)


@pytest.mark.parametrize("session", ["live", "robust"])
async def test_what_began_before_a_command_in_the_same_clock_tick_is_not_killed_with_it(place, session):
    token = sleep_token()
    async with agent() as client:
        slot = await open_slot(client, place, session=session)
        await run(slot, f"(env -i setsid sleep {token} >/dev/null 2>&1 &)")
        assert await eventually(lambda: len(processes_here(token)) == 1)
        (pid,) = processes_here(token)
        source = f"""
from hermes_sandbox.agent import processes
from hermes_sandbox.agent.commands import robust
robust.ticks_since_boot = lambda: processes.read_process({pid}).start
"""
        await client.request({"op": "module", "name": "same_tick"}, source.encode())
        await run(slot, "sleep 300", timeout=0.2)
        assert processes_here(token) == [pid]
        await slot.aclose()
        assert processes_here(token) == []
