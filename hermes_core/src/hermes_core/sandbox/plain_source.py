"""The shell program of sandboxes without Python, and the arguments that start it."""

from __future__ import annotations

from importlib import resources
from typing import Final

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROGRAM: Final = (resources.files("hermes_core.sandbox") / "plain_program.sh").read_text(encoding="utf-8")


def shell_command(prepare: str = "", *, shell: str = "sh") -> tuple[str, ...]:
    """Return the arguments that make any POSIX shell serve a sandbox on its standard streams.

    Args:
        prepare: Shell text that runs first, once.
        shell: Its name or path.
    """
    start = f'{prepare}\neval "$1"' if prepare else 'eval "$1"'
    return ("env", "-i", f"PATH={_PATH}", "LC_ALL=C", shell, "-c", start, "hermes", _PROGRAM)
