"""Looking at processes and at the event loop from outside a component."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from hermes_core.contracts.sandbox import Sandbox

T = TypeVar("T")
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
    """Return a number of seconds that no other process on this machine sleeps: `sleep TOKEN` is recognised by it."""
    return f"600.{random.SystemRandom().randrange(10**11, 10**12)}"


def processes_here(token: str) -> list[int]:
    """Return the processes of this machine that have the token as an argument of their own."""
    found = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if token.encode() in cmdline.read_bytes().split(b"\0"):
                found.append(int(cmdline.parent.name))
    return found


async def runs_inside(sandbox: Sandbox, token: str) -> bool:
    """Tell whether a process inside the sandbox has the token as an argument of its own."""
    pattern = token.replace(".", r"\.")  # the grep itself must not match
    found = await sandbox.exec(f"grep -qzx -- '{pattern}' /proc/[0-9]*/cmdline 2>/dev/null && echo yes; true")
    return found.stdout.strip() == b"yes"


async def fill_with_processes(sandbox: Sandbox, most: int) -> int:
    """Start as many processes as a sandbox with a Python may have, but no more than `most`; returns how many there are.

    Each of them, in a session of its own, ends by itself after a minute, whatever becomes of the sandbox.
    """
    await sandbox.write_file("crowd.py", _CROWD)
    started = await sandbox.processes.start(f"exec python3 crowd.py {most}")
    found = b""

    async def has_counted() -> bool:
        nonlocal found
        found = (await sandbox.processes.read(started.id)).data
        return found.endswith(b"\n")

    if not await eventually(has_counted):
        raise TimeoutError("the crowd did not say how many it has become")
    return int(found) + 1


async def eventually(condition: Callable[[], bool | Awaitable[bool]], *, seconds: float = 60.0) -> bool:
    """Wait until a condition holds; False if it never did."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        holds = condition()
        if holds if isinstance(holds, bool) else await holds:
            return True
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.02)


async def longest_stall(awaitable: Awaitable[T]) -> tuple[T, float]:
    """Await something and measure the longest time the event loop could not run anything else."""
    loop = asyncio.get_running_loop()
    longest, last = 0.0, loop.time()

    async def tick() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0.01)
            longest, last = max(longest, loop.time() - last), loop.time()

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0)
    try:
        result = await awaitable
        await asyncio.sleep(0.02)  # so that a stall right before the end is seen
        return result, longest
    finally:
        ticker.cancel()


def resident_bytes() -> int:
    """Return how much memory this process holds."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def memory_growth(awaitable: Awaitable[T]) -> tuple[T, int]:
    """Await something and measure by how many bytes this process has been larger meanwhile."""
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
