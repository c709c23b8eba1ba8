"""Convert Ray's errors to typed errors with hints."""

from __future__ import annotations

from typing import Final

from hermes_core.contracts.errors import SandboxLostError

_MEMORY: Final = ("OUT_OF_MEMORY", "out of memory", "memory pressure", "low on memory")
_NODE: Final = ("node has died", "node died", "node is dead", "missed too many heartbeats", "health check")
_GUESSES: Final = "Some common causes"
"""Where the part of Ray's message begins that is the same for every cause."""


def node_loss(name: str, error: Exception) -> SandboxLostError:
    """Return the error for a host actor on the node `name` that did not answer a call."""
    from ray.exceptions import ActorUnavailableError, NodeDiedError

    text = str(error).partition(_GUESSES)[0]
    if any(word in text for word in _MEMORY):
        return SandboxLostError(
            f"{name}: its host actor was killed because the node ran out of memory: {_gist(text)}",
            hint="run fewer sandboxes there at once (pool.slots_per_host), or set memory_mb to reserve it",
        )
    if isinstance(error, NodeDiedError) or any(word in text for word in _NODE):
        return SandboxLostError(f"{name} is lost: {_gist(text)}", hint="`ray status` shows the nodes that are left")
    if isinstance(error, ActorUnavailableError):
        return SandboxLostError(
            f"{name}: its host actor does not answer any more: {_gist(text)}",
            hint="`ray status` shows whether the node is alive",
        )
    return SandboxLostError(
        f"{name}: its host actor has died: {_gist(text)}",
        hint="`dmesg` there shows whether the kernel killed it to free memory; see also its worker's log",
    )


def _gist(text: str) -> str:
    """Return the reason from Ray's message, without its tables and stack traces."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("\t")]
    said = [line for line in lines if not line.startswith(("The actor died unexpectedly", "Traceback", "File "))]
    return " ".join(said or lines or ["no reason is given"])[:300]
