"""Run vLLM's tool parsers and SGLang's function-call detectors on jobs.

Runs with the Python of an environment that has the peers (standard library and the peers only):
    python -m benchmarks.parsers.peer_answers --jobs JOBS.json --out RESULTS.json

A job is {"peer", "family", "text" or "deltas", "tools", "reasoning", "time"}; its result has "content" and "calls"
(name and arguments as text), or "error" (what the peer raised), or "missing" (why the peer is not available). "deltas"
are lists of tokens, one list per streamed piece. "time" measures for this many seconds instead, and gives "parse_s" (on
a ready parser) and "request_s" (with building the parser, as the servers do for every request).
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final

from benchmarks.parsers.peer_engines import VLLM, Missing, SGLang, installed
from benchmarks.parsers.peer_names import FAMILIES

LIMIT_S: Final = 10.0
PEERS: Final = ("vllm", "sglang")


class _Overtime(BaseException):
    """Ends the peer's code; not an Exception, which the peer might catch."""


def time_parse(family: str, text: str, tools: Sequence[Any], *, seconds: float = 1.0) -> dict[str, dict[str, Any]]:
    """Measure both peers on one text: the best seconds on a ready parser, and with building it as per request."""
    return {
        peer: _answer({"peer": peer, "family": family, "text": text, "tools": tools, "time": seconds}, ())
        for peer in PEERS
    }


def _best(run: Callable[[], object], seconds: float) -> float:
    """Return the minimum of many rounds, like our own measurement, because other load only adds time."""
    run()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        samples.append(time.perf_counter() - start)
    return min(samples)


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def overtime(_signal: int, _frame: FrameType | None) -> None:
        raise _Overtime

    before = signal.signal(signal.SIGALRM, overtime)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _answer(job: dict[str, Any], tokens: Iterable[str]) -> dict[str, Any]:
    try:
        names = FAMILIES[job["family"]]
        if getattr(names, job["peer"]) is None:
            peer, why = names.unmeasured
            return {"missing": why if peer == job["peer"] else f"{job['peer']} has no parser for {job['family']}"}
        engine = _engine(job["peer"], job["family"], tuple(tokens), reasoning=job.get("reasoning", False))
        with _limited(LIMIT_S):
            return _work(engine, job)
    except Missing as reason:
        return {"missing": str(reason)}
    except _Overtime:
        return {"error": f"did not end within {LIMIT_S:.0f} s"}
    # An exception of a peer is a result.
    except Exception as error:  # noqa: BLE001 - as above
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]}


def _work(engine: VLLM | SGLang, job: dict[str, Any]) -> dict[str, Any]:
    if job.get("time"):
        ready, request = engine.timed(job["text"], job["tools"])
        return {"parse_s": _best(ready, job["time"]), "request_s": _best(request, job["time"])}
    if job.get("deltas"):
        return engine.streamed(job["deltas"], job["tools"])
    return engine.whole(job["text"], job["tools"])


@cache
def _engine(peer: str, family: str, tokens: tuple[str, ...], *, reasoning: bool) -> VLLM | SGLang:
    return (VLLM if peer == "vllm" else SGLang)(family, tokens, reasoning=reasoning)


def answer_all(jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answer the jobs in order; a family's tokenizer has the tokens of all its jobs."""
    tokens: dict[str, set[str]] = {}
    for job in jobs:
        tokens.setdefault(job["family"], set()).update(token for delta in job.get("deltas") or () for token in delta)
    ordered = {family: tuple(sorted(found)) for family, found in tokens.items()}
    return [_answer(job, ordered[job["family"]]) for job in jobs]


def versions() -> dict[str, str]:
    """Return the versions of the peers that are here."""
    found: dict[str, str] = {}
    for peer in PEERS:
        try:
            found[peer] = installed(peer)
        except Missing:
            continue
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=Path, required=True, help="a JSON list of jobs")
    parser.add_argument("--out", type=Path, required=True, help="where to write the results (the peers log to stdout)")
    arguments = parser.parse_args()
    results = answer_all(json.loads(arguments.jobs.read_text(encoding="utf-8")))
    arguments.out.write_text(json.dumps({"versions": versions(), "results": results}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
