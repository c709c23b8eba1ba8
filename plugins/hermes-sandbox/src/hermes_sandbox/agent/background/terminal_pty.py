"""A terminal for one process: made here, and kept by ptyprocess, which arrives as text when it is first needed."""

from __future__ import annotations

import errno
import os
import sys
import termios
from typing import Any


class Terminal:
    """The `master` end is the agent's; `slave` is for the process, and has to be closed when it has been started.

    The object of ptyprocess is never asked to wait for the process: that would take its end away from the agent's loop.
    """

    def __init__(self, rows: int, cols: int, owner: int | None) -> None:
        module: Any = sys.modules.get("ptyprocess")
        if module is None:
            # The client sends it then, and asks again.
            raise OSError(errno.ENOPKG, "ptyprocess has not been sent")
        self.master, self.slave = os.openpty()
        self._process = module.PtyProcess(0, self.master)
        # Otherwise it would look after a process by itself when this object goes.
        self._process.closed = True
        self.resize(rows, cols)
        if owner is not None:
            os.fchown(self.slave, owner, -1)

    def resize(self, rows: int, cols: int) -> None:
        """Change its size; what runs on it is told by a signal."""
        self._process.setwinsize(rows, cols)

    def end_of_file(self) -> bytes:
        """Return the character that ends its input now."""
        return bytes(termios.tcgetattr(self.master)[6][termios.VEOF])

    def close(self) -> None:
        """Close the agent's end, which hangs up on whatever still holds the other."""
        self._process.fileobj.close()
