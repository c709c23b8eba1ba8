"""Warnings about parts of a run that cannot be closed, with what removes them; they never replace its results."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from hermes_core.contracts.errors import BackendError, HermesError
from hermes_core.rollout import guard_plugin_call

_COLLECT: Final = "hermes-core sandboxes gc"
_HOW_TO_CLEAN_UP: Final = f"{_COLLECT} removes what is left once it can be reached; --all includes what has no lease"


async def closing_error(work: Awaitable[None]) -> Exception | None:
    """Await a closing and return the exception that it raises; a requested cancellation is raised."""
    try:
        await guard_plugin_call(work)
    except Exception as error:  # noqa: BLE001 - the plugin boundary: a failed close changes no result
        return error
    return None


def closing_warning(what: str, error: Exception, left: str = "") -> BackendError:
    """Return a warning that something could not be closed; `left` is appended to its message."""
    hint = getattr(error, "hint", None) or ""
    if _COLLECT not in hint:
        hint = f"{hint}; {_HOW_TO_CLEAN_UP}" if hint else _HOW_TO_CLEAN_UP
    return BackendError(f"{what} could not be closed: {message_of(error)}{left}", hint=hint)


def message_of(error: Exception) -> str:
    """Return the message of an error, without its hint."""
    return error.message if isinstance(error, HermesError) else f"{type(error).__name__}: {error}"
