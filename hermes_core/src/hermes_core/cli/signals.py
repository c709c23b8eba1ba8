"""The signals that end a command."""

from __future__ import annotations

import signal


def end_signals() -> list[signal.Signals]:
    """Return SIGTERM, sent by schedulers, and SIGHUP, sent when a terminal or connection closes, unless ignored.

    `nohup` ignores SIGHUP so that its command goes on.
    """
    return [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
