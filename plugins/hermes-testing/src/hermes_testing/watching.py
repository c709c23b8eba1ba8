"""Observe processes and the event loop from outside a component, and wait for slow machines.

No verdict of a test may depend on the speed of the machine. Wait for events that must happen (`eventually`, `begin`);
give more time to steps under a time limit that raise `TooSoon` (`with_more_time`); measure things that must be fast
against something similar (`times_as_long`), or by the stalls of the event loop (`longest_stall`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import re
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from hermes_core.contracts.sandbox import ExecResult, Sandbox

__all__ = [
    "TooSoon",
    "begin",
    "eventually",
    "exists",
    "fill_with_processes",
    "longest_stall",
    "memory_growth",
    "processes_here",
    "resident_bytes",
    "runs_inside",
    "sleep_token",
    "times_as_long",
    "with_more_time",
]

T = TypeVar("T")
MORE_TIME: Final = (0.4, 2.0, 10.0, 40.0)
"""The time limits in seconds of consecutive attempts in `with_more_time`."""
_logger = logging.getLogger(__name__)
_CROWD = """
import os, sys, time
many, started = int(sys.argv[1]), 0
while started < many:
    try:
        if os.fork() == 0:
            os.setsid()
            time.sleep(60)
            os._exit(0)
    except BlockingIOError:
        break
    started += 1
print(started, flush=True)
time.sleep(60)
"""


def sleep_token() -> str:
    """Return a unique number of seconds, by which a process `sleep TOKEN` can be recognised."""
    return f"600.{random.SystemRandom().randrange(10**11, 10**12)}"


def processes_here(token: str) -> list[int]:
    """Return the processes of this machine with the token as an argument."""
    found = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if token.encode() in cmdline.read_bytes().split(b"\0"):
                found.append(int(cmdline.parent.name))
    return found


async def runs_inside(sandbox: Sandbox, token: str) -> bool:
    """Tell whether a process inside the sandbox has the token as an argument."""
    pattern = token.replace(".", r"\.")  # the grep itself must not match
    found = await sandbox.exec(f"grep -qzx -- '{pattern}' /proc/[0-9]*/cmdline 2>/dev/null && echo yes; true")
    return found.stdout.strip() == b"yes"


async def fill_with_processes(sandbox: Sandbox, most: int) -> int:
    """Start as many processes as a sandbox with Python allows, at most `most`; returns their number.

    Each has its own session and ends after a minute, whatever happens to the sandbox.
    """
    await sandbox.write_file("crowd.py", _CROWD)
    started = await sandbox.processes.start(f"exec python3 crowd.py {most}")
    found = b""

    async def has_counted() -> bool:
        nonlocal found
        found = (await sandbox.processes.read(started.id)).data
        return found.endswith(b"\n")

    if not await eventually(has_counted):
        raise TimeoutError("the crowd did not report its size")
    return int(found) + 1


async def eventually(condition: Callable[[], bool | Awaitable[bool]], *, seconds: float = 60.0) -> bool:
    """Wait until a condition holds; False if it never did, or if one check took a minute more than the limit."""
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        async with asyncio.timeout(seconds + 60) as bound:
            while True:
                holds = condition()
                if holds if isinstance(holds, bool) else await holds:
                    return True
                if asyncio.get_running_loop().time() > deadline:
                    return False
                await asyncio.sleep(0.02)
    except TimeoutError:
        if bound.expired():
            return False
        raise


async def exists(sandbox: Sandbox, path: str) -> bool:
    """Tell whether a path of the sandbox exists."""
    try:
        await sandbox.stat(path)
    except FileNotFoundError:
        return False
    return True


async def begin(sandbox: Sandbox, command: str, *, seconds: float = 60.0) -> asyncio.Task[ExecResult]:
    """Start a command and return the call once the part before `touch begun` in the command is done.

    The file must be in the workspace; a command in another directory uses `touch ../begun`, for example. If the command
    does not name the file, it is created first. If the file does not exist after `seconds`, or the command ends without
    it, the call is cancelled and AssertionError raised.
    """
    await sandbox.exec("rm -f begun", timeout=seconds, cwd=sandbox.workspace)
    names_it = re.search(r"touch \S*begun", command)
    call = asyncio.create_task(sandbox.exec(command if names_it else f"touch begun; {command}"))

    async def has_begun() -> bool:
        return await exists(sandbox, "begun") or call.done()

    try:
        assert await eventually(has_begun, seconds=seconds), f"the command did not begin within {seconds} s"
        without = call.done() and not await exists(sandbox, "begun")
        assert not without, f"the command ended before it made the file 'begun': {call}"
    except BaseException:
        call.cancel()
        await asyncio.wait([call], timeout=seconds)
        raise
    return call


class TooSoon(AssertionError):  # noqa: N818 - it reports an event, not an error
    """A time limit expired before a step that the test needs: the machine is slow, and there is no verdict."""

    @classmethod
    def unless(cls, condition: object, what: str) -> None:
        """Raise unless a condition holds; `what` says which step was missing."""
        if not condition:
            raise cls(f"{what}: the time limit expired too soon")


async def with_more_time(attempt: Callable[[float], Awaitable[T]]) -> T:
    """Call `attempt` with more seconds after each `TooSoon`; return the result of the first that completes.

    For steps that must finish before a time limit: `attempt` gets the limit to set, from 0.4 s to 40 s (`MORE_TIME`).
    It raises `TooSoon` if the limit expired before a step it needs, as in `TooSoon.unless(await exists(sandbox,
    "begun"), "the command had not begun")`, and must be repeatable. Any other error is a verdict, and is not retried.
    """
    for seconds in MORE_TIME[:-1]:
        try:
            return await attempt(seconds)
        except TooSoon as error:
            _logger.warning("retried with more than %s s: %s", seconds, error)
    return await attempt(MORE_TIME[-1])


async def times_as_long(
    measured: Callable[[], Awaitable[object]], control: Callable[[], Awaitable[object]], *, rounds: int = 5
) -> float:
    """Return the time of one function as a multiple of another's; both are measured in turn.

    The minimum of each counts, because other load only adds time. Load adds most to long measurements, so the quicker
    function is repeated until both take about as long.
    """
    acts = (measured, control)
    alone = [min([await _seconds(act, 1) for _ in range(3)]) for act in acts]
    repeats = [round(max(alone) / seconds) for seconds in alone]
    least = [float("inf"), float("inf")]
    for _ in range(rounds):
        for index, act in enumerate(acts):
            least[index] = min(least[index], await _seconds(act, repeats[index]) / repeats[index])
    return least[0] / least[1]


async def _seconds(act: Callable[[], Awaitable[object]], repeats: int) -> float:
    clock = asyncio.get_running_loop().time
    began = clock()
    for _ in range(repeats):
        await act()
    return clock() - began


async def longest_stall(awaitable: Awaitable[T]) -> tuple[T, float]:
    """Await something and measure the longest time for which it blocked the event loop.

    Time in which a thread of this process waited for a processor does not count, if the kernel reports it, because
    other programs caused it.
    """
    loop = asyncio.get_running_loop()
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        own, last, waits = str(threading.get_native_id()), loop.time(), _waits_for_a_processor()
        while True:
            await asyncio.sleep(0.01)
            now, later = loop.time(), _waits_for_a_processor()
            starved = {thread: wait - waits.get(thread, 0.0) for thread, wait in later.items()}
            # The loop waits for a processor, or for a thread that holds the interpreter and waits for one.
            longest = max(longest, now - last - starved.pop(own, 0.0) - max(starved.values(), default=0.0))
            last, waits = now, later

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0)
    try:
        result = await awaitable
        await asyncio.sleep(0.02)  # so that a stall right before the end is noticed
        return result, longest
    finally:
        ticker.cancel()


def _waits_for_a_processor() -> dict[str, float]:
    """Return how many seconds each thread of this process has waited for a processor, if known.

    The source is the second number of /proc/PID/task/TID/schedstat (Linux, Documentation/scheduler/sched-stats.rst).
    """
    waits = {}
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(
            OSError, IndexError, ValueError
        ):  # the thread has ended, or there is no such file (gVisor)
            waits[path.parent.name] = int(path.read_text(encoding="ascii").split()[1]) / 1e9
    return waits


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def memory_growth(awaitable: Awaitable[T]) -> tuple[T, int]:
    """Await something and measure the peak growth of this process in bytes."""
    before = most = resident_bytes()

    async def look() -> None:
        nonlocal most
        while True:
            most = max(most, resident_bytes())
            await asyncio.sleep(0.02)

    looking = asyncio.create_task(look())
    try:
        result = await awaitable
        return result, max(most, resident_bytes()) - before
    finally:
        looking.cancel()
