"""The published comparison of parsers is whole, and its column for hermes-parsers is what they do now."""

from __future__ import annotations

import importlib
import json
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

import hermes_parsers

ROOT = Path(__file__).parents[2]
RESULTS = json.loads((ROOT / "benchmarks" / "parsers" / "behaviours.json").read_text(encoding="utf-8"))
ENGINES = ("hermes-parsers", "vllm", "sglang")


@pytest.fixture
def comparison(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.parsers.behaviours")


@pytest.mark.parametrize("family", RESULTS["families"])
def test_the_column_for_hermes_parsers_is_what_they_do_now(comparison, family):
    wire = next(wire for wire in comparison.WIRES if wire.family == family)
    now = comparison.our_verdicts(wire)
    assert now == RESULTS["families"][family]["hermes-parsers"], "run python -m benchmarks.parsers.behaviours --write"


def test_every_family_has_a_verdict_of_everybody_on_every_behaviour(comparison):
    wanted = {
        (wire.family, engine, key) for wire in comparison.WIRES for engine in ENGINES for key in comparison.TITLES
    }
    families = RESULTS["families"].items()
    found = {(family, engine, key) for family, by in families for engine, verdicts in by.items() for key in verdicts}
    assert found == wanted


def test_whoever_fails_has_a_reason_beside_it():
    verdicts = [verdict for by in RESULTS["families"].values() for keys in by.values() for verdict in keys.values()]
    assert [verdict for verdict in verdicts if verdict["result"] == "fail" and not verdict["why"]] == []


@pytest.mark.skipif(find_spec("vllm") is not None or find_spec("sglang") is not None, reason="a peer is installed")
def test_a_peer_that_is_not_installed_is_named_instead_of_judged(comparison):
    wire = next(wire for wire in comparison.WIRES if wire.family == "hermes")
    jobs = [job for job in comparison.peer_jobs([wire]) if job["behaviour"] == "several"]
    answers = comparison.ask_peers(Path(sys.executable), jobs)["results"]
    for job, answer in zip(jobs, answers, strict=True):
        verdicts = comparison.peer_verdicts(wire, job["peer"], {"several": [answer]})
        assert verdicts["several"]["result"] == "not measured"
        assert f"{job['peer']} is not installed" in verdicts["several"]["why"]


def test_the_message_that_is_timed_is_code_that_every_family_reads_with_the_tools_everybody_gets(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    parsers = importlib.import_module("benchmarks.parsers.speed")
    asked = {job["family"]: job for job in parsers.peer_jobs()}
    timed = []

    def record_rounds(measured):
        timed.append(measured)
        return dict.fromkeys(measured, 1.0)

    for family in parsers.families():
        text, document = parsers.message(family)
        calls = json.loads(document)
        parser = hermes_parsers.get_parser(family.parser)
        found = [json.loads(call.arguments) for call in parser.parse(text, parsers.TOOLS).calls]
        assert found == [call["arguments"] for call in calls], family.name
        content = calls[0]["arguments"]["content"]
        assert all(mark in content for mark in ("\n", "\t", '"', "'", "\\\\", "\\n", "{", "<", "&")), family.name
        if family.name in asked:
            assert asked[family.name]["text"] == text
            assert asked[family.name]["tools"] == parsers.TOOLS
        monkeypatch.setattr(parsers, "_rounds", record_rounds)
        parsers.speed(family)
        with watch_tools(parser, monkeypatch) as tools:
            timed[-1]["parse"]()
            timed[-1]["stream"]()
        assert len(tools) >= 2, family.name
        assert all(given == parsers.TOOLS for given in tools), family.name


@contextmanager
def watch_tools(parser, monkeypatch):
    """Note the tools that a parser is given."""
    seen = []
    with monkeypatch.context() as patched:
        for name in ("parse", "stream"):
            own = getattr(type(parser), name)

            def note_tools(self, *arguments, _own=own):
                seen.append(arguments[-1])
                return _own(self, *arguments)

            patched.setattr(type(parser), name, note_tools)
        yield seen
