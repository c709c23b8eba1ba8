"""The program that matches and validates text of a model; `patterns` runs it as a child process.

It runs by its path without `site`, so that it starts fast: only the standard library is imported at the top.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import resource
import signal
import sys
from typing import Any, Final

OUT_OF_MEMORY: Final = 3

_FENCE: Final = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)


def main() -> int:
    """Read a request from stdin, bound this process, and write the answer to stdout."""
    request = json.load(io.TextIOWrapper(sys.stdin.buffer, "utf-8", "surrogatepass"))
    _bound(cpu_seconds=request["cpu_seconds"], memory=request["memory"])
    try:
        answer = _search(request) if request["task"] == "search" else _validate(request)
    except MemoryError:
        return OUT_OF_MEMORY
    json.dump(answer, sys.stdout)
    return 0


def _bound(*, cpu_seconds: float, memory: int) -> None:
    """Let the kernel end this process, because Python code cannot interrupt `re`.

    The limit is processor time, so a busy machine does not shorten it.
    """
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    if sys.platform == "linux":
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _search(request: dict[str, Any]) -> list[tuple[int, int] | None]:
    texts = request["texts"]
    return [_span(mode, re.compile(pattern, flags), texts[at]) for pattern, flags, mode, at in request["searches"]]


def _span(mode: str, pattern: re.Pattern[str], text: str) -> tuple[int, int] | None:
    if mode == "fullmatch":
        found = pattern.fullmatch(text)
    elif mode == "last":
        found = None
        for found in pattern.finditer(text):  # noqa: B007 - only the last one is wanted
            pass
    else:
        found = pattern.search(text)
    if found is None:
        return None
    return found.span("number" if "number" in pattern.groupindex else 0)


def _validate(request: dict[str, Any]) -> dict[str, Any]:
    """Parse the text and list the first errors; a `problem` says why the text is not JSON."""
    sys.path[:] = request["path"]
    from jsonschema import Draft202012Validator
    from referencing import Registry

    validator = Draft202012Validator(request["schema"], registry=Registry())
    try:
        found = itertools.islice(validator.iter_errors(_parse(request["text"])), 4)
        return {"errors": [f"{error.json_path}: {error.message[:150]}" for error in found], "problem": ""}
    except (ValueError, RecursionError) as error:
        return {"errors": [], "problem": f"no JSON: {error}"}


def _parse(text: str) -> Any:
    """Parse the text, or else its last fenced block."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        blocks = _FENCE.findall(text)
        if not blocks:
            raise
        return json.loads(blocks[-1], parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


if __name__ == "__main__":
    sys.exit(main())
