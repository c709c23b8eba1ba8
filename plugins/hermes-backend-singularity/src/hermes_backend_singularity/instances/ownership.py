"""The marks by which a sandbox's files, processes and owner are found after the caller has died."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from pathlib import Path
from typing import Final

from hermes_core.contracts.errors import BackendError
from hermes_sandbox.local import MARKER, look_into, read_table, send, with_descendants

PREFIX: Final = "hermes-sandbox-"
_UNSEEN: Final = (FileNotFoundError, ProcessLookupError, PermissionError)


def instance_name(sandbox_id: str) -> str:
    """Return the name of a sandbox's instance."""
    return f"hermes-{sandbox_id}"


async def end_marked(sandbox_id: str) -> None:
    """Kill all processes that carry a sandbox's marks, and their descendants.

    Raises:
        BackendError: Some processes are left.
    """
    clean = 0
    for _ in range(200):
        clean = 0 if await asyncio.to_thread(_kill_round, sandbox_id) else clean + 1
        # Twice, because processes that started while /proc was read are not in the list.
        if clean == 2:
            return
        await asyncio.sleep(0.02)
    raise BackendError(f"processes of sandbox {sandbox_id} cannot be killed", hint="see `ps axf`")


def _kill_round(sandbox_id: str) -> bool:
    table = read_table()
    mine = {pid for pid in table if _belongs(pid, sandbox_id)}
    everything = with_descendants(table, mine) - {os.getpid(), os.getppid()}
    # The end of an instance's first process ends all others in it.
    send(everything, signal.SIGKILL)
    return bool(everything)


def _belongs(pid: int, sandbox_id: str) -> bool:
    name = instance_name(sandbox_id)
    own = f"\0{MARKER}={sandbox_id}.".encode()
    # `whole` marks an instance and its parent, `own` the processes that were started in it.
    whole = (f" [{name}]\0".encode(), f"_INSTANCE={name}\0".encode())
    environment = b""
    for folder in look_into(pid):
        with contextlib.suppress(*_UNSEEN):
            environment = b"\0" + Path(folder, "environ").read_bytes()
        if len(environment) > 1:
            break
    return own in environment or any(mark in environment for mark in whole)


def forget_instance(settings_dir: Path, sandbox_id: str) -> None:
    """Delete the program's files about an instance: its logs, which the program never deletes, and its entry."""
    name = instance_name(sandbox_id)
    folder = settings_dir / "instances"
    for log in folder.glob(f"logs/*/*/{name}.*"):
        log.unlink(missing_ok=True)
    for entry in folder.glob(f"*/*/*/{name}"):
        shutil.rmtree(entry, ignore_errors=True)
