"""A local plugin that kills its own process with SIGKILL at the n-th event of a kind."""

from __future__ import annotations

import os
import signal

from hermes_core import hookimpl

_hook, _, _count = os.environ.get("HERMES_TEST_KILL", ":0").partition(":")
_left = {_hook: int(_count or 0)}


def _count_down(hook):
    if hook in _left:
        _left[hook] -= 1
        if _left[hook] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


@hookimpl
def hermes_rollout_started(event):
    _count_down("started")


@hookimpl
def hermes_tool_called(event):
    _count_down("tool")


@hookimpl
def hermes_rollout_scored(event):
    _count_down("scored")


@hookimpl
def hermes_rollout_finished(event):
    _count_down("finished")
