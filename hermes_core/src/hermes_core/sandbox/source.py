"""The agent as one text, and the few lines that receive it."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Final

_MODULES: Final = ("wire", "capture", "processes", "script", "order", "outputs", "shell", "files", "loop", "server")
_FUTURE: Final = "from __future__ import annotations"
_OWN_IMPORTS: Final = re.compile(
    r"^from (?:__future__|hermes_core\.sandbox\.agent\.\w+) import (?:\([^)]*\)|[^(\n]*)$", re.MULTILINE
)

# Reads the length (8 hexadecimal digits) and the text itself from descriptor 0, byte-exact, so that the frames which
# follow are left to the agent.
LOADER: Final = """
import os
def take(size):
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            raise SystemExit(3)
        data += more
    return data
exec(compile(take(int(take(8), 16)), "<hermes-agent>", "exec"), {"__name__": "__main__"})
"""

PYTHON_FLAGS: Final = ("-I", "-S", "-E", "-u", "-c", LOADER)
"""Arguments for any Python 3.8 or newer that make it wait for the agent on its standard input."""


@cache
def agent_source() -> str:
    """Return the agent: its modules joined, without the imports of each other."""
    folder = resources.files("hermes_core.sandbox.agent")
    texts = [(folder / f"{name}.py").read_text(encoding="utf-8") for name in _MODULES]
    return "\n".join([_FUTURE, *(_OWN_IMPORTS.sub("", text) for text in texts)])


def agent_message() -> bytes:
    """Return what has to be written first to the loader."""
    source = agent_source().encode()
    return b"%08x" % len(source) + source
