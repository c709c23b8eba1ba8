"""What implements the operations of slots."""

from __future__ import annotations

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

MODULES = {
    "commands.command_queue": ("exec",),
    "file_access.files": ("read", "stat", "list", "remove", "write"),
    "file_access.copies": ("pack", "unpack", "give", "finish", "drop", "take"),
    "background.job_table": (
        *("job_list", "job_poll", "job_close", "job_resize"),
        *("job_start", "job_read", "job_wait", "job_write", "job_kill"),
    ),
    "tunnels": ("tunnel_listen", "tunnel_data", "tunnel_credit", "tunnel_close"),
}


class Operations:
    """The tables of operations. The module that implements one is imported when it is first requested."""

    def __init__(self) -> None:
        self.calls: dict[str, Callable[[Any, dict[str, Any], bytes], dict[str, Any]]] = {}
        """`op(slot, request, body)` returns the answer at once."""
        self.streams: dict[str, Callable[[Any, dict[str, Any]], Iterator[tuple[dict[str, Any], bytes]]]] = {}
        """`op(slot, request)` yields `{"part": …}` frames and last `{"ok": …}`; an empty header yields to others."""
        self.waits: dict[str, Callable[[Any, dict[str, Any], bytes, Any], Callable[[], None]]] = {}
        """`op(slot, request, body, answer)` calls `answer(values, body)` once, later, and returns what cancels it."""
        self.uploads: dict[str, Callable[[Any, dict[str, Any]], Any]] = {}
        """`op(slot, request)` returns an object with `add(data)`, `commit(sha256) -> dict` and `abort()`."""
        self._unloaded = {operation: module for module, operations in MODULES.items() for operation in operations}

    def load(self, operation: str) -> None:
        """Import the module of an operation, if that has not been done; not while acting as the user of a slot."""
        name = self._unloaded.get(operation)
        if name is not None:
            module = __import__(f"hermes_sandbox.agent.{name}", fromlist=["*"])
            tables: dict[str, dict[str, Any]] = {
                "CALLS": self.calls,
                "STREAMS": self.streams,
                "WAITS": self.waits,
                "UPLOADS": self.uploads,
            }
            for kind, table in tables.items():
                table.update(getattr(module, kind, {}))
            for each in MODULES[name]:
                del self._unloaded[each]
