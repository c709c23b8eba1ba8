"""Timeouts, cancellation and background work: which processes end, and which do not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sandbox_support import LEVELS, UID, agent_of, processes_of, wait_until_gone
from sandbox_support import sandbox as open_one
from time_limits import runs_out_of_time

from hermes_core.contracts.errors import SandboxLostError
from hermes_sandbox.agent import processes
from hermes_sandbox.agent.processes import belongs_to, read_marker
from hermes_sandbox.local import kill_processes
from hermes_sandbox.remote import sweep
from hermes_testing.watching import (
    TooSoon,
    begin,
    eventually,
    exists,
    longest_stall,
    processes_here,
    sleep_token,
    with_more_time,
)

# Leaves its session, its parents and its environment behind, as a daemon would.
ESCAPE = (
    "(env -i setsid bash -c 'trap \"\" INT TERM HUP; echo $$ >{pid}; exec 1>&- 2>&-; while :; do sleep 0.1; done' &)"
)


@pytest.fixture(params=LEVELS)
async def sandbox(request):
    async with open_one(request.param) as opened:
        yield opened


@pytest.fixture
async def plain():
    async with open_one() as opened:
        yield opened


def seconds(sandbox):
    """Return a time to sleep that no other test running on this machine uses."""
    return str(10**6 + int(sandbox.id[:6], 16))


async def living(sandbox):
    """Return how many processes, seen from inside, sleep for this sandbox's time."""
    number = seconds(sandbox)
    script = f"grep -alz -- '[{number[0]}]{number[1:]}' /proc/[0-9]*/cmdline 2>/dev/null | wc -l"
    return int((await sandbox.exec(script)).stdout)


async def written_pid(sandbox, path):
    """Return the process id that something has written to a file; TooSoon if it has not."""
    text = await sandbox.read_file(path) if await exists(sandbox, path) else b""
    TooSoon.unless(text.endswith(b"\n"), f"nothing had been written to {path}")
    return int(text)


def has_escaped(token):
    """Tell whether the `sleep` with this token has dropped the environment of what started it."""
    for pid in processes_here(token):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0") and read_marker(pid) is None:
                return True
    return False


async def test_a_timeout_ends_the_command_keeps_its_output_and_the_session(sandbox):
    """hermes-agent's defect: a timeout killed the client only, or the whole sandbox."""
    await sandbox.exec("export KEPT=1; cd /usr")
    result = await runs_out_of_time(sandbox, f"echo before; touch $BEGUN; sleep {seconds(sandbox)}")
    assert (result.exit_code, result.timed_out, result.stdout) == (124, True, b"before\n")
    assert (await sandbox.exec("echo $KEPT $PWD")).stdout == b"1 /usr\n"
    assert await living(sandbox) == 0


async def test_a_timeout_ends_children_that_ignore_signals_even_when_the_shell_has_gone(sandbox):
    number = seconds(sandbox)
    deaf = f"bash -c 'trap \"\" INT TERM; echo $$ >deaf; sleep {number}; sleep {number}' & sleep {number}"

    async def attempt(limit):
        await sandbox.exec("rm -f deaf")
        await sandbox.exec(deaf, timeout=limit)
        await written_pid(sandbox, "deaf")

    await with_more_time(attempt)
    assert await living(sandbox) == 0


async def test_a_timeout_ends_what_escaped_the_session_and_dropped_its_environment(sandbox):
    async def attempt(limit):
        await sandbox.exec("rm -f escaped")
        await sandbox.exec(ESCAPE.format(pid="escaped") + "; sleep 300", timeout=limit)
        return await written_pid(sandbox, "escaped")

    pid = await with_more_time(attempt)
    assert (await sandbox.exec(f"kill -0 {pid}")).exit_code != 0


async def test_a_background_child_does_not_hold_the_answer_and_outlives_later_commands(sandbox):
    result = await sandbox.exec("sleep 300 & echo $!", timeout=120)
    assert not result.timed_out
    assert (await runs_out_of_time(sandbox, "sleep 300")).timed_out
    assert (await sandbox.exec(f"kill -0 {result.output.strip()}")).exit_code == 0


async def test_an_escaped_child_of_an_earlier_command_outlives_a_later_timeout(sandbox):
    await sandbox.exec(ESCAPE.format(pid="earlier") + "; until [[ -s earlier ]]; do sleep 0.01; done")
    assert (await runs_out_of_time(sandbox, "sleep 300")).timed_out
    pid = await written_pid(sandbox, "earlier")
    assert (await sandbox.exec(f"kill -0 {pid}")).exit_code == 0


async def test_late_output_of_a_background_child_is_not_the_next_command_s(plain):
    await plain.exec("(for i in 1 2 3 4 5 6; do sleep 0.05; echo late; done; yes | head -c 300000; touch finished) &")

    async def has_finished():
        result = await plain.exec("echo own; ls")
        assert b"late" not in result.stdout
        return b"finished" in result.stdout

    assert await eventually(has_finished), "the background child was blocked"


async def test_output_that_a_substitution_writes_after_the_shell_has_gone_is_kept(plain):
    assert (await plain.exec("echo through > >(cat)")).stdout == b"through\n"


async def test_a_child_that_writes_without_end_does_not_hold_the_answer(plain):
    result = await plain.exec("echo started; yes &", timeout=120)
    assert not result.timed_out
    assert result.stdout.startswith(b"started\n")


async def test_a_crowd_of_forking_children_is_killed(plain):
    fork = "for i in 1 2 3 4 5 6; do [ $1 -gt 0 ] && f $(($1-1)) & done"
    crowd = f"f() {{ local i; {fork}; [ $1 -gt 0 ] || echo >>leaves; sleep 60; }}; f 2; wait"

    async def attempt(limit):
        await plain.exec("rm -f leaves")
        result = await plain.exec(crowd, timeout=limit)
        leaves = await plain.read_file("leaves") if await exists(plain, "leaves") else b""
        TooSoon.unless(len(leaves) == 36, "the crowd was not complete")
        return result

    assert (await with_more_time(attempt)).timed_out
    assert (await plain.exec("echo fine")).stdout == b"fine\n"
    assert len(processes_of(plain.id)) == 1


async def test_cancelling_a_call_kills_what_it_started_before_it_returns(sandbox):
    """hermes-agent's defect: cancelled calls went on running, or took the sandbox with them."""
    await sandbox.exec("export KEPT=1")
    call = await begin(sandbox, f"sleep {seconds(sandbox)}")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await living(sandbox) == 0
    assert (await sandbox.exec("echo $KEPT")).stdout == b"1\n"


async def test_cancelling_a_call_that_waits_for_its_turn_runs_nothing(plain):
    first = await begin(plain, "touch begun; until [[ -e go ]]; do sleep 0.01; done; echo first")
    second = asyncio.create_task(plain.exec("touch second"))
    await asyncio.sleep(0)  # so that it is asked first, and the look after it
    # What is asked for later is answered: so the agent has been asked for the second command.
    assert await exists(plain, "begun")
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    await plain.write_file("go", b"")
    assert (await first).stdout == b"first\n"
    assert not await exists(plain, "second")


async def test_files_and_other_sandboxes_do_not_wait_for_a_command(plain):
    call = await begin(plain, "sleep 300")
    await plain.write_file("meanwhile", b"1")
    assert await plain.read_file("meanwhile") == b"1"
    assert not call.done()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_renewing_ends_every_process_and_keeps_the_files(sandbox):
    await sandbox.exec("export X=1; echo data >kept; echo tmp >${TMPDIR}/kept; sleep 300 &")
    token = sleep_token()
    await sandbox.exec(f"(env -i setsid sleep {token} >/dev/null 2>&1 &)")
    assert await eventually(lambda: has_escaped(token))
    before = processes_of(sandbox.id)
    await sandbox.renew()
    assert not set(before) & set(processes_of(sandbox.id))
    assert await eventually(lambda: not processes_here(token))
    assert (await sandbox.exec("cat kept $TMPDIR/kept; echo ${X-gone}")).stdout == b"data\ntmp\ngone\n"


@pytest.mark.component("bwrap")
async def test_renewing_replaces_a_lost_agent():
    async with open_one("bwrap") as sandbox:
        os.kill(agent_of(sandbox.id), signal.SIGKILL)
        with pytest.raises(SandboxLostError):
            await sandbox.exec("sleep 60")
        with pytest.raises(SandboxLostError):
            await sandbox.exec("true")
        await sandbox.renew()
        assert (await sandbox.exec("echo back")).stdout == b"back\n"


ESCAPED = "env -i setsid bash -c 'echo $$ >pid; cd /; exec sleep 300' >/dev/null 2>&1 &"
ESCAPED += " until [[ -s pid ]]; do sleep 0.01; done"


async def test_without_isolation_and_control_group_a_lost_agent_is_not_replaced(tmp_path):
    async with open_one(options={"cgroup": tmp_path}) as sandbox:
        await sandbox.exec(ESCAPED)
        pid = int(await sandbox.read_file("pid"))
        with pytest.raises(SandboxLostError):
            await sandbox.exec("kill -9 $PPID; sleep 60")
        with pytest.raises(SandboxLostError, match="not everything it started can be found"):
            await sandbox.renew()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(SandboxLostError):
            await sandbox.exec("true")


async def test_an_agent_is_found_by_its_name_where_its_environment_is_hidden(monkeypatch):
    """As it is from its own user, who killed the commands of a sandbox and left its agent."""
    async with open_one() as sandbox, open_one() as other:
        agent, root = agent_of(sandbox.id), str(Path(sandbox.workspace).parent)
        seen = sweep.look(Path(f"/proc/{agent}"))
        hidden = seen._replace(name=sweep.own_name(Path(f"/proc/{agent}")), environment=b"", place="/")
        assert [sweep.belongs(hidden, name, root) for name in (sandbox.id, other.id)] == [True, False]
        monkeypatch.setattr(processes, "_read_environment", lambda _pid: None)
        assert (belongs_to(agent, sandbox.id), belongs_to(agent, other.id)) == (True, None)
        assert belongs_to(os.getpid(), sandbox.id) is None
        await kill_processes(sandbox.id, Path(root))
        assert await wait_until_gone(agent)
        assert (await other.exec("echo fine")).output == "fine\n"


LOOK_AT_A_NAMESAKE = """
import os, sys
from pathlib import Path
from hermes_sandbox.agent import processes
from hermes_sandbox.remote import sweep

name, own, looking = sys.argv[1], *map(int, sys.argv[2:])

def become(uid):
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)

pid = os.getpid()
begin, go = os.pipe()
looker = os.fork()
if looker == 0:
    become(looking)
    os.read(begin, 1)
    by_sweep = sweep.belongs(sweep.look(Path(f"/proc/{pid}")), name, "/nowhere")
    os.write(1, f"{processes.belongs_to(pid, name)} {by_sweep}".encode())
    os._exit(0)
become(own)
processes.become_reaper()  # hides it, as an agent is hidden
processes.take_name(name)
os.write(go, b"1")
os.waitpid(looker, 0)
"""


@pytest.mark.parametrize(
    ("looking", "seen"),
    [(1, "True True"), pytest.param(2, "None False", marks=pytest.mark.skipif(os.geteuid() != 0, reason="takes root"))],
)
def test_a_name_tells_an_agent_only_among_one_s_own_processes(looking, seen):
    """Another user's process of that name could not be ended, and would keep the sandbox from being removed."""
    argv = [sys.executable, "-c", LOOK_AT_A_NAMESAKE, "0123456789abcde", str(UID + 1), str(UID + looking)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr) == (seen, "")


def test_a_process_that_shows_its_environment_is_no_agent_whatever_its_name(tmp_path):
    program = tmp_path / "acme-sandbox-00"
    program.write_bytes(Path(shutil.which("sleep")).read_bytes())
    program.chmod(0o755)
    with subprocess.Popen([program, "600"]) as stranger:
        try:
            assert belongs_to(stranger.pid, "acme-sandbox-002") is None
            assert not sweep.belongs(sweep.look(Path(f"/proc/{stranger.pid}")), "acme-sandbox-002", "/nowhere")
        finally:
            stranger.kill()


@pytest.mark.parametrize("level", LEVELS)
async def test_an_agent_that_was_killed_leaves_nothing_behind(level):
    async with open_one(level) as sandbox:
        token = sleep_token()
        await sandbox.exec("setsid sleep 300 & cd /; sleep 300 &")
        await sandbox.exec(f"cd $HOME; (env -i setsid sleep {token} &)")
        assert await eventually(lambda: has_escaped(token))
        pids = processes_of(sandbox.id)
        os.kill(agent_of(sandbox.id), signal.SIGKILL)
        with pytest.raises(SandboxLostError, match=r"agent has gone|broken"):
            await sandbox.exec("sleep 300")
        await sandbox.aclose()
        assert processes_of(sandbox.id) == []
        assert [pid for pid in pids if not await wait_until_gone(pid)] == []
        if level == "bwrap":
            assert await eventually(lambda: not processes_here(token))
        # Without isolation only a control group finds it, and not every machine has those.
        for pid in processes_here(token):
            os.kill(pid, signal.SIGKILL)


def lose_patience(sandbox, seconds=0.8):
    """Have an agent counted as lost soon: not before it is there, for a busy machine needs longer to start it."""
    sandbox.slot._client._rest(seconds)


async def test_a_stopped_agent_counts_as_lost_and_is_removed(plain):
    lose_patience(plain)
    with pytest.raises(SandboxLostError, match="silent"):
        await plain.exec("kill -STOP $PPID; sleep 300")
    await plain.aclose()
    assert processes_of(plain.id) == []


async def test_closing_during_a_call_fails_the_call_and_ends_everything(sandbox):
    call = await begin(sandbox, "sleep 300")
    await asyncio.gather(sandbox.aclose(), sandbox.aclose())
    with pytest.raises(SandboxLostError):
        await call
    assert processes_of(sandbox.id) == []
    await sandbox.aclose()


async def test_zombies_are_collected(plain):
    await plain.exec("for i in 1 2 3 4 5 6 7 8; do (setsid bash -c 'echo $$ >>ended' &); done")

    async def are_collected():
        # A signal reaches what has ended as long as it has not been collected.
        found = await plain.exec("wc -l <ended; for pid in $(<ended); do kill -0 $pid && echo left; done 2>/dev/null")
        return found.output == "8\n"

    assert await eventually(are_collected)


async def test_the_loop_keeps_ticking_during_every_call(plain):
    """hermes-agent's defect: terminal blocked the event loop for as long as the command ran."""
    data = os.urandom(8 << 20)

    async def call_everything():
        await plain.exec("sleep 3")
        await plain.write_file("big", data)
        await plain.read_file("big")
        await plain.renew()

    _, stall = await longest_stall(call_everything())
    # Half of what the command takes, which is what a call that blocked would show.
    assert stall < 1.5


@pytest.mark.parametrize("level", LEVELS)
async def test_a_stopped_agent_holds_neither_an_upload_nor_the_end(level):
    async with open_one(level) as sandbox:
        lose_patience(sandbox)
        os.kill(agent_of(sandbox.id), signal.SIGSTOP)
        async with asyncio.timeout(60):
            with pytest.raises(SandboxLostError, match="silent"):
                await sandbox.write_file("big", bytes(8 << 20))
            await sandbox.aclose()
        assert processes_of(sandbox.id) == []


async def test_a_stopped_agent_does_not_hold_a_cancelled_upload():
    async with open_one(options={"patience": 600}) as sandbox:
        os.kill(agent_of(sandbox.id), signal.SIGSTOP)
        upload = asyncio.create_task(sandbox.write_file("big", bytes(8 << 20)))
        await asyncio.sleep(0.1)
        upload.cancel()
        async with asyncio.timeout(60):
            await sandbox.aclose()
            with pytest.raises(asyncio.CancelledError):
                await upload


@pytest.mark.parametrize("timeout", [float("nan"), float("inf"), 1e9, -1])
async def test_a_timeout_that_is_none_is_refused_and_costs_nothing(plain, timeout):
    with pytest.raises(ValueError, match="timeout: expected seconds"):
        await plain.exec("true", timeout=timeout)
    assert (await plain.exec("echo fine")).output == "fine\n"


async def test_the_longest_timeout_is_no_trouble(plain):
    assert (await plain.exec("sleep 0.1; echo fine", timeout=9.9e8)).output == "fine\n"
