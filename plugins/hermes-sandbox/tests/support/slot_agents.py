"""An agent of this machine with many slots, without a backend."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager

from sandbox_support import processes_of, slot_fields

from hermes_sandbox.backends import PYTHON_FLAGS, AgentStream
from hermes_sandbox.protocol.client import AgentClient
from hermes_sandbox.protocol.slots import AgentSlot


@asynccontextmanager
async def agent(*flags, stderr=None):
    ours, theirs = socket.socketpair()
    environment = {"HERMES_SANDBOX": f"slots{os.getpid()}.0", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, *flags, *PYTHON_FLAGS]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=stderr, env=environment)
    theirs.close()
    stream = AgentStream(*await asyncio.open_connection(sock=ours))
    hello = {"marker": f"slots{os.getpid()}", "limits": {}}
    client = await AgentClient.connect(stream, hello, timeout=60)
    try:
        yield client
    finally:
        await client.aclose()
        assert await asyncio.to_thread(process.wait, 60) == 0
        assert processes_of(f"slots{os.getpid()}") == []


async def open_slot(client, place, **fields):
    given = {"state_dir": None, "own_directory": True, **fields}
    workspace = place / f"slot{time.monotonic_ns()}"
    return await AgentSlot.open(client, slot_fields(workspace, **given), exclusive=False)


async def run(slot, command, **fields):
    text = command.encode()
    header = {"op": "exec", "command": len(text), "stdin": False, "timeout": 120, "limit": 9999}
    answer, output = await slot.request({**header, "cwd": None, "env": {}, "merge_stderr": False, **fields}, text)
    head, tail, _ = answer["streams"][0]
    return answer["exit_code"], output[: head + tail].decode()


async def out(slot, command, **fields):
    return (await run(slot, command, **fields))[1]
