"""The signals by which others end a command."""

from __future__ import annotations

import signal


def end_signals() -> list[signal.Signals]:
    """Return SIGTERM, which schedulers send, and SIGHUP, of a closed terminal or a broken connection, unless ignored.

    `nohup` ignores the latter, and what it starts is to go on.
    """
    return [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
