"""A local plugin with small tools and verifiers, loaded by path through the ordinary loader."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import threading
from pathlib import Path

from pydantic import BaseModel

from hermes_core import hookimpl
from hermes_core.contracts.tool import ToolResult
from hermes_core.contracts.verifier import Score
from hermes_core.specs import Ref, ToolSpec, VerifierSpec

OBJECT = {"type": "object", "properties": {}, "additionalProperties": False}


def _tool(name, target, *, parameters=OBJECT, **fields):
    return ToolSpec(
        name=name,
        target=f"rollout_components:{target}",
        summary=name,
        description=name,
        parameters=parameters,
        **{"toolset": "testing", "needs_sandbox": False, "side_effects": "none", **fields},
    )


@hookimpl
def hermes_tools():
    number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return [
        _tool("noop", "Noop", parallel_safe=True),
        _tool("boom", "Boom"),
        _tool("hang", "Hang", parallel_safe=True),
        _tool("sync_square", "SyncSquare", parameters=number),
        _tool("sync_shell", "SyncShell", toolset="testing_shell", needs_sandbox=True),
        _tool("sync_hang", "SyncHang"),
        _tool("count", "Count"),
        _tool("rendezvous", "Rendezvous", parallel_safe=True),
        _tool("not_a_result", "NotAResult"),
        _tool("lost", "Lost", parallel_safe=True),
        _tool("exits", "Exits"),
        _tool("sync_exits", "SyncExits"),
        _tool("cancels", "Cancels", parallel_safe=True),
        _tool("late_writer", "LateWriter", toolset="testing_shell", needs_sandbox=True),
    ]


@hookimpl
def hermes_verifiers():
    def spec(name, target, **fields):
        return VerifierSpec(
            name=name, target=f"rollout_components:{target}", summary=name, **{"needs_sandbox": False, **fields}
        )

    return [
        spec("half", "Half"),
        spec("nan", "NotANumber"),
        spec("outside", "Outside"),
        spec("raising", "Raising"),
        spec("hanging", "Hanging"),
        spec("sync_says_done", "SyncSaysDone"),
        spec("mutating", "Mutating"),
        spec("file_is_ok", "FileIsOk", needs_sandbox=True),
        spec("no_processes", "NoProcesses", needs_sandbox=True),
        spec("frozen", "FileIsOk", access="read_only", needs_sandbox=True),
        spec("fresh", "FileIsOk", access="fresh", artifacts=("answer.txt",), needs_sandbox=True),
        spec("looks", "Looks", needs_sandbox=True),
        spec("depends", "Depends", needs_sandbox=True),
        spec("asks", "Asks", needs_sandbox=True),
        spec("twice", "Twice"),
        spec("exiting", "Exiting"),
        spec("cancelling", "Cancelling"),
        spec("odd_detail", "OddDetail"),
        spec("odd_parts", "OddParts"),
        spec("huge", "Huge"),
        spec("asks_in_vain", "AsksInVain"),
        spec("counts_in_metadata", "CountsInMetadata"),
        spec("loses_sandbox", "LosesSandbox"),
        spec("reads", "Reads", needs_sandbox=True),
        spec("reads_unbounded", "Reads", needs_sandbox=True, bounds=(-math.inf, math.inf)),
        spec("reads_from_minus_one", "Reads", needs_sandbox=True, bounds=(-1.0, 1.0)),
        spec("reads_with_lowest", "Reads", needs_sandbox=True, bounds=(-math.inf, 1.0), lowest=-3.0),
        spec("writes", "Writes", needs_sandbox=True),
        spec("parses", "Parses", needs_sandbox=True),
        spec("gives_up", "GivesUp", needs_sandbox=True),
        spec("waits_for_the_writer", "WaitsForTheWriter", needs_sandbox=True),
    ]


class Noop:
    async def call(self, arguments, context):
        return ToolResult(content="{}")


class Boom:
    async def call(self, arguments, context):
        context.state["booms"] = context.state.get("booms", 0) + 1
        raise RuntimeError(f"boom number {context.state['booms']}")


class Hang:
    async def call(self, arguments, context):
        context.state["hanging"] = True
        try:
            await asyncio.Event().wait()
        finally:
            context.state["hanging"] = False


class SyncSquare:
    def call(self, arguments, context):
        assert threading.current_thread() is not threading.main_thread()
        return ToolResult(content=str(arguments["n"] ** 2))


class SyncShell:
    def call(self, arguments, context):
        return ToolResult(content=context.terminal("echo from the sandbox")["output"])


class SyncHang:
    def call(self, arguments, context):
        threading.Event().wait()


class Count:
    async def call(self, arguments, context):
        context.state["count"] = context.state.get("count", 0) + 1
        return ToolResult(content=str(context.state["count"]))


class Rendezvous:
    """Ends only when two calls are in it at the same time."""

    async def call(self, arguments, context):
        event = context.state.setdefault("met", asyncio.Event())
        context.state["there"] = context.state.get("there", 0) + 1
        if context.state["there"] >= 2:
            event.set()
        await asyncio.wait_for(event.wait(), 60)
        return ToolResult(content="met")


class NotAResult:
    async def call(self, arguments, context):
        return "text"


class Lost:
    async def call(self, arguments, context):
        from hermes_core.contracts.errors import SandboxLostError

        raise SandboxLostError("the sandbox went away")


class Exits:
    async def call(self, arguments, context):
        sys.exit(0)


class SyncExits:
    def call(self, arguments, context):
        sys.exit(0)


class Cancels:
    async def call(self, arguments, context):
        raise asyncio.CancelledError


BEGUN = threading.Event()
WRITER = threading.Event()
WRITTEN = threading.Event()


class LateWriter:
    """Writes the answer when the verifier is already at work."""

    def call(self, arguments, context):
        BEGUN.set()
        WRITER.wait(60)
        try:
            context.write_bytes("answer.txt", b"ok")
        finally:
            WRITTEN.set()


class WaitsForTheWriter:
    async def score(self, result, context):
        WRITER.set()
        if BEGUN.is_set():
            await asyncio.to_thread(WRITTEN.wait, 60)
        return Score(value=float(await context.exists("answer.txt")))


class Exiting:
    async def score(self, result, context):
        sys.exit(0)


class Cancelling:
    async def score(self, result, context):
        raise asyncio.CancelledError


class OddDetail:
    async def score(self, result, context):
        return Score(value=1.0, detail=ValueError("no text"))


class OddParts:
    async def score(self, result, context):
        return Score(value=1.0, parts={("a", 1): 1.0})


class Huge:
    async def score(self, result, context):
        return Score(value=10**400)


class AsksInVain:
    async def score(self, result, context):
        return await context.verify("no_such_verifier")


class CountsInMetadata:
    async def score(self, result, context):
        result.metadata["n"] = result.metadata.get("n", 0) + 1
        return Score(value=1.0 / result.metadata["n"])


class LosesSandbox:
    async def score(self, result, context):
        from hermes_core.contracts.errors import SandboxLostError

        raise SandboxLostError("the sandbox went away")


class Half:
    async def score(self, result, context):
        return Score(value=0.5, parts={"a": 1.0, "b": 0.0}, detail="half")


class NotANumber:
    async def score(self, result, context):
        return Score(value=float("nan"))


class Outside:
    async def score(self, result, context):
        return Score(value=2.0)


class Raising:
    async def score(self, result, context):
        raise KeyError("surprise")


class Hanging:
    async def score(self, result, context):
        await asyncio.Event().wait()


class SyncSaysDone:
    def score(self, result, context):
        assert threading.current_thread() is not threading.main_thread()
        return Score(value=float(result.final_response == "done"))


class Mutating:
    async def score(self, result, context):
        for message in result.messages:
            message["content"] = "forged"
        return Score(value=1.0)


class FileIsOk:
    async def score(self, result, context):
        if not await context.exists("answer.txt"):
            return Score(value=0.0)
        return Score(value=float((await context.read_bytes("answer.txt")).strip() == b"ok"))


class Reads:
    """Takes for granted that there is an answer."""

    def fails(self):
        return None

    async def score(self, result, context):
        if error := self.fails():
            raise error
        return Score(value=float((await context.read_bytes("answer.txt")).strip() == b"ok"))


class Writes:
    """Puts something of its own into the workspace."""

    async def score(self, result, context):
        await context.write_bytes("expected/answer.txt", b"ok")
        return Score(value=float((await context.read_bytes("answer.txt")).strip() == b"ok"))


class GivesUp:
    """Cannot work where there is a file called `mess`."""

    async def score(self, result, context):
        from hermes_core.contracts.errors import WorkspaceError

        if await context.exists("mess"):
            raise WorkspaceError("there is a mess")
        return Score(value=1.0)


class Looks:
    """Runs a command; the score is 1 when it succeeds, and the detail is what it printed."""

    class Options(BaseModel):
        command: str
        hang: bool = False

    def __init__(self, options):
        self._options = options

    async def score(self, result, context):
        answer = await context.terminal(self._options.command)
        if self._options.hang:
            await asyncio.Event().wait()
        return Score(value=float(answer["exit_code"] == 0), detail=answer["output"].strip())


class Depends(Looks):
    """Says what its judgement depends on."""

    class Options(BaseModel):
        command: str = "true"
        hang: bool = False
        reads: list[Path] = []
        guards: list[str] = []
        broken: bool = False

    def inputs(self):
        if self._options.broken:
            raise RuntimeError("no idea")
        return self._options.reads

    def protected_paths(self):
        return self._options.guards


class Asks:
    """Passes on to another verifier, and says so beforehand."""

    class Options(BaseModel):
        name: str
        options: dict = {}

    def __init__(self, options):
        self._options = options

    def verifiers(self):
        return [Ref(kind="verifier", name=self._options.name, options=self._options.options)]

    async def score(self, result, context):
        return await context.verify(self._options.name, self._options.options)


class NoProcesses:
    async def score(self, result, context):
        answer = await context.terminal("cat beat.txt 2>/dev/null; sleep 0.3; echo; cat beat.txt 2>/dev/null")
        first, _, second = answer["output"].partition("\n")
        return Score(value=float(first.strip() == second.strip()))


class Twice:
    async def score(self, result, context):
        inner = await context.verify("half")
        return Score(value=inner.value * 2, parts={"half": inner.value})


class Parses:
    """Takes what it reads for JSON."""

    async def score(self, result, context):
        return Score(value=float(json.loads(await context.sandbox.read_file("answer.txt"))))
