"""Show how multi-turn token streams break: one scripted sampler, with hermes-tokens and every available peer.

`python -m benchmarks.tokens.scenarios` prints the table; `--peers-python` names the Python of an environment that has
the peers (each needs only what its token path imports), `--write` keeps the results in `scenarios.json` and
writes the README's table. The chat templates are those of the installed `trl`, the vocabulary is trained on the spot.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks.readme_marks import between
from benchmarks.tokens import conversations
from hermes_core.contracts.model import Conversation, ModelRequest, ToolSchemas
from hermes_core.contracts.tokens import IGNORED
from hermes_tokens import ChatTokenizer, TokenModel, create_generate_client

HERE: Final = Path(__file__).parent
RESULTS: Final = HERE / "scenarios.json"
README: Final = HERE.parents[1] / "plugins" / "hermes-tokens" / "README.md"
SUPPORT: Final = HERE.parents[1] / "plugins" / "hermes-tokens" / "tests" / "support"
MARK: Final = "token scenarios"
BEGIN: Final = f"<!-- {MARK}: begin, written by benchmarks/tokens/scenarios.py -->"
END: Final = f"<!-- {MARK}: end -->"
OURS: Final = "ours"
HARMLESS: Final = " (harmless)"
# Not installable as a package: its method, reimplemented from its source and measured in an earlier study.
CITED: Final[Mapping[str, Mapping[str, str]]] = {
    "verl ≤ 0.8": {
        "canonical": "1.00, 3 × separator lost",
        "non-canonical ids": "1.00, separator lost",
        "compact JSON args": "1.00, separator lost",
        "two calls + trailing text": "1.00, separator lost",
        "user message mid-way": "1.00",
        "cut at max_tokens": "close token missing",
        "hostile tool text": "foreign control tokens",
        "Qwen3.5-think: blank line before `</think>`": "error",
        "Qwen3.5-think + user message": "error",
    }
}

Job = dict[str, Any]
Result = dict[str, Any]


async def ours(job: Job) -> Result:
    """Run a case through a token session over HTTP; the exchanges come from the server's log."""
    if str(SUPPORT) not in sys.path:
        sys.path.insert(0, str(SUPPORT))
    tests = importlib.import_module("token_server")
    turns = iter(job["turns"])

    def sampler(_prompt: list[int], _sampling: Mapping[str, Any]) -> Any:
        turn = next(turns)
        ids, finish = turn["ids"], turn["finish_reason"]
        stop = ids[-1] if finish == "stop" else None
        return tests.Sampled(ids=ids, logprobs=[-0.5] * len(ids), finish_reason=finish, stop_id=stop)

    async with tests.serving_tokens(tests.TokenServer("vllm", sampler)) as server:
        model = TokenModel(create_generate_client("vllm", server.url, "m"), ChatTokenizer.load(job["folder"]))
        try:
            session = model.session("r")
            await _talk(session, job)
        finally:
            await model.aclose()
    return {
        "exchanges": [[line["prompt_ids"], line["ids"]] for line in server.lines],
        "samples": [[list(sample.tokens), list(sample.masks)] for sample in session.samples()],
        "report": session.exactness().to_json(),
    }


async def _talk(session: Any, job: Job) -> None:
    messages, tools = list(job["first"]), ToolSchemas.of(job["tools"])
    for turn in job["turns"]:
        await session.chat(ModelRequest(conversation=Conversation(messages), tools=tools, rollout_id="r"))
        messages += [turn["message"], *turn["new"]]


def score(job: Job, result: Result, harmless: Result | None = None) -> dict[str, Any]:
    """Judge the training data of one side: the last sample's share, and faults at its junctions."""
    if "exchanges" not in result:
        return dict(result)
    tokens, masks = _samples(result)[-1]
    sampled = sum(len(turn["ids"]) for turn in job["turns"])
    found = {
        "trained": round(sum(mask != IGNORED for mask in masks) / sampled, 4),
        "samples": len(_samples(result)),
        **_junctions(job, tokens),
    }
    if harmless is not None:
        controls = frozenset(job["controls"])
        counts = [sum(token in controls for token in _samples(each)[-1][0]) for each in (result, harmless)]
        found |= {"foreign": counts[0] - counts[1], "doubled": 0, "missing": 0, "lost": 0}
    return found


def _samples(result: Result) -> list[Any]:
    """Return a side's samples, or one for each prompt that does not extend all earlier tokens."""
    if "samples" in result:
        return list(result["samples"])
    exchanges = result["exchanges"]
    breaks = [
        place
        for place, ((prompt, ids), (following, _)) in enumerate(pairwise(exchanges))
        if following[: len(prompt) + len(ids)] != prompt + ids
    ]
    return [_merged(exchanges[: place + 1]) for place in (*breaks, len(exchanges) - 1)]


def _merged(exchanges: Sequence[Any]) -> list[list[int]]:
    """Return the last turn's ids; a turn has loss where the whole begins with its prompt and its sampled ids."""
    tokens = [*exchanges[-1][0], *exchanges[-1][1]]
    masks = [IGNORED] * len(tokens)
    for prompt, ids in exchanges:
        start, end = len(prompt), len(prompt) + len(ids)
        if tokens[:end] == prompt + ids:
            masks[start:end] = ids
    return [tokens, masks]


def _junctions(job: Job, tokens: Sequence[int]) -> dict[str, int]:
    """Count duplicate and missing close tokens, and openers right after a close token."""
    opener, close = job["opener"], job["close"]
    found = {"doubled": 0, "missing": 0, "lost": 0, "foreign": 0}
    last = close
    for place, token in enumerate(tokens):
        if token == close:
            found["doubled"] += last == close
        elif token == opener:
            found["missing"] += last == opener
            found["lost"] += place > 0 and tokens[place - 1] == close
        if token in {opener, close}:
            last = token
    return found


def scores(jobs: Sequence[Job], result: Mapping[str, Result]) -> dict[str, Any]:
    """Return one side's row entries."""
    return {
        job["name"]: score(job, result[job["name"]], result.get(job["name"] + HARMLESS))
        for job in jobs
        if not job["name"].endswith(HARMLESS)
    }


def measure_ours() -> dict[str, Any]:
    """Run every case on our side."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = conversations.jobs(Path(folder))
        return scores(jobs, {job["name"]: asyncio.run(ours(job)) for job in jobs})


def measure(peers_python: str) -> dict[str, Any]:
    """Run every case on every side."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        jobs = conversations.jobs(place)
        (place / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
        files = ["--jobs", str(place / "jobs.json"), "--out", str(place / "out.json")]
        command = [peers_python, "-m", "benchmarks.tokens.scenario_peers", *files]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        answered = json.loads((place / "out.json").read_text(encoding="utf-8"))
        own = {job["name"]: asyncio.run(ours(job)) for job in jobs}
        sides = {OURS: scores(jobs, own)}
        sides |= {side: scores(jobs, result) for side, result in answered["results"].items()}
    return {"versions": answered["versions"], "sides": sides, "met": is_exact(sides[OURS])}


def is_exact(found: Mapping[str, Any]) -> bool:
    """Whether a side trains everything, in one sample, without faults."""
    wanted = {"trained": 1.0, "samples": 1, "doubled": 0, "missing": 0, "lost": 0, "foreign": 0}
    return all(cell == wanted for cell in found.values())


def table(results: Mapping[str, Any]) -> str:
    """Render the results as Markdown."""
    sides = {side: cells for side, cells in results["sides"].items() if not _absent(cells)}
    names = [*sides, *(f"{name} (cited)" for name in CITED)]
    lines = [f"| scenario | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for case in conversations.CASES:
        cells = [_cell(found[case.name]) for found in sides.values()]
        lines.append(f"| {' | '.join([case.name, *cells, *(each[case.name] for each in CITED.values())])} |")
    versions = ", ".join(f"{name} {number}" for name, number in sorted(results["versions"].items()))
    lines += ["", f"Called in place: {versions}."]
    absent = ", ".join(side for side, cells in results["sides"].items() if _absent(cells))
    return "\n".join([*lines, *([f"Not installed: {absent}."] if absent else [])])


def _absent(cells: Mapping[str, Any]) -> bool:
    return any("absent" in cell for cell in cells.values())


_WORDS: Final = {
    "doubled": "{} × close token doubled",
    "missing": "{} × close token missing",
    "lost": "{} × separator lost",
    "foreign": "{} foreign control tokens",
}


def _cell(found: Mapping[str, Any]) -> str:
    if "unsupported" in found:
        return "not supported"
    if "error" in found:
        return f"error ({found['error'].split(':')[0]})"
    notes = [words.format(found[key]) for key, words in _WORDS.items() if found[key]]
    notes += [f"{found['samples']} samples"] if found["samples"] > 1 else []
    share = f"**{found['trained']:.2f}**" if found["trained"] < 1 else f"{found['trained']:.2f}"
    return ", ".join([share, *notes])


def with_table(readme: str, results: Mapping[str, Any]) -> str:
    """Return a README with the table in its place."""
    return between(readme, BEGIN, END, table(results))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--peers-python", default=sys.executable, help="a Python that has the peers")
    parser.add_argument("--write", action="store_true", help="keep the results and write the README's table")
    parser.add_argument("--table", action="store_true", help="only rewrite the README from the committed results")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if options.table else measure(options.peers_python)
    if options.write:
        RESULTS.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if options.write or options.table:
        README.write_text(with_table(README.read_text(encoding="utf-8"), results), encoding="utf-8")
    print(table(results))
    return 0 if results["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
