"""Prepares command output for the model: removes escape sequences and final newlines, and shortens long output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from hermes_core.contracts.sandbox import ExecResult, Sandbox

OUTPUT_LIMIT: Final = 50_000
_HEAD_SHARE: Final = 0.4

ESCAPE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"
)
"""CSI sequences, OSC strings up to BEL or ST, and two-byte escapes."""
_NO_START: Final = (
    "cannot fork", "can't fork", "can't start new thread", "to create native thread", "to create new native thread",
    "to create new os thread", "what():  resource temporarily unavailable",
)  # fmt: skip
_STARTING: Final = ("fork", "clone", "spawn", "thread", "process")
_NO_ROOM: Final = ("resource temporarily unavailable", "eagain", "os error 11")
_FORK_IN_PYTHON: Final = "blockingioerror: [errno 11]"


def shorten_output(result: ExecResult, limit: int = OUTPUT_LIMIT) -> str:
    """Return the output without escape sequences; only its head and tail if it is longer than `limit` characters."""
    text = without_escapes(result.output).rstrip("\n")
    if len(text) <= limit:
        return text
    head = int(limit * _HEAD_SHARE)
    tail = len(text) - (limit - head)
    omitted, total = tail - head, len(text)
    besides = ""
    # The sandbox keeps a bounded amount and marks the gap with a line of its own, which is not the command's output.
    gap = f"\n[... {result.omitted_bytes} bytes omitted ...]\n"
    if result.truncated and gap in text[head:tail]:
        omitted, total = omitted - len(gap), total - len(gap)
        besides = f", besides {result.omitted_bytes} bytes that were not kept while the command ran"
    return f"{text[:head]}\n[OUTPUT TRUNCATED - {omitted} of {total} characters omitted here{besides}]\n{text[tail:]}"


def without_escapes(text: str) -> str:
    """Return the text without escape sequences."""
    return ESCAPE.sub("", text)


def process_limit_note(output: str, sandbox: Sandbox) -> str | None:
    """Return a note about the sandbox's process limit if a failed command's output says that no process could start."""
    if not _lacks_a_process(output.lower()):
        return None
    limits = sandbox.provenance.get("limits")
    limit = limits.get("pids") if isinstance(limits, Mapping) else None
    # With "none: ..." the sandbox has no limit, so it is not the reason.
    if not isinstance(limit, str) or not limit[:1].isdecimal():
        return None
    told = f"A process or thread could not be started; this sandbox's limit on them is {limit}."
    return f"{told} End some before you start more."


def _lacks_a_process(output: str) -> bool:
    # Plain searches instead of a regular expression, and only the last hundred hits: any output could be searched,
    # including output that was made to be slow to search.
    hits = [(words, around) for words in _NO_ROOM for around in pairwise(output.rsplit(words, 100))]
    near = (before.rpartition("\n")[2] + words + after.partition("\n")[0] for words, (before, after) in hits)
    if any(words in output for words in _NO_START) or any(word in line for line in near for word in _STARTING):
        return True
    # A socket without data to read raises the same error, so the traceback must show a fork. The traceback of a
    # program that was not read from a file (`File "<stdin>"`) shows no source lines.
    return _FORK_IN_PYTHON in output and ("fork" in output or 'file "<' in output)
