"""Baselines for the sandboxes of every backend: bare bash, `docker exec`, and SWE-ReX in its own Python."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self


class BareBash:
    """One bash on two pipes, used line by line: the minimum cost of a session."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls) -> Self:
        """Start it."""
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec("bash", "--norc", "--noprofile", stdin=pipe, stdout=pipe))

    async def run(self, command: str) -> None:
        """Run one command that prints nothing and wait for its status."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\necho $?\n".encode())
        await self._process.stdout.readline()

    async def end(self) -> None:
        """End it."""
        self._process.kill()
        await self._process.wait()


async def fresh_bash(command: str) -> None:
    """Start a bash for one command."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec("bash", "-c", command, stdout=pipe, stderr=pipe)
    await process.communicate()


async def docker_exec(container: str, command: str) -> None:
    """Run one command through the engine, as without an agent."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "docker", "exec", container, "bash", "-c", command, stdout=pipe, stderr=pipe
    )
    await process.communicate()


def start_container(image: str) -> str:
    """Start a container that waits, and return its id."""
    command = ["docker", "run", "--detach", "--rm", "--init", "--network", "none", image, "sleep", "3600"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def stop_container(container: str) -> None:
    """Remove it."""
    subprocess.run(["docker", "rm", "--force", container], check=True, capture_output=True)


def swe_rex(python: str, *, calls: int, sessions: int) -> dict[str, Any]:
    """Measure SWE-ReX with its own code, in a Python that has it."""
    command = [python, __file__, "--calls", str(calls), "--sessions", str(sessions)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=Path(__file__).parent)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


async def _swe_rex_side(calls: int, sessions: int) -> dict[str, Any]:
    from importlib import import_module
    from importlib.metadata import version

    # Imported by name: it is installed in another Python, not where types are checked.
    words = import_module("swerex.runtime.abstract")
    runtime = import_module("swerex.runtime.local").LocalRuntime()
    began = time.perf_counter()
    for number in range(sessions):
        await runtime.create_session(words.CreateBashSessionRequest(session=f"s{number}"))
    opening = (time.perf_counter() - began) / sessions
    took = []
    for _ in range(calls):
        began = time.perf_counter()
        await runtime.run_in_session(words.BashAction(command="/bin/true", session="s0"))
        took.append(time.perf_counter() - began)

    async def loop(name: str) -> None:
        for _ in range(3):
            await runtime.run_in_session(words.BashAction(command="/bin/true", session=name))

    began = time.perf_counter()
    await asyncio.gather(*(loop(f"s{number}") for number in range(sessions)))
    rate = 3 * sessions / (time.perf_counter() - began)
    await runtime.close()
    return {
        "version": version("swe-rex"),
        "session_start_ms": round(opening * 1000, 1),
        "fork_ms": round(sorted(took)[len(took) // 2] * 1000, 1),
        "calls_per_second": round(rate, 1),
        "sessions": sessions,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_swe_rex_side(int(sys.argv[2]), int(sys.argv[4])))))
