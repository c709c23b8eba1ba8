"""A local plugin that writes to a fifo when the second rollout begins."""

from __future__ import annotations

import os
from pathlib import Path

from hermes_core import hookimpl

_seen = []


@hookimpl
def hermes_rollout_started(event):
    _seen.append(event.rollout_id)
    if len(_seen) == 2 and (path := os.environ.get("HERMES_TEST_TELL")):
        Path(path).write_text("second")
