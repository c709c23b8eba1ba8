"""A plugin that records the events of background processes."""

from __future__ import annotations

from hermes_core import hookimpl

SEEN = []


@hookimpl
def hermes_process_updated(event):
    SEEN.append(event)
