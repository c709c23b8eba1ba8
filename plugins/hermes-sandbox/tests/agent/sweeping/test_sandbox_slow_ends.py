"""What was killed and has no processor for its end is waited for: here the kernel's freezer keeps it from running."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from sandbox_support import sandbox as open_one

from hermes_sandbox.protocol import agent_process
from hermes_sandbox.protocol.agent_process import kill_and_wait
from hermes_testing.watching import begin, eventually

FREEZER = Path("/sys/fs/cgroup/freezer")
needs_freezer = pytest.mark.skipif(
    not os.access(FREEZER, os.W_OK), reason="needs root and the freezer of control groups, version 1"
)


@contextlib.asynccontextmanager
async def freeze(pid):
    """Keep a process from running, and so from ending."""
    group = FREEZER / f"hermes-test-{pid}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
        yield
    finally:
        (group / "freezer.state").write_text("THAWED")
        # It holds the group until it has gone for good.
        assert await eventually(lambda: is_removed(group))


def is_removed(group):
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


def is_killed(pid):
    """Whether it will end as soon as it runs: any fatal signal becomes SIGKILL for each thread."""
    pending = re.search(r"^SigPnd:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(encoding="ascii"), re.MULTILINE)
    return bool(int(pending[1], 16) >> (signal.SIGKILL - 1) & 1)


@needs_freezer
async def test_a_live_shell_keeps_its_state_while_what_was_killed_in_it_takes_its_time_to_go():
    async with open_one(session="live") as live:
        await live.exec("colour=blue")
        call = await begin(live, "(echo $BASHPID >pid; touch begun; exec sleep 600)")
        pid = int(await live.read_file("pid"))
        async with freeze(pid):
            call.cancel()
            assert await eventually(lambda: is_killed(pid))
            killed = time.monotonic()
            # A shell that did not come back was ended after a second.
            assert await eventually(lambda: time.monotonic() > killed + 2)
        with contextlib.suppress(asyncio.CancelledError):
            await call
        assert (await live.exec("echo $colour")).output == "blue\n"


async def test_the_first_process_of_a_namespace_is_waited_for_as_long_as_any_in_it_runs(monkeypatch):
    """It goes last of all in it, and a thousand need more than any fixed time on a busy machine."""
    seen = iter([{"7": 1, "8": 5, "9": 5}, {"7": 1, "8": 6, "9": 5}, {"7": 1}, {"7": 2}, {"7": 2}])
    monkeypatch.setattr(agent_process, "_run_times", lambda number, namespace: next(seen))
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(600)")
    held = os.pidfd_open(process.pid)
    with monkeypatch.context() as deaf:
        deaf.setattr(signal, "pidfd_send_signal", lambda *args: None)
        assert not await kill_and_wait(os.dup(held), 0.01)
    assert list(seen) == []
    assert await kill_and_wait(held, 60)
    await process.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a PID namespace on every machine")
async def test_what_runs_in_a_namespace_is_seen_to_run():
    inside = ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", "while :; do :; done & exec sleep 600"]
    outer = await asyncio.create_subprocess_exec(*inside)
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    try:
        assert await eventually(lambda: bool(children.read_text(encoding="ascii")))
        [first] = children.read_text(encoding="ascii").split()
        namespace = agent_process._inner_namespace(first)
        assert await eventually(lambda: len(agent_process._run_times(first, namespace)) == 2)
        before = agent_process._run_times(first, namespace)
        assert await eventually(lambda: agent_process._run_times(first, namespace) != before)
    finally:
        outer.kill()
        await outer.wait()
