"""The tool `tmux`: sends keys to the rollout's interactive terminal and returns its screen, without using tmux."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from hermes_core.contracts.errors import ToolFailureError
from hermes_core.contracts.tool import ToolContext, ToolResult
from hermes_tools.interactive.keys import encode_keys
from hermes_tools.interactive.session.rollout_terminal import (
    DEFAULT_COLS,
    DEFAULT_ROWS,
    hold,
    place_of_cursor,
    present_terminal,
    start_terminal,
    stop_terminal,
)
from hermes_tools.interactive.session.terminal_session import TerminalSession
from hermes_tools.results import failure, json_result

MAX_BYTES: Final = 200_000
DEFAULT_MAX_BYTES: Final = 50_000
DEFAULT_MIN_WAIT: Final = 0.3
DEFAULT_MAX_WAIT: Final = 60.0
_FEWEST_BYTES: Final = 4
_MOST_ROUNDS: Final = 8
_PROMPT_SHOWS: Final = 0.02
_NOT_STARTED: Final = "No terminal has been started. Start one with action start or send_keys."
_LINE_ENDS: Final = re.compile(rb"[\r\n]")

_Answer = dict[str, Any]


class TmuxTool:
    """Types keys and reads the screen. Each reader of the raw output keeps its own position."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run `action` and return its answer."""
        actions: dict[str, Callable[[dict[str, Any], ToolContext], Awaitable[_Answer]]] = {
            "start": _start,
            "send_keys": _send_keys,
            "stream": _stream,
            "capture": _capture,
            "stop": _stop,
        }
        try:
            return json_result(**await actions[arguments["action"]](arguments, context))
        except ToolFailureError as error:
            return failure(error.message)


async def _start(arguments: dict[str, Any], context: ToolContext) -> _Answer:
    session = present_terminal(context)
    if session is not None and not arguments.get("reset"):
        async with hold(context, session):
            if not await session.has_ended():
                await session.resize(
                    rows=arguments.get("pane_height", session.screen.rows),
                    cols=arguments.get("pane_width", session.screen.cols),
                )
                await session.pump()
                return {"status": "already_started", **_size(session), **_look(session)}
    await stop_terminal(context)
    rows, cols = arguments.get("pane_height", DEFAULT_ROWS), arguments.get("pane_width", DEFAULT_COLS)
    session = await start_terminal(context, rows=rows, cols=cols)
    return {"status": "started", **_size(session), **_look(session)}


async def _send_keys(arguments: dict[str, Any], context: ToolContext) -> _Answer:
    if "keys" not in arguments:
        raise ToolFailureError("send_keys needs keys: a list of key names and texts, such as ['ls -l', 'Enter']")
    session = present_terminal(context) or await start_terminal(context)
    async with hold(context, session):
        await session.pump()
        if await session.has_ended():
            raise ToolFailureError("Nothing was typed: the terminal's shell has ended. Start a new one (action start).")
        data = encode_keys(arguments["keys"], application_cursor=session.screen.application_cursor)
        before = await session.state()
        taken = await session.send(data)
        answer = await _wait(session, arguments, before.number if before is not None else 0, data)
        if taken < len(data):
            answer["note"] = f"Only {taken} of {len(data)} bytes were typed; the program did not read the rest."
        return answer


async def _wait(session: TerminalSession, arguments: dict[str, Any], prompt: int, data: bytes) -> _Answer:
    await session.settle(arguments.get("min_wait_s", DEFAULT_MIN_WAIT if not arguments.get("block") else 0.0))
    if not arguments.get("block"):
        return _look(session)
    limit = arguments.get("max_wait_s", DEFAULT_MAX_WAIT)
    ends = max(1, len(_LINE_ENDS.findall(data)))
    state = await session.prompt_after(prompt, at_least=ends, seconds=limit)
    if state is not None:
        await session.settle(_PROMPT_SHOWS)
        return _look(session) | {"completed": True, "exit_code": state.exit_code}
    reason = "The shell has ended." if session.ended else f"The shell is not back at its prompt after {limit:g} s."
    answer = {"completed": False, "exit_code": None, "note": f"{reason} Nothing was interrupted."}
    return answer | _look(session)


async def _stream(arguments: dict[str, Any], context: ToolContext) -> _Answer:
    session = _require_terminal(context)
    offset, limit = arguments.get("cursor", 0), max(_FEWEST_BYTES, arguments.get("max_bytes", DEFAULT_MAX_BYTES))
    async with hold(context, session):
        piece = await session.raw(offset, limit)
    answer: _Answer = {"output": piece.data.decode("utf-8", "replace"), "cursor": piece.end, "more": piece.more}
    if piece.start > offset:
        answer["omitted_bytes"] = piece.start - offset
    return answer


async def _capture(arguments: dict[str, Any], context: ToolContext) -> _Answer:
    session = _require_terminal(context)
    async with hold(context, session):
        # The screen of a program that keeps writing is returned after a limited number of rounds.
        await session.catch_up(_MOST_ROUNDS)
        await session.has_ended()
        answer = _look(session)
        if arguments.get("capture_entire"):
            answer |= _entire(session, arguments.get("max_bytes", DEFAULT_MAX_BYTES))
        return answer


def _entire(session: TerminalSession, limit: int) -> _Answer:
    data = session.screen.entire().encode()
    answer: _Answer = {"screen": data[-limit:].decode("utf-8", "ignore")}
    if len(data) > limit:
        answer["omitted_bytes"] = len(data) - len(answer["screen"].encode())
    if session.screen.dropped:
        answer["omitted_lines"] = session.screen.dropped
    if session.missed:
        answer["missed_bytes"] = session.missed
    return answer


async def _stop(_arguments: dict[str, Any], context: ToolContext) -> _Answer:
    return {"status": "stopped" if await stop_terminal(context) else "not_started"}


def _require_terminal(context: ToolContext) -> TerminalSession:
    session = present_terminal(context)
    if session is None:
        raise ToolFailureError(_NOT_STARTED)
    return session


def _size(session: TerminalSession) -> _Answer:
    return {"pane_width": session.screen.cols, "pane_height": session.screen.rows}


def _look(session: TerminalSession) -> _Answer:
    answer: _Answer = {"screen": session.screen.text, "cursor_position": place_of_cursor(session)}
    if session.screen.alternate:
        answer["full_screen"] = True
    if session.screen.title:
        answer["title"] = session.screen.title
    if session.ended is not None:
        answer |= {"status": "exited", "exit_code": session.ended.exit_code}
    return answer
