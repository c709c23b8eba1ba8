"""What a model may do to the place it works in, and what must not come of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import reused_pid
from sandbox_support import sandbox as open_one

from hermes_core.contracts.errors import SandboxLostError
from hermes_sandbox.agent.processes import read_process
from hermes_testing.separation import require_separation
from hermes_testing.watching import eventually

# Its first thread ends at once, which makes it look like a zombie; another goes on.
HEADLESS = """
import ctypes, os, threading, time

def work():
    open("headless", "w").write(str(os.getpid()))
    time.sleep(300)

threading.Thread(target=work).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
async def plain():
    async with open_one() as opened:
        yield opened


async def headless(sandbox):
    await sandbox.write_file("headless.py", HEADLESS)
    await sandbox.exec("setsid python3 headless.py >/dev/null 2>&1 &\n until [[ -s headless ]]; do sleep 0.02; done")
    pid = int(await sandbox.read_file("headless"))
    assert await eventually(lambda: read_process(pid).state == "Z"), "its first thread has not ended"
    return pid


async def silent(pid):
    """Wait until no thread of a process runs, whatever its first one looks like."""

    def is_silent():
        states = []
        for task in Path(f"/proc/{pid}/task").glob("*/stat"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                states.append(task.read_text().rpartition(")")[2].split()[0])
        return set(states) <= {"Z", "X"}

    return await eventually(is_silent)


async def test_a_process_whose_first_thread_has_ended_is_still_ended_by_renewal(plain):
    pid = await headless(plain)
    await plain.renew()
    assert await silent(pid)


async def test_a_process_whose_first_thread_has_ended_is_found_by_its_mark():
    async with open_one() as sandbox:
        pid = await headless(sandbox)
        with pytest.raises(SandboxLostError):
            await sandbox.exec("kill -9 $PPID; sleep 60")
        await sandbox.aclose()
        assert await silent(pid)


async def test_a_zombie_counts_as_dead():
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    process = read_process(pid)
    assert (process.state, process.alive) == ("Z", False)
    os.waitpid(pid, 0)


@pytest.mark.component("bwrap")
@pytest.mark.parametrize(
    "attack",
    [
        "kill -9 1; kill -9 $PPID; kill -STOP 1; kill -INT 1; kill -TERM 1; kill -HUP 1; kill -QUIT 1",
        "for p in /proc/[0-9]*; do p=${p#/proc/}; [[ $p == $$ ]] || kill -9 $p; done",
        "kill -9 -1",
        "trap '' TERM; kill -TERM -1; kill -INT -1",
    ],
)
async def test_nothing_inside_can_end_or_stop_the_agent(attack):
    """hermes-agent's defect: a command could kill its supervisor, and with it the whole sandbox."""
    async with open_one("bwrap") as sandbox:
        await require_separation(sandbox)
        await sandbox.exec("export KEPT=1")
        await sandbox.exec(attack + " 2>/dev/null", timeout=120)
        assert (await sandbox.exec("echo $KEPT")).output == "1\n"


async def test_every_agent_keeps_its_state_in_a_place_of_its_own(plain):
    place = "echo $(dirname $PWD)/state*"
    await plain.exec("true")
    before = (await plain.exec(place)).output
    await plain.renew()
    await plain.exec("true")
    assert (await plain.exec(place)).output not in {"", before}


async def test_a_log_that_became_a_pipe_does_not_stop_the_caller(plain):
    await plain.exec("rm -f ../agent.log; mkfifo ../agent.log")
    async with asyncio.timeout(60):
        await plain.renew()
    assert (await plain.exec("echo fine")).output == "fine\n"


@pytest.mark.parametrize(
    "spoil",
    [
        "cd /; rm -rf $W; touch $W",
        "cd /; rm -rf $W; ln -s / $W",
        "cd /; rm -rf $W $W/../home; mkfifo $W",
        "cd /; rm -rf $W; chmod 0 $(dirname $W)",
    ],
)
async def test_a_workspace_that_was_destroyed_is_empty_after_renewal(plain, spoil):
    await plain.exec(f"W=$PWD; {spoil}")
    async with asyncio.timeout(60):
        await plain.renew()
    assert (await plain.exec("pwd; ls -A; ls -A ~")).output == f"{plain.workspace}\n"


@pytest.mark.component("bwrap")
def test_an_agent_that_died_long_ago_costs_no_stranger_its_life():
    own_numbers = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    for prefix in (own_numbers, [*own_numbers, "--user", "--map-root-user"]):
        probe = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
        if probe.returncode == 0:
            break
    else:
        pytest.skip(f"no PID namespace can be made here: {probe.stderr}")
    done = run_reused_pid(prefix)
    if done.returncode == reused_pid.CANNOT_TELL:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr


def test_what_sets_the_counter_of_numbers_does_so_only_in_a_namespace_of_its_own():
    done = run_reused_pid([])
    assert (done.returncode, done.stderr) == (1, "not in a PID namespace of its own: nothing was tried\n")


def run_reused_pid(prefix):
    # Where it hangs, the end of `unshare` is the end of all that is in the namespace.
    argv = [*prefix, sys.executable, reused_pid.__file__, str(Path("/proc/self/ns/pid").readlink())]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=240)
