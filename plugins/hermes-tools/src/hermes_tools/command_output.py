"""The output of commands as a model reads it: without escape sequences and last newlines, and cut where it is long."""

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
    """Return the output without escape sequences, head and tail of it when it is longer than `limit` characters."""
    text = without_escapes(result.output).rstrip("\n")
    if len(text) <= limit:
        return text
    head = int(limit * _HEAD_SHARE)
    tail = len(text) - (limit - head)
    omitted, total = tail - head, len(text)
    besides = ""
    # The sandbox bounds what it keeps and says so in a line of its own, which is not the command's output.
    gap = f"\n[... {result.omitted_bytes} bytes omitted ...]\n"
    if result.truncated and gap in text[head:tail]:
        omitted, total = omitted - len(gap), total - len(gap)
        besides = f", besides {result.omitted_bytes} bytes that were not kept while the command ran"
    return f"{text[:head]}\n[OUTPUT TRUNCATED - {omitted} of {total} characters omitted here{besides}]\n{text[tail:]}"


def without_escapes(text: str) -> str:
    """Return the text without escape sequences."""
    return ESCAPE.sub("", text)


def process_limit_note(output: str, sandbox: Sandbox) -> str | None:
    """Say what limits the sandbox's processes, where the output of what has failed tells that one could not start."""
    if not _lacks_a_process(output.lower()):
        return None
    limits = sandbox.provenance.get("limits")
    limit = limits.get("pids") if isinstance(limits, Mapping) else None
    # Where it is "none: ..." the sandbox has no part in it.
    if not isinstance(limit, str) or not limit[:1].isdecimal():
        return None
    told = f"A process or thread could not be started; this sandbox's limit on them is {limit}."
    return f"{told} End some before you start more."


def _lacks_a_process(output: str) -> bool:
    # Plain searches, no expression, and the last hundred hits: a command may print whatever makes more slow.
    hits = [(words, around) for words in _NO_ROOM for around in pairwise(output.rsplit(words, 100))]
    near = (before.rpartition("\n")[2] + words + after.partition("\n")[0] for words, (before, after) in hits)
    if any(words in output for words in _NO_START) or any(word in line for line in near for word in _STARTING):
        return True
    # It is also what a socket says that has nothing to read. Of a program that comes in no file no line is shown.
    return _FORK_IN_PYTHON in output and ("fork" in output or 'file "<' in output)
