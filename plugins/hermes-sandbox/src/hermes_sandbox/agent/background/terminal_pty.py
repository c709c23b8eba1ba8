"""A terminal for one process, managed by ptyprocess, whose text the client sends when it is first needed."""

from __future__ import annotations

import errno
import os
import sys
import termios

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


class Terminal:
    """The `master` end is the agent's; `slave` is for the process: close it after the start.

    ptyprocess never waits for the process: that would hide the end from the agent's loop.
    """

    def __init__(self, rows: int, cols: int, owner: int | None) -> None:
        module: Any = sys.modules.get("ptyprocess")
        if module is None:
            # On this error the client sends it, and tries again.
            raise OSError(errno.ENOPKG, "ptyprocess has not been sent")
        self.master, self.slave = os.openpty()
        self._process = module.PtyProcess(0, self.master)
        # Otherwise it would end the process when this object is deleted.
        self._process.closed = True
        self.resize(rows, cols)
        if owner is not None:
            os.fchown(self.slave, owner, -1)

    def resize(self, rows: int, cols: int) -> None:
        """Change its size; its programs get a signal."""
        self._process.setwinsize(rows, cols)

    def end_of_file(self) -> bytes:
        """Return its current end-of-file character."""
        return bytes(termios.tcgetattr(self.master)[6][termios.VEOF])

    def close(self) -> None:
        """Close the agent's end, which sends a hangup to processes that hold the other."""
        self._process.fileobj.close()
