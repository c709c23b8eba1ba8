"""What cannot be closed any more: said, with what removes it, and never in the place of what was played."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from hermes_core.contracts.errors import BackendError, HermesError
from hermes_core.rollout import guard_plugin_call

_COLLECT: Final = "hermes-core sandboxes gc"
_HOW_TO_CLEAN_UP: Final = f"{_COLLECT} removes what is left, once it can be reached; with --all what has no lease, too"


async def closing_error(work: Awaitable[None]) -> Exception | None:
    """Await the closing of something; returns what it raises, but for a cancellation that was asked for."""
    try:
        await guard_plugin_call(work)
    except Exception as error:  # noqa: BLE001 - the plugin boundary: what was played before is worth no less
        return error
    return None


def closing_warning(what: str, error: Exception, left: str = "") -> BackendError:
    """Return the warning that something could not be closed; `left` is more of what is known of it."""
    hint = getattr(error, "hint", None) or ""
    if _COLLECT not in hint:
        hint = f"{hint}; {_HOW_TO_CLEAN_UP}" if hint else _HOW_TO_CLEAN_UP
    return BackendError(f"{what} could not be closed: {message_of(error)}{left}", hint=hint)


def message_of(error: Exception) -> str:
    """Return what an error says, without its hint."""
    return error.message if isinstance(error, HermesError) else f"{type(error).__name__}: {error}"
