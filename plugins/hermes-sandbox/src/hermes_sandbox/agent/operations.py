"""The tables of a slot's operations, collected from the modules that implement them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hermes_sandbox.agent import tunnels
from hermes_sandbox.agent.background import job_table
from hermes_sandbox.agent.commands import command_queue
from hermes_sandbox.agent.file_access import copies, files

CALLS: Mapping[str, Callable[[Any, dict[str, Any], bytes], dict[str, Any]]] = {
    **copies.CALLS,
    **job_table.CALLS,
    **tunnels.CALLS,
}
"""`op(slot, request, body)` returns the answer at once."""
STREAMS: Mapping[str, Callable[[Any, dict[str, Any]], Iterator[tuple[dict[str, Any], bytes]]]] = {
    **copies.STREAMS,
    **files.STREAMS,
}
"""`op(slot, request)` yields `{"part": …}` frames and at last `{"ok": …}`; an empty header only yields to others."""
WAITS: Mapping[str, Callable[[Any, dict[str, Any], bytes, Any], Callable[[], None]]] = {
    **command_queue.WAITS,
    **job_table.WAITS,
}
"""`op(slot, request, body, answer)` calls `answer(values, body)` once, later, and returns a function to cancel it."""
UPLOADS: Mapping[str, Callable[[Any, dict[str, Any]], Any]] = files.UPLOADS
"""`op(slot, request)` returns an object with `add(data)`, `commit(sha256) -> dict` and `abort()`."""
