"""Runs spython in a separate process: its calls block, know no timeout, and fail on output that is not UTF-8.

Arguments: where to import from, as a JSON list, then `build SOURCE TARGET FORMAT [OPTION...]`, or `instances`, which
prints their names as a JSON list. PATH must lead to a program called `singularity`, the only name that spython calls.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any


def build(client: Any, source: str, target: str, form: str, options: list[str]) -> int:
    """Build an image; what counts is whether it is there afterwards, since spython returns no status."""
    try:
        client.build(recipe=source, image=target, sandbox=form == "sandbox", sudo=False, options=options, force=True)
    except UnicodeDecodeError as error:
        # The program had ended by then: only its complaint could not be shown.
        sys.stdout.write(f"what it said is not UTF-8: {error}\n")
    return 0 if Path(target).exists() else 1


def instances(client: Any) -> int:
    """Print the names of the instances of this user."""
    found = client.instances(return_json=True, quiet=True) or []
    sys.stdout.write(json.dumps([entry["instance"] for entry in found]) + "\n")
    return 0


def end_with_caller() -> None:
    """Kill all processes started here when the caller, at the other end of standard input, has ended."""
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> int:
    """Run the command line."""
    threading.Thread(target=end_with_caller, daemon=True).start()
    where, action, *arguments = sys.argv[1:]
    sys.path[:] = json.loads(where)
    # By name: it has no types.
    client = import_module("spython.main").Client

    if action == "instances":
        return instances(client)
    source, target, form, *options = arguments
    return build(client, source, target, form, options)


if __name__ == "__main__":
    sys.exit(main())
