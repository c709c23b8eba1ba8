"""The stand-in's worker: programs in sandboxes, their streams with resumption by offset, their ends."""

# ruff: noqa: N802 - the names of the calls

from __future__ import annotations

import asyncio
import base64
import json
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

from grpclib import GRPCError, Status
from modal_proto import task_command_router_pb2 as pb
from standin_places import Program
from standin_state import Sandbox, State


class Router:
    """Answers by the name of the call."""

    def __init__(self, state: State) -> None:
        self.state = state

    def login(self, metadata: Any) -> Sandbox:
        """Return the sandbox that a call's token is for."""
        try:
            token = metadata.get("authorization", "").removeprefix("Bearer ").split(".")[1]
            subject = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))["sub"]
        except (IndexError, ValueError) as error:
            raise GRPCError(Status.UNAUTHENTICATED, "no token of a task") from error
        return self.state.sandboxes[subject]

    def _running(self, sandbox: Sandbox, task: str) -> Sandbox:
        if sandbox.task != task:
            raise GRPCError(Status.PERMISSION_DENIED, f"the token is not for task {task}")
        if sandbox.status:
            raise GRPCError(Status.NOT_FOUND, f"task {task} has finished")
        return sandbox

    def _program(self, sandbox: Sandbox, asked: Any) -> Program:
        if sandbox.task != asked.task_id or asked.exec_id not in sandbox.programs:
            raise GRPCError(Status.NOT_FOUND, f"no exec {asked.exec_id}")
        found = sandbox.programs[asked.exec_id]
        assert isinstance(found, Program)
        return found

    async def TaskExecStart(self, sandbox: Sandbox, asked: Any) -> Any:
        """Start a program once; repeated requests return the same one."""
        self._running(sandbox, asked.task_id)
        if asked.exec_id not in sandbox.programs:
            argv = list(asked.command_args)
            if argv[0] in sandbox.lacks:
                argv[0] = "/nothing/" + argv[0]
            cwd = asked.workdir or sandbox.definition.workdir or "/"
            program = await sandbox.place.start(asked.exec_id, argv, sandbox.env, cwd)
            sandbox.programs[asked.exec_id] = program
            sandbox.busy += 1
            sandbox.exec_timeouts.append(asked.timeout_secs)
            program.ended.add_done_callback(lambda _: _idle(sandbox))
            if asked.timeout_secs:
                later = asyncio.get_running_loop().call_later(
                    asked.timeout_secs, lambda: sandbox.place.signal(asked.exec_id, signal.SIGKILL)
                )
                program.ended.add_done_callback(lambda _: later.cancel())
        return pb.TaskExecStartResponse()

    async def TaskExecStdinWrite(self, sandbox: Sandbox, asked: Any) -> Any:
        """Write to a program."""
        program = self._program(self._running(sandbox, asked.task_id), asked)
        try:
            await program.write(asked.offset, asked.data, eof=asked.eof)
        except LookupError as error:
            raise GRPCError(Status.OUT_OF_RANGE, str(error)) from error
        return pb.TaskExecStdinWriteResponse()

    async def TaskExecStdioRead(self, sandbox: Sandbox, asked: Any) -> AsyncIterator[Any]:
        """Stream what a program writes, from an offset on."""
        program = self._program(sandbox, asked)
        number = 0 if asked.file_descriptor == pb.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT else 1
        offset = asked.offset
        while True:
            try:
                data = await program.outputs[number].read(offset)
            except LookupError as error:
                raise GRPCError(Status.DATA_LOSS, str(error)) from error
            if not data:
                break
            yield pb.TaskExecStdioReadResponse(data=data)
            offset += len(data)
            if number == 0 and self.state.faults.drop_output:
                self.state.faults.drop_output -= 1
                raise GRPCError(Status.UNAVAILABLE, "the worker's connection was reset")
        self._running(sandbox, asked.task_id)

    async def TaskExecWait(self, sandbox: Sandbox, asked: Any) -> Any:
        """Wait for a program's end."""
        code = await asyncio.shield(self._program(sandbox, asked).ended)
        self._running(sandbox, asked.task_id)
        return pb.TaskExecWaitResponse(**_ending(code))

    async def TaskExecPoll(self, sandbox: Sandbox, asked: Any) -> Any:
        """Tell whether a program has ended."""
        program = self._program(self._running(sandbox, asked.task_id), asked)
        return pb.TaskExecPollResponse(**(_ending(program.ended.result()) if program.ended.done() else {}))


def _ending(code: int) -> dict[str, int]:
    return {"signal": -code} if code < 0 else {"code": code}


def _idle(sandbox: Sandbox) -> None:
    sandbox.busy -= 1
    sandbox.idle_since = time.monotonic()
