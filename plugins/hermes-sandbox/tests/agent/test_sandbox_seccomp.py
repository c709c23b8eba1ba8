"""Commands of the agent's own user cannot take its limits, its processor or its turn away from it."""

from __future__ import annotations

import os

import pytest

from hermes_sandbox import open_sandbox

_ATTACK = """
import os, resource
for attempt in (
    lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (4, 4)),
    lambda: resource.prlimit(1, resource.RLIMIT_CPU, (1, 1)),
    lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),
    lambda: os.sched_setaffinity(1, {0}),
    lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
    lambda: os.setpriority(os.PRIO_USER, 0, 19),
):
    try:
        attempt()
    except PermissionError:
        print("refused")
    else:
        print("done")
"""
_OWN = """
import os, resource
resource.prlimit(0, resource.RLIMIT_NOFILE, (64, 64))
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.setpriority(os.PRIO_PROCESS, 0, 10)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], os.nice(0))
"""


@pytest.mark.component("bwrap")
@pytest.mark.parametrize("session", ["robust", "live"])
async def test_a_command_cannot_set_limits_or_scheduling_of_the_agent(tmp_path, session):
    async with open_sandbox(isolation="bwrap", session=session, lease_dir=tmp_path) as sandbox:
        await sandbox.write_file("attack.py", _ATTACK)
        assert (await sandbox.exec("python3 attack.py")).output == "refused\n" * 6
        assert (await sandbox.exec("echo on")).output == "on\n"


@pytest.mark.component("bwrap")
async def test_a_command_sets_its_own_limits_and_scheduling_as_ever(tmp_path):
    async with open_sandbox(isolation="bwrap", lease_dir=tmp_path) as sandbox:
        await sandbox.write_file("own.py", _OWN)
        assert (await sandbox.exec("python3 own.py")).output == "64 10\n"
        wanted = min(19, os.nice(0) + 3)
        assert (await sandbox.exec("ulimit -n 50; ulimit -n; nice -n 3 nice")).output == f"50\n{wanted}\n"
