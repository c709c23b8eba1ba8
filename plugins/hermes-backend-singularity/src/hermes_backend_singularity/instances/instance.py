"""Start, check and end one instance."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hermes_backend_singularity.runtime.failures import InstanceError, explain, last_words
from hermes_backend_singularity.runtime.program import Program
from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import SandboxRefusedError
from hermes_sandbox.local import MARKER, kill_and_wait, read_process

_NAMESPACES: Final = ("pid", "mnt", "ipc")
_KILL: Final = 20.0
"""Seconds after which a process that does not end counts as unkillable; long, because machines can be busy."""
_TIDY: Final = 3.0
"""Seconds in which the instance's parent must unmount the image and delete its entry; this usually takes 20 ms."""


@dataclass(slots=True)
class Instance:
    """The first process of an instance and its parent outside, as pidfds, because process ids are reused."""

    pid: int
    first: int
    parent: int | None

    @classmethod
    async def start(
        cls, program: Program, arguments: Sequence[str], *, sandbox_id: str, pid_file: Path, seconds: float, image: str
    ) -> Instance:
        """Start an instance and return its process descriptors.

        Args:
            program: The program that starts it.
            arguments: The program's arguments.
            sandbox_id: The sandbox, whose mark the processes carry during the start.
            pid_file: The file to which the program writes the process id.
            seconds: The time limit of the start.
            image: The image's name, for messages.

        Raises:
            BackendError: The instance does not start.
        """
        marks = {MARKER: f"{sandbox_id}.0"}
        ran = await run_uncancelled(asyncio.to_thread(program.run, arguments, seconds=seconds, marks=marks))
        if ran.timed_out:
            raise InstanceError(
                f"an instance of {image} has not started within {seconds:g} s: {last_words(ran.said)}",
                hint="raise the backend's option start_timeout, or start fewer at once (concurrent_starts)",
            )
        if ran.code:
            raise explain(f"an instance of {image} cannot be started", ran.said)
        try:
            return cls._hold(await asyncio.to_thread(_number_in, pid_file))
        except (OSError, ValueError) as error:
            raise InstanceError(f"an instance of {image} ended at once: {last_words(ran.said)}") from error

    @classmethod
    def _hold(cls, pid: int) -> Instance:
        first = os.pidfd_open(pid)
        parent = None
        with contextlib.suppress(OSError):
            process = read_process(pid)
            # 1 is not a real parent: the parent has ended.
            parent = os.pidfd_open(process.parent) if process is not None and process.parent > 1 else None
        return cls(pid, first, parent)

    async def end(self) -> None:
        """Kill all processes in the instance, and wait until its parent has cleaned up."""
        parent, self.parent = self.parent, None
        if not await kill_and_wait(self.first, _KILL):
            if parent is not None:
                os.close(parent)
            raise InstanceError("the first process of an instance cannot be killed", hint="see `ps axf`")
        if parent is not None:
            await _await_exit(parent, _TIDY)


def _number_in(pid_file: Path) -> int:
    number = int(pid_file.read_text(encoding="ascii"))
    pid_file.unlink()
    return number


async def _await_exit(pidfd: int, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        await kill_and_wait(os.dup(pidfd), _KILL)
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def require_separation(pid: int, *, network: bool) -> None:
    """Refuse an instance that shares a namespace with this machine that must be its own.

    Args:
        pid: A process in the instance.
        network: Whether sharing the network namespace is allowed.

    Raises:
        SandboxRefusedError: The instance shares one, or its namespaces cannot be read.
    """
    for kind in _NAMESPACES if network else (*_NAMESPACES, "net"):
        try:
            theirs, ours = (Path(f"/proc/{who}/ns/{kind}").readlink() for who in (pid, "self"))
        except OSError as error:
            raise SandboxRefusedError(
                f"cannot determine whether the instance has its own {kind} namespace: {error.strerror}"
            ) from error
        if theirs == ours:
            raise SandboxRefusedError(
                f"the instance does not have its own {kind} namespace",
                hint="see `allow pid ns`, `allow ipc ns` and `allow user ns` in apptainer.conf",
            )
