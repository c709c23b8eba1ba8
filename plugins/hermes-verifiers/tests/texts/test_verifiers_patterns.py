"""Patterns and schemas on text that is slow on purpose."""

from __future__ import annotations

import asyncio
import signal

import pytest

from hermes_core.contracts.errors import ConfigError, VerifierError
from hermes_core.contracts.rollout import AgentResult, StopReason
from hermes_testing.watching import eventually

SLOW = r"(a+)+$"
HOSTILE = "a" * 39 + "b"
SLOW_SCHEMA = {"type": "object", "properties": {"n": {"pattern": SLOW}}}
HOSTILE_JSON = f'{{"n": "{HOSTILE}"}}'

CASES = [
    ("regex_match", {"pattern": SLOW}, HOSTILE),
    ("regex_match", {"patterns": {"fast": "b", "slow": SLOW}, "absent": ["slow"]}, HOSTILE),
    ("numeric_match", {"expected": 1, "pattern": SLOW}, HOSTILE),
    ("json_schema", {"schema": SLOW_SCHEMA, "parsed": 0.5}, HOSTILE_JSON),
    ("json_schema", {"schema": {"patternProperties": {SLOW: {}}}, "parsed": 0.5}, f'{{"{HOSTILE}": 1}}'),
]


async def on_answer(registry, name, options, answer):
    result = AgentResult(
        messages=(), turns_used=1, finished_naturally=True, stop_reason=StopReason.FINAL_ANSWER, final_response=answer
    )
    return await registry.create("verifier", name, options).score(result, None)


@pytest.fixture
def children(monkeypatch):
    """The child processes that were started."""
    started = []
    start = asyncio.create_subprocess_exec

    async def record_start(*args, **options):
        started.append(await start(*args, **options))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", record_start)
    return started


@pytest.mark.parametrize(("name", "options", "answer"), CASES)
async def test_a_hostile_text_scores_zero_and_holds_up_nothing(registry, children, name, options, answer):
    scoring = asyncio.ensure_future(on_answer(registry, name, {**options, "timeout": 0.5}, answer))
    turns = 0
    while not scoring.done():
        await asyncio.wait([scoring], timeout=0.01)
        turns += 1
    score = scoring.result()
    assert turns > 5
    assert score.value == 0.0
    assert set(score.parts.values()) == {0.0}
    assert "more than 0.5 s on this text" in score.detail
    assert [child.returncode for child in children] == [-signal.SIGPROF]


@pytest.mark.parametrize(("name", "options", "answer"), CASES[::3])
async def test_cancelling_a_score_kills_the_child(registry, children, name, options, answer):
    scoring = asyncio.ensure_future(on_answer(registry, name, {**options, "timeout": 3600}, answer))
    assert await eventually(lambda: children != [])
    scoring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scoring
    assert [child.returncode for child in children] == [-signal.SIGKILL]


async def test_a_hostile_file_scores_zero(judge_commands):
    checks = [{"path": "a", "contains": "b", "weight": 9}, {"path": "a", "regex": ["a", SLOW], "name": "slow"}]
    outcome = await judge_commands("file_content", {"checks": checks, "timeout": 0.5}, f"echo {HOSTILE} > a")
    assert (outcome.reward, outcome.reward_status) == (0.0, "ok")
    assert outcome.reward_parts == {"a": 0.0, "slow": 0.0}
    assert "more than 0.5 s" in outcome.reward_detail


async def test_all_patterns_of_a_verifier_share_one_child(registry, children):
    options = {"patterns": {"a": "a", "b": "b", "c": "^c"}, "weights": {"b": 2}}
    score = await on_answer(registry, "regex_match", options, "a b c")
    assert (score.value, score.parts) == (0.75, {"a": 1.0, "b": 1.0, "c": 0.0})
    assert len(children) == 1


async def test_each_check_of_a_file_gets_its_own_matches(judge_commands):
    checks = [
        {"path": "a", "regex": ["^one$", "^TWO$"], "ignore_case": True, "name": "both"},
        {"path": "a", "contains": "three", "regex": "one", "name": "neither"},
        {"path": "a", "regex": ["one", "three"], "name": "half"},
        {"path": "b", "absent": True, "name": "gone"},
        {"path": "a", "regex": "two", "name": "last"},
    ]
    outcome = await judge_commands("file_content", {"checks": checks}, "printf 'one\\ntwo\\n' > a")
    assert outcome.reward_parts == {"both": 1.0, "neither": 0.0, "half": 0.0, "gone": 1.0, "last": 1.0}


@pytest.mark.parametrize("answer", ["\udcff 7", "\ud83d\ude00 7", "\U0001f600 7", "٣ 7", "\x00\u2028 7"])
async def test_any_character_reaches_the_child_as_it_is(registry, answer):
    assert (await on_answer(registry, "numeric_match", {"expected": 7}, answer)).value == 1.0


async def test_a_text_that_takes_all_memory_scores_zero(registry, monkeypatch):
    monkeypatch.setattr("hermes_verifiers.texts.patterns.MAX_MEMORY", 64 * 2**20)
    answer = "ab" * 5_000_000
    options = {"pattern": "(?:(a)|(b))*c", "max_chars": len(answer)}
    score = await on_answer(registry, "regex_match", options, answer)
    assert (score.value, score.detail) == (0.0, "the patterns took more than 64 MiB on this text")


async def test_a_schema_that_cannot_be_used_gives_no_score(registry):
    with pytest.raises(VerifierError, match="Unresolvable"):
        await on_answer(registry, "json_schema", {"schema": {"$ref": "http://127.0.0.1:9/x"}}, "1")


@pytest.mark.parametrize("limits", [{"timeout": 0}, {"timeout": float("inf")}, {"max_chars": -1}, {"max_chars": 2**40}])
def test_limits_that_are_none_are_refused(registry, limits):
    with pytest.raises(ConfigError):
        registry.create("verifier", "regex_match", {"pattern": "a", **limits})
