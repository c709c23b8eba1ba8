"""A stream is closed wherever the greeting of an agent or a shell is cancelled: nobody else has it yet."""

from __future__ import annotations

import asyncio
import sys

import pytest

from hermes_core.contracts.errors import BackendError
from hermes_sandbox.posix_shell.client import ShellClient, ShellSettings
from hermes_sandbox.posix_shell.source import shell_command
from hermes_sandbox.protocol.agent_process import AgentProcess
from hermes_sandbox.protocol.bootstrap import PYTHON_FLAGS
from hermes_sandbox.protocol.client import AgentClient


class CancelledAt:
    """Awaits a coroutine and cancels the task that does so when it waits for the n-th time."""

    def __init__(self, work, number):
        self.work, self.left = work, number

    def __await__(self):
        resume, given = self.work.send, None
        while True:
            try:
                future = resume(given)
            except StopIteration as end:
                return end.value
            self.left -= 1
            if self.left == 0:
                asyncio.current_task().cancel()
            try:
                yield future
            except BaseException as error:  # noqa: BLE001 - the coroutine is told whatever its task is told
                resume, given = self.work.throw, error
            else:
                resume, given = self.work.send, None


async def connect_agent(stream):
    return await AgentClient.connect(stream, {"marker": "cancelled", "limits": {}}, timeout=60)


async def connect_shell(stream, timeout=60):
    return await ShellClient.connect(stream, ShellSettings("cancelled", None, None, None), timeout=timeout)


async def connect_silent_shell(stream):
    return await connect_shell(stream, timeout=0.05)


AGENT, SHELL = [sys.executable, *PYTHON_FLAGS], ["/usr/bin/env", *shell_command()[1:]]
GONE = ["/bin/sh", "-c", "echo why >&2"]
SILENT = ["/bin/sh", "-c", "exec cat >/dev/null"]
WAYS = [
    pytest.param(connect_agent, AGENT, id="an agent"),
    pytest.param(connect_agent, GONE, id="no agent"),
    pytest.param(connect_shell, SHELL, id="a shell"),
    pytest.param(connect_shell, GONE, id="no shell"),
    pytest.param(connect_silent_shell, SILENT, id="a silent shell"),
]


async def outcome_of_greeting(connect, argv, number):
    """Greet a fresh process, cancelled at the n-th wait; returns what came of it and whether its stream is open."""
    process = await AgentProcess.start(argv, environment={"PATH": "/usr/bin:/bin"})
    try:
        task = asyncio.ensure_future(await_cancelled(connect(process.stream), number))
        outcome: object = (await asyncio.gather(task, return_exceptions=True))[0]
        is_open = not process.stream.writer.transport.is_closing()
        if isinstance(outcome, (AgentClient, ShellClient)):
            await outcome.aclose()
        return outcome, is_open
    finally:
        process.stream.writer.transport.abort()
        await process.end(60)


async def await_cancelled(work, number):
    return await CancelledAt(work, number)


@pytest.mark.parametrize(("connect", "argv"), WAYS)
async def test_a_greeting_that_is_cancelled_at_any_wait_closes_its_stream(connect, argv):
    for number in range(1, 100):
        outcome, is_open = await outcome_of_greeting(connect, argv, number)
        if not isinstance(outcome, asyncio.CancelledError):
            break
        assert not is_open, f"left open when cancelled at wait {number}"
    # All waits have been tried: this time there was none left to be cancelled at.
    assert number > 1
    assert is_open != isinstance(outcome, BackendError)
