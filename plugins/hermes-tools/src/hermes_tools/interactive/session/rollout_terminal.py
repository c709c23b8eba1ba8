"""The terminal of a rollout, which `terminal_stateful` and `tmux` share. It is kept in the context's state."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from hermes_core.contracts.errors import ProcessLimitError, ToolFailureError
from hermes_core.contracts.tool import ToolContext
from hermes_tools.command_output import process_limit_note
from hermes_tools.interactive.session.terminal_session import TerminalLostError, TerminalSession

DEFAULT_ROWS: Final = 40
DEFAULT_COLS: Final = 120
_KEY: Final = "hermes_core.terminal"


def present_terminal(context: ToolContext) -> TerminalSession | None:
    """Return the rollout's terminal, even if its shell has ended, or None if none was started."""
    session: TerminalSession | None = context.state.get(_KEY)
    return session


async def start_terminal(
    context: ToolContext, *, rows: int = DEFAULT_ROWS, cols: int = DEFAULT_COLS
) -> TerminalSession:
    """Start the rollout's terminal.

    Raises:
        ToolFailureError: The sandbox cannot start a terminal. The message is for the model.
    """
    try:
        session = await TerminalSession.start(context.sandbox, rows=rows, cols=cols)
    except (ProcessLimitError, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        note = process_limit_note(str(error), context.sandbox)
        said = f"The terminal cannot be started: {reason}. Nothing was run."
        raise ToolFailureError(f"{said} {note}" if note else said) from error
    context.state[_KEY] = session
    return session


async def stop_terminal(context: ToolContext) -> bool:
    """End the rollout's terminal. Return whether there was one."""
    session: TerminalSession | None = context.state.pop(_KEY, None)
    if session is not None:
        await session.stop()
    return session is not None


@asynccontextmanager
async def hold(context: ToolContext, session: TerminalSession) -> AsyncIterator[TerminalSession]:
    """Lock the terminal for the caller. If the terminal is lost, remove it from the rollout's state."""
    async with session.lock:
        try:
            yield session
        except TerminalLostError:
            context.state.pop(_KEY, None)
            raise


def place_of_cursor(session: TerminalSession) -> dict[str, Any]:
    """Return the row and column of the cursor, counted from 0."""
    row, column = session.screen.cursor
    return {"row": row, "column": column}
