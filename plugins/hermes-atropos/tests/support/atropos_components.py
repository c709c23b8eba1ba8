"""A local plugin for the environments' tests: a tool with a long result, a backend that reports its requests."""

from __future__ import annotations

from hermes_core import hookimpl
from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.parsing import AttemptStatus, BufferedParser, ParseAttempt, ParsedCall, ParseResult
from hermes_core.contracts.tool import ToolResult
from hermes_core.specs import BackendSpec, ParserSpec, ToolSpec


@hookimpl
def hermes_tools():
    fields = {"summary": "x", "description": "x", "parameters": {"type": "object", "properties": {}}}
    here = {"needs_sandbox": False, "side_effects": "none", "toolset": "atropos_testing"}
    return [ToolSpec(name="long_text", target="atropos_components:LongText", **fields, **here)]


@hookimpl
def hermes_backends():
    target = "atropos_components:TellingBackend"
    rooted = "atropos_components:RootedBackend"
    return [
        BackendSpec(name="telling", target=target, summary="x", limits=frozenset({"pids"})),
        BackendSpec(name="rooted", target=rooted, summary="x"),
    ]


@hookimpl
def hermes_parsers():
    return [ParserSpec(name="shouting", target="atropos_components:ShoutingParser", summary="x")]


class LongText:
    async def call(self, arguments, context):
        return ToolResult(content="x" * 5000)


class TellingBackend:
    """Opens no sandbox and raises an error with the spec."""

    async def check(self, spec):
        return None

    async def open(self, spec):
        error = BackendError(f"lifetime {spec.lifetime:g}, pids {spec.pids}")
        error.retryable = False
        raise error

    async def aclose(self):
        return None


class RootedBackend(TellingBackend):
    """Says that commands are root in its sandboxes."""

    def commands_are_root(self, spec):
        return True


class ShoutingParser(BufferedParser):
    """Reads `CALL name` as a call without arguments."""

    def render(self, message):
        raise ValueError("not written")

    def declare(self, tools):
        names = ", ".join(tool["function"]["name"] for tool in tools)
        return f"Write CALL and one of: {names}."

    def parse(self, text, tools=None, mode="strict"):
        if not text.startswith("CALL "):
            return ParseResult(content=text)
        call = ParsedCall(id="call_1", name=text.removeprefix("CALL "), arguments="{}")
        attempt = ParseAttempt(raw=text, start=0, end=len(text), status=AttemptStatus.OK)
        return ParseResult(content=None, calls=(call,), attempts=(attempt,))
