"""The agent as one text, and the few lines that receive it."""

from __future__ import annotations

import marshal
import re
import sys
import threading
from functools import cache
from importlib import resources
from importlib.util import MAGIC_NUMBER
from typing import Final

from hermes_sandbox.agent.loader import LOADER

_MODULES: Final = (
    "wire",
    "loader",
    "commands/capture",
    "processes",
    "pids_group",
    "launch",
    "process_bound",
    "slot",
    "commands/script",
    "commands/write_order",
    "commands/late_output",
    "commands/outputs",
    "commands/fifos",
    "commands/session",
    "commands/robust",
    "commands/live_shell",
    "commands/live",
    "commands/command_queue",
    "background/ring_buffer",
    "background/job_input",
    "background/terminal_pty",
    "background/terminate",
    "background/jobs",
    "background/job_table",
    "file_access/files",
    "file_access/archive_format",
    "file_access/packing",
    "file_access/atomic_file",
    "file_access/unpacking",
    "file_access/copies",
    "slot_lifecycle",
    "sweeping/writable_places",
    "sweeping/removal",
    "sweeping/ipc_objects",
    "sweeping/sweeper",
    "tunnels",
    "seccomp",
    "loop",
    "server",
)
"""In the order in which each needs those before it; `server`, which runs the agent, is last."""
_COMPILING: Final = threading.Lock()
_FUTURE: Final = "from __future__ import annotations"
_OWN_IMPORTS: Final = re.compile(
    r"^from (?:__future__|hermes_sandbox\.agent[\w.]+) import (?:\([^)]*\)|[^(\n]*)$", re.MULTILINE
)

PYTHON_FLAGS: Final = ("-I", "-S", "-E", "-u", "-c", LOADER)
"""Arguments for any Python 3.8 or newer that make it wait for the agent on its standard input."""


@cache
def agent_source() -> str:
    """Return the agent: its modules joined, without the imports of each other."""
    folder = resources.files("hermes_sandbox.agent")
    texts = [(folder / f"{name}.py").read_text(encoding="utf-8") for name in _MODULES]
    return "\n".join([_FUTURE, *(_OWN_IMPORTS.sub("", text) for text in texts)])


def agent_message() -> bytes:
    """Return what has to be written first to the loader; the first call compiles the agent, so call it in a thread."""
    with _COMPILING:
        return _message()


@cache
def _message() -> bytes:
    source = agent_source().encode()
    code = marshal.dumps(compile(source, "<hermes-agent>", "exec", dont_inherit=True))
    version = f"{sys.implementation.cache_tag} {MAGIC_NUMBER.hex()}"
    return b"%08x%08x" % (len(code), len(source)) + version.encode().ljust(32) + code + source
