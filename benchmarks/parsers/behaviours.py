"""Compare hermes-parsers with vLLM's and SGLang's parsers, behaviour by behaviour and family by family.

Usage: python -m benchmarks.parsers.behaviours --write [--peers-python PATH] [--family NAME …]
       python -m benchmarks.parsers.behaviours --table

`--write` runs hermes-parsers again and writes behaviours.json beside this file. The peers run in the Python of an
environment that has them; without `--peers-python` their results in that file are kept. `--table` prints the README's
table from it. The messages are those of `cases`, in the wire formats of `wire_formats`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

from benchmarks.parsers.cases import AFTER, BEFORE, BEHAVIOURS, SEARCH, TOOLS, WEATHER
from benchmarks.parsers.peer_names import FAMILIES
from benchmarks.parsers.wire_formats import WIRES, Wire

RESULTS: Final = Path(__file__).with_suffix(".json")
_ROOT: Final = Path(__file__).resolve().parents[2]
OURS: Final = "hermes-parsers"
PEERS: Final = ("vllm", "sglang")
MARKS: Final = {"pass": "✓", "fail": "✗", "not offered": "-", "not measured": "?", "does not apply": "·"}
Verdict = dict[str, str]


def _verdict(result: str, why: str = "") -> Verdict:
    return {"result": result, **({"why": why} if why else {})}


def _judged(why: str) -> Verdict:
    return _verdict("fail", why) if why else _verdict("pass")


def ask_ours(wire: Wire, job: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a job with hermes-parsers."""
    from hermes_parsers import get_parser

    parser = get_parser(wire.parser)
    # An exception is a result here, as for the peers.
    try:
        if "deltas" not in job:
            result = parser.parse(job["text"], TOOLS)
            return {"content": result.content, "calls": [[call.name, call.arguments] for call in result.calls]}
        stream = parser.stream(TOOLS)
        events = [event for delta in job["deltas"] for event in stream.feed("".join(delta))]
        events += stream.finish()
    except Exception as error:  # noqa: BLE001 - as above
        return {"error": f"{type(error).__name__}: {error}"[:200]}
    content = "".join(event.text for event in events if event.kind == "text")
    return {"content": content, "calls": [[event.call.name, event.call.arguments] for event in events if event.call]}


def reports(wire: Wire) -> str:
    """Return why an unreadable call is not reported with its status, place and reason."""
    from hermes_parsers import get_parser

    text = wire.calls([WEATHER, None, SEARCH])
    attempts = [attempt for attempt in get_parser(wire.parser).parse(text, TOOLS).attempts if attempt.status != "ok"]
    if len(attempts) != 1:
        return f"reports {len(attempts)} bad attempts instead of 1"
    attempt = attempts[0]
    found = text[attempt.start : attempt.end]
    return "" if attempt.reason and "path" in found and "city" not in found else f"reports {found!r}"


def renders(wire: Wire) -> str:
    """Return why the parsed message is not written back byte for byte."""
    from hermes_parsers import get_parser

    parser = get_parser(wire.parser)
    text = wire.before(BEFORE) + wire.calls([WEATHER, SEARCH]) + wire.after(AFTER)
    written = parser.render(parser.parse(text, TOOLS))
    return "" if written == text else f"writes {written[:120]!r}"


OWN: Final[tuple[tuple[str, str, Callable[[Wire], str]], ...]] = (
    ("reports", "an unreadable call is reported with status, place and reason", reports),
    ("renders", "what was parsed is written back byte for byte", renders),
)
TITLES: Final = {
    **{behaviour.key: behaviour.title for behaviour in BEHAVIOURS},
    **{key: title for key, title, _ in OWN},
}


def our_verdicts(wire: Wire) -> dict[str, Verdict]:
    """Judge hermes-parsers for one family."""
    from hermes_parsers import list_parsers

    if wire.parser not in list_parsers():
        return {key: _verdict("not offered") for key in TITLES}
    verdicts: dict[str, Verdict] = {}
    for behaviour in BEHAVIOURS:
        jobs = behaviour.jobs(wire)
        answers = [ask_ours(wire, job) for job in jobs]
        verdicts[behaviour.key] = _judged(behaviour.judge(wire, answers)) if jobs else _verdict("does not apply")
    return {**verdicts, **{key: _judged(judge(wire)) for key, _, judge in OWN}}


def peer_jobs(wires: Sequence[Wire]) -> Iterator[dict[str, Any]]:
    """Yield the jobs for both peers, each with its family and behaviour."""
    for wire in wires:
        for peer in PEERS:
            for behaviour in BEHAVIOURS:
                for job in behaviour.jobs(wire):
                    marks = {"peer": peer, "family": wire.family, "behaviour": behaviour.key}
                    yield {**job, **marks, "tools": TOOLS}


def ask_peers(python: Path, jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Run the jobs in the peers' Python; returns versions and results."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "jobs.json"), Path(folder, "results.json")
        asked.write_text(json.dumps(jobs), encoding="utf-8")
        command: list[str | Path] = [
            python,
            "-m",
            "benchmarks.parsers.peer_answers",
            "--jobs",
            asked,
            "--out",
            answered,
        ]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=_ROOT)
        if done.returncode:
            raise SystemExit(f"{python} could not ask the peers:\n{done.stderr[-2000:]}")
        answers: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
        return answers


def peer_verdicts(wire: Wire, peer: str, answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Verdict]:
    """Judge one peer for one family by its results, per behaviour."""
    if getattr(FAMILIES[wire.family], peer) is None:
        unasked, why = FAMILIES[wire.family].unmeasured
        verdict = _verdict("not measured", why) if unasked == peer else _verdict("not offered")
        return {**dict.fromkeys(TITLES, verdict), **_own_only()}
    verdicts: dict[str, Verdict] = {}
    for behaviour in BEHAVIOURS:
        found = answers.get(behaviour.key, ())
        missing = next((answer["missing"] for answer in found if "missing" in answer), None)
        if not found:
            verdicts[behaviour.key] = _verdict("does not apply")
        elif missing:
            verdicts[behaviour.key] = _verdict("not measured", missing)
        else:
            verdicts[behaviour.key] = _judged(behaviour.judge(wire, found))
    return {**verdicts, **_own_only()}


def _own_only() -> dict[str, Verdict]:
    return {key: _verdict("not offered") for key, _, _ in OWN}


def write(python: Path | None, families: Sequence[str]) -> None:
    """Judge and write the results."""
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"peers": {}, "families": {}}
    wires = [wire for wire in WIRES if not families or wire.family in families]
    table = results["families"]
    for wire in wires:
        table.setdefault(wire.family, {})[OURS] = our_verdicts(wire)
    if python:
        jobs = list(peer_jobs(wires))
        found = ask_peers(python, jobs)
        results["peers"] = found["versions"]
        for wire in wires:
            for peer in PEERS:
                answers: dict[str, list[Any]] = {}
                for job, answer in zip(jobs, found["results"], strict=True):
                    if (job["family"], job["peer"]) == (wire.family, peer):
                        answers.setdefault(job["behaviour"], []).append(answer)
                table[wire.family][peer] = peer_verdicts(wire, peer, answers)
    unasked = dict.fromkeys(TITLES, _verdict("not measured", "not asked yet"))
    for by_engine, peer in product(table.values(), PEERS):
        by_engine.setdefault(peer, unasked)
    results["behaviours"] = TITLES
    results["families"] = {wire.family: table[wire.family] for wire in WIRES if wire.family in table}
    RESULTS.write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def table(results: Mapping[str, Any]) -> str:
    """Return the README's table: a cell has our mark, vLLM's and SGLang's, in this order."""
    keys = list(results["behaviours"])
    engines = (OURS, *PEERS)
    lines = ["| family | " + " | ".join(str(number) for number in range(1, len(keys) + 1)) + " |"]
    lines.append("|---" * (len(keys) + 1) + "|")
    for family, by_engine in results["families"].items():
        cells = ["".join(MARKS[by_engine[engine][key]["result"]] for engine in engines) for key in keys]
        lines.append(f"| {family} | " + " | ".join(cells) + " |")
    legend = [f"{number}. {results['behaviours'][key]}" for number, key in enumerate(keys, 1)]
    marks = ", ".join(f"{mark} {meaning}" for meaning, mark in MARKS.items())
    peers = results["peers"]
    head = f"Each cell: hermes-parsers, vLLM {peers.get('vllm')}, SGLang {peers.get('sglang')} ({marks})."
    return "\n".join([head, "", *lines, "", _totals(results, engines), "", *legend])


def _totals(results: Mapping[str, Any], engines: Sequence[str]) -> str:
    parts = []
    for engine in engines:
        verdicts = [verdict["result"] for by in results["families"].values() for verdict in by[engine].values()]
        asked = verdicts.count("pass") + verdicts.count("fail")
        parts.append(f"{engine} {verdicts.count('pass')} of {asked}")
    return f"Passed of what applies and is offered: {', '.join(parts)}."


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="run again and write the results")
    what.add_argument("--table", action="store_true", help="print the README's table from the written results")
    parser.add_argument("--peers-python", type=Path, help="a Python with vLLM and SGLang; else their results are kept")
    parser.add_argument("--family", action="append", default=[], help="only this family, may be given again")
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.peers_python, arguments.family)
    else:
        print(table(json.loads(RESULTS.read_text(encoding="utf-8"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
