"""Matching of the final answer or of a file, JSON schemas, and composition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.rollout import AgentResult, StopReason
from hermes_core.contracts.verifier import Score


async def on_answer(registry, name, options, answer):
    result = AgentResult(
        messages=(), turns_used=1, finished_naturally=True, stop_reason=StopReason.FINAL_ANSWER, final_response=answer
    )
    return await registry.create("verifier", name, options).score(result, None)


@pytest.mark.parametrize(
    ("options", "answer", "value"),
    [
        ({"expected": "Paris"}, " Paris\n", 1.0),
        ({"expected": "Paris"}, "paris", 0.0),
        ({"expected": "Paris", "ignore_case": True}, "PARIS", 1.0),
        ({"expected": ["a", "b"]}, "b", 1.0),
        ({"expected": "a  b", "collapse_whitespace": True}, "a b", 1.0),
        ({"expected": "a", "strip": False}, "a ", 0.0),
        ({"expected": "1\n2\n3\n4", "by": "lines"}, "1\n2\nx\n4", 0.75),
        ({"expected": "1\n2", "by": "lines"}, "1\n2\n3\n4", 0.5),
        ({"expected": "a"}, "", 0.0),
    ],
)
async def test_exact_match(registry, options, answer, value):
    assert (await on_answer(registry, "exact_match", options, answer)).value == value


@pytest.mark.parametrize(
    ("options", "answer", "value"),
    [
        ({"pattern": r"\bv\d+"}, "it is v12", 1.0),
        ({"pattern": r"v\d+", "mode": "fullmatch"}, "it is v12", 0.0),
        ({"pattern": "PASS", "ignore_case": True}, "pass", 1.0),
        ({"pattern": "a.b", "dotall": True}, "a\nb", 1.0),
        ({"patterns": {"x": "x", "y": "y"}, "weights": {"x": 3}}, "x", 0.75),
        ({"patterns": {"x": "x", "no": "sorry"}, "absent": ["no"]}, "x, sorry", 0.5),
    ],
)
async def test_regex_match(registry, options, answer, value):
    assert (await on_answer(registry, "regex_match", options, answer)).value == value


@pytest.mark.parametrize(
    ("options", "answer", "value"),
    [
        ({"expected": 42}, "The answer is 42.", 1.0),
        ({"expected": 1234567.5}, "about 1,234,567.5", 1.0),
        ({"expected": 3.14, "tolerance": 0.01}, "3.1416", 1.0),
        ({"expected": 3.14}, "3.1416", 0.0),
        ({"expected": 100, "relative_tolerance": 0.05}, "first 7, then 96", 1.0),
        ({"expected": 10, "zero_at": 4}, "11", 0.75),
        ({"expected": 10, "tolerance": 1, "zero_at": 5}, "13", 0.5),
        ({"expected": -5}, "it is -5", 1.0),
        ({"expected": 1e30}, "1e30", 1.0),
        ({"expected": 7, "pattern": r"= (?P<number>\d+)"}, "x = 7 (of 9)", 1.0),
        ({"expected": 7}, "none", 0.0),
        ({"expected": 7}, "1e999", 0.0),
    ],
)
async def test_numeric_match(registry, options, answer, value):
    assert (await on_answer(registry, "numeric_match", options, answer)).value == pytest.approx(value)


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("options", "answer", "value"),
    [
        ({"schema": SCHEMA}, '{"n": 1}', 1.0),
        ({"schema": SCHEMA}, 'Here:\n```json\n{"n": 1}\n```\nbye', 1.0),
        ({"schema": SCHEMA}, '{"n": "1"}', 0.0),
        ({"schema": SCHEMA, "parsed": 0.25}, '{"n": "1"}', 0.25),
        ({"schema": SCHEMA, "parsed": 0.25}, "{n: 1}", 0.0),
        ({"schema": {}}, "NaN", 0.0),
        ({"schema": {}}, "[" * 100_000, 0.0),
    ],
)
async def test_json_schema(registry, options, answer, value):
    assert (await on_answer(registry, "json_schema", options, answer)).value == value


async def test_a_schema_s_errors_are_named(registry):
    score = await on_answer(registry, "json_schema", {"schema": SCHEMA}, '{"n": "1"}')
    assert score.parts == {"parses": 1.0, "valid": 0.0}
    assert "$.n" in score.detail


async def test_files_are_judged_like_answers(judge_commands):
    assert (await judge_commands("exact_match", {"expected": "x", "file": "a"}, "echo x > a")).reward == 1.0
    assert (await judge_commands("numeric_match", {"expected": 5, "file": "a"}, "echo n=5 > a")).reward == 1.0
    assert (await judge_commands("json_schema", {"schema": SCHEMA, "file": "a"}, "echo '{\"n\": 2}' > a")).reward == 1.0
    missing = await judge_commands("regex_match", {"pattern": "", "file": "a"}, "ln -s /etc/passwd a")
    assert (missing.reward, missing.reward_detail) == (0.0, "a leads out of the workspace")


@given(answer=st.text(max_size=60))
async def test_whatever_is_answered_gets_a_score_within_bounds(registry, answer):
    for name, options in (
        ("exact_match", {"expected": "x\ny", "by": "lines"}),
        ("regex_match", {"patterns": {"a": "a+", "b": "."}}),
        ("numeric_match", {"expected": 3, "zero_at": 100}),
        ("json_schema", {"schema": SCHEMA, "parsed": 0.5}),
    ):
        score = await on_answer(registry, name, options, answer)
        assert isinstance(score, Score)
        assert 0.0 <= score.value <= 1.0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("exact_match", {"expected": ""}),
        ("exact_match", {"expected": []}),
        ("regex_match", {"pattern": "("}),
        ("regex_match", {}),
        ("regex_match", {"patterns": {"a": "a"}, "weights": {"b": 1}}),
        ("numeric_match", {"expected": float("nan")}),
        ("numeric_match", {"expected": 1, "tolerance": -1}),
        ("json_schema", {"schema": {"type": "objekt"}}),
        ("weighted", {"parts": []}),
        ("gated", {"gates": []}),
        ("weighted", {"parts": [{"name": "x", "weight": float("inf")}]}),
    ],
)
def test_options_that_could_not_judge_are_refused(registry, name, options):
    with pytest.raises(ConfigError):
        registry.create("verifier", name, options)


FILE_A = {"name": "file_content", "options": {"checks": [{"path": "a", "exists": True}]}}
ANSWER = {"name": "exact_match", "options": {"expected": "done"}, "label": "answer"}


async def test_weighted_is_the_weighted_mean_with_a_breakdown(judge_commands):
    outcome = await judge_commands("weighted", {"parts": [{**FILE_A, "weight": 3}, ANSWER]}, answer="done")
    assert outcome.reward == 0.25
    assert outcome.reward_parts == {"file_content": 0.0, "file_content/a": 0.0, "answer": 1.0, "answer/match": 1.0}


async def test_a_closed_gate_leaves_nothing_and_hides_no_part(judge_commands):
    options = {"gates": [FILE_A], "parts": [ANSWER, {**FILE_A, "weight": 1, "label": "again"}]}
    closed = await judge_commands("gated", options, answer="done")
    assert closed.reward == 0.0
    assert closed.reward_parts["answer"] == 1.0
    assert "gate not passed: file_content" in closed.reward_detail
    opened = await judge_commands("gated", options, "touch a", answer="other")
    assert opened.reward == 0.5


async def test_gates_alone_are_all_or_nothing(judge_commands):
    half = {"name": "exact_match", "options": {"expected": "done\nmore", "by": "lines"}}
    assert (await judge_commands("gated", {"gates": [half]}, answer="done")).reward == 0.0
    assert (await judge_commands("gated", {"gates": [{**half, "at_least": 0.5}]}, answer="done")).reward == 1.0


async def test_a_part_that_cannot_be_judged_makes_the_whole_so(judge_commands):
    broken = {"name": "script", "options": {"script": "true", "reward": "report"}}
    outcome = await judge_commands("weighted", {"parts": [ANSWER, broken]}, answer="done")
    assert (outcome.reward, outcome.reward_status) == (None, "error")
