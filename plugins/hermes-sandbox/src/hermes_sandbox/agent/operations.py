"""The tables of a slot's operations. The module that implements one is imported when it is first requested."""

from __future__ import annotations

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

CALLS: dict[str, Callable[[Any, dict[str, Any], bytes], dict[str, Any]]] = {}
"""`op(slot, request, body)` returns the answer at once."""
STREAMS: dict[str, Callable[[Any, dict[str, Any]], Iterator[tuple[dict[str, Any], bytes]]]] = {}
"""`op(slot, request)` yields `{"part": …}` frames and at last `{"ok": …}`; an empty header only yields to others."""
WAITS: dict[str, Callable[[Any, dict[str, Any], bytes, Any], Callable[[], None]]] = {}
"""`op(slot, request, body, answer)` calls `answer(values, body)` once, later, and returns a function to cancel it."""
UPLOADS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {}
"""`op(slot, request)` returns an object with `add(data)`, `commit(sha256) -> dict` and `abort()`."""

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
_unloaded = {operation: module for module, operations in MODULES.items() for operation in operations}


def load_operation(operation: str) -> None:
    """Import the module of an operation, if that has not been done, and add what it implements to the tables."""
    name = _unloaded.pop(operation, None)
    if name is not None:
        module = __import__(f"hermes_sandbox.agent.{name}", fromlist=["*"])
        tables: dict[str, dict[str, Any]] = {"CALLS": CALLS, "STREAMS": STREAMS, "WAITS": WAITS, "UPLOADS": UPLOADS}
        for kind, table in tables.items():
            table.update(getattr(module, kind, {}))


def load_all_operations() -> None:
    """Import the modules of all operations, for an agent that will act as users who may not read Python's files."""
    for operation in list(_unloaded):
        load_operation(operation)
