"""Runs spython in a separate process, because its calls block, have no timeout, and fail on output that is not UTF-8.

Arguments: the import paths as a JSON list, then `build SOURCE TARGET FORMAT [OPTION...]`, or `instances`, which prints
the names of instances as a JSON list. PATH must contain a program named `singularity`, the only name that spython
calls.
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
    """Build an image; success means that the image exists afterwards, because spython returns no status."""
    try:
        client.build(recipe=source, image=target, sandbox=form == "sandbox", sudo=False, options=options, force=True)
    except UnicodeDecodeError as error:
        # The program had ended by then; only its output could not be read.
        sys.stdout.write(f"the program's output is not UTF-8: {error}\n")
    return 0 if Path(target).exists() else 1


def instances(client: Any) -> int:
    """Print the names of the instances of this user."""
    found = client.instances(return_json=True, quiet=True) or []
    sys.stdout.write(json.dumps([entry["instance"] for entry in found]) + "\n")
    return 0


def end_with_caller() -> None:
    """Kill this process group when the caller, at the other end of standard input, has ended."""
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> int:
    """Run the command line."""
    threading.Thread(target=end_with_caller, daemon=True).start()
    where, action, *arguments = sys.argv[1:]
    sys.path[:] = json.loads(where)
    # Imported by name, because it has no types.
    client = import_module("spython.main").Client

    if action == "instances":
        return instances(client)
    source, target, form, *options = arguments
    return build(client, source, target, form, options)


if __name__ == "__main__":
    sys.exit(main())
