"""The core's own subcommands, with one line of help each; a plugin cannot declare one of these names."""

from __future__ import annotations

from typing import Final

CORE_COMMANDS: Final = {
    "run": "run the tasks of a file or folder against a model and record every rollout",
    "tasks": "check the rewards of a task set",
    "doctor": "say for every plugin and backend whether it works here, and what to do where it does not",
    "plugins": "list, show and diagnose plugins",
    "exactness": "check a run's samples against a log of what the server sampled",
    "serve-model": "serve an embedded model over the OpenAI protocol",
    "record": "log every exchange with a model server, as a proxy in front of it",
    "sandboxes": "list running sandboxes and remove what a killed process left behind",
    "report": "write the HTML report of a finished run",
}
