"""Run regular expressions on text of a model in a child process that can be stopped.

A pattern like `(a+)+$` takes exponential time on certain texts, and `re` blocks the whole process meanwhile: other
rollouts, timeouts, Ctrl-C. In a child process it costs only processor time.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field

from hermes_core.contracts.errors import VerifierError
from hermes_verifiers.texts.pattern_worker import OUT_OF_MEMORY

MAX_MEMORY: Final = 2 * 2**30

PatternSeconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]

_PROGRAM: Final = str(Path(__file__).with_name("pattern_worker.py"))


class Exhausted(Exception):  # noqa: N818 - not an error: the text is scored low
    """The text exceeded the limit of time or memory. The score is 0, because the model wrote the text."""


class Search(NamedTuple):
    """One pattern and one text; the mode `last` finds the last match."""

    pattern: str
    text: str
    flags: int = 0
    mode: Literal["search", "fullmatch", "last"] = "search"


async def search_all(searches: Sequence[Search], *, timeout: float) -> list[tuple[int, int] | None]:
    """Run all searches in one child process; return where each matched (its group `number`, if it has one).

    Raises:
        Exhausted: all searches together took more than `timeout` seconds of processor time.
    """
    if not searches:
        return []
    texts = {text: at for at, text in enumerate(dict.fromkeys(search.text for search in searches))}
    asked = [(one.pattern, int(one.flags), one.mode, texts[one.text]) for one in searches]
    request = {"task": "search", "texts": list(texts), "searches": asked}
    spans = await _in_child(request, timeout=timeout, what="the patterns")
    return [None if span is None else (span[0], span[1]) for span in spans]


async def validate(text: str, schema: dict[str, Any], *, timeout: float) -> tuple[list[str], str]:
    """Return a JSON text's first schema errors, or why it is not JSON.

    Raises:
        Exhausted: this took more than `timeout` seconds of processor time.
    """
    request = {"task": "validate", "text": text, "schema": schema, "path": sys.path}
    answer = await _in_child(request, timeout=timeout, what="the schema")
    return answer["errors"], answer["problem"]


async def _in_child(request: dict[str, Any], *, timeout: float, what: str) -> Any:
    bounded = {**request, "cpu_seconds": timeout, "memory": MAX_MEMORY}
    data = json.dumps(bounded, ensure_ascii=False).encode("utf-8", "surrogatepass")
    code, stdout, stderr = await _run(data)
    if code == -signal.SIGPROF:
        raise Exhausted(f"{what} took more than {timeout:g} s on this text; a simpler pattern might not")
    if code == OUT_OF_MEMORY:
        raise Exhausted(f"{what} took more than {MAX_MEMORY // 2**20} MiB on this text")
    if code != 0:
        last = stderr.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1][-300:]
        raise VerifierError(f"{what} cannot be used: {last or f'the child process ended with {code}'}")
    return json.loads(stdout)


async def _run(data: bytes) -> tuple[int, bytes, bytes]:
    """Run the child program to its end; cancelling this kills it."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-I", "-S", _PROGRAM)
    # A separate session: Ctrl-C in the terminal is meant for the run, which may let this rollout finish.
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
    try:
        stdout, stderr = await process.communicate(data)
    except BaseException:
        if process.returncode is None:
            process.kill()
        # The pipes must be read to their end, or their transports outlive the event loop.
        await process.communicate()
        raise
    return await process.wait(), stdout, stderr
