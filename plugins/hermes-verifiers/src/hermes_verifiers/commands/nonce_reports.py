"""Read the lines of a report that carry this run's nonce."""

from __future__ import annotations

import json
import secrets
from typing import Any


def new_nonce() -> str:
    """Return a nonce, a word that nothing in the sandbox can know before the run."""
    return secrets.token_hex(16)


def lines_with(nonce: str, output: bytes) -> list[str]:
    """Return the text after the nonce on each line that begins with it."""
    mark = nonce.encode() + b" "
    return [line[len(mark) :].decode("utf-8", "replace") for line in output.split(b"\n") if line.startswith(mark)]


def objects_with(nonce: str, output: bytes) -> list[dict[str, Any]]:
    """Return the JSON objects on such lines, except a line that a crash cut off."""
    objects = []
    for line in lines_with(nonce, output):
        try:
            objects.append(json.loads(line))
        except ValueError:
            continue
    return [item for item in objects if isinstance(item, dict)]
