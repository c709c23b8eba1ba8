"""A plugin that writes down what it is told of background processes."""

from __future__ import annotations

from hermes_core import hookimpl

SEEN = []


@hookimpl
def hermes_process_updated(event):
    SEEN.append(event)
