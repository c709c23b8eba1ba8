"""The shell program for sandboxes without Python, and the arguments that start a shell which waits for it."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# `read` takes one byte at a time, so that it consumes nothing after the program.
_LOADER: Final = 'IFS= read -r text; eval "$(printf %b "$text")"'


def shell_command(prepare: str = "", *, shell: str = "sh") -> tuple[str, ...]:
    """Return the arguments that make any POSIX shell wait on its standard input for the program that serves a sandbox.

    Args:
        prepare: Shell text that runs first, once.
        shell: Its name or path.
    """
    start = f'{prepare}\neval "$1"' if prepare else 'eval "$1"'
    return ("env", "-i", f"PATH={_PATH}", "LC_ALL=C", shell, "-c", start, "hermes", _LOADER)


@cache
def shell_message() -> bytes:
    """Return the first message to such a shell: the program, as one line."""
    text = (resources.files("hermes_sandbox.posix_shell") / "program.sh").read_bytes()
    return text.replace(b"\\", b"\\0134").replace(b"\n", b"\\0012") + b"\n"
