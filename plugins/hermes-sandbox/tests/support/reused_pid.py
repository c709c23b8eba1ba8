"""Whether a sandbox whose first process died long ago, when it is closed, kills a stranger that has its number by now.

A program of its own, for the first process of a new PID namespace: it sets the counter that the next process gets its
number from, which is everybody's in a namespace, and nobody else may start anything meanwhile. Its argument is what
/proc/self/ns/pid says in the namespace that it must not be. The exit status is 0 where the stranger lives, and
CANNOT_TELL, with the reason on the standard error, where that cannot be tried.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from sandbox_support import backend, processes_of, why_no_bwrap

from hermes_core.contracts.errors import SandboxLostError
from hermes_core.contracts.sandbox import Sandbox, SandboxSpec
from hermes_sandbox.agent.processes import read_table
from hermes_testing.watching import eventually

CANNOT_TELL = 77
_COUNTER = Path("/proc/sys/kernel/ns_last_pid")


async def main(forbidden: str) -> None:
    """Kill a sandbox's first process, give its number to another process, and close the sandbox."""
    if str(Path("/proc/self/ns/pid").readlink()) == forbidden or os.getpid() != 1:
        sys.exit("not in a PID namespace of its own: nothing was tried")
    if why := why_no_bwrap():
        cannot_tell(why)
    # Without root outside, this namespace has the one user that is root here.
    options = {} if has_users() else {"uid": 0}
    async with backend(**options) as made, await made.open(SandboxSpec(isolation="bwrap")) as sandbox:
        stranger = start_with_number(await kill_first_process(sandbox))
        await sandbox.aclose()
        # Once killed, it answers nothing, even if it has not ended yet.
        said, _ = stranger.communicate("still there\n", timeout=60)
        assert (stranger.returncode, said) == (0, "still there\n"), "closing the sandbox has killed a stranger"


def cannot_tell(why: object) -> NoReturn:
    sys.stderr.write(f"{why}\n")
    sys.exit(CANNOT_TELL)


def has_users() -> bool:
    """Tell whether the user namespace has more users than one."""
    return any(int(line.split()[2]) > 1 for line in Path("/proc/self/uid_map").read_text().splitlines())


async def kill_first_process(sandbox: Sandbox) -> int:
    """Return its number, which is free then."""
    outside = min(processes_of(sandbox.id))
    [init] = [process.pid for process in read_table().values() if process.parent == outside]
    os.kill(init, signal.SIGKILL)
    try:
        await sandbox.exec("sleep 60")
    except SandboxLostError:
        assert await eventually(lambda: not Path(f"/proc/{init}").exists()), "the number is not free"
        return init
    raise AssertionError("the sandbox goes on without its first process")


def start_with_number(number: int) -> subprocess.Popen[str]:
    """Start a process that has a number and says what it is told."""
    try:
        _COUNTER.write_text(str(number - 1))
    except OSError as error:
        cannot_tell(error)
    stranger = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert stranger.pid == number, f"it got number {stranger.pid}, and not {number}"
    return stranger


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
