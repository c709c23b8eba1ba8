"""The numbers of a run, by hand and by brute force, and the table a person reads."""

from __future__ import annotations

import io
import itertools
import json
import math
import pickle
from typing import Any

import pytest
import sample_run
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from hermes_core.cli import one_line
from hermes_core.contracts.errors import Blame
from hermes_core.contracts.rollout import Failure, RewardStatus, RolloutOutcome, StopReason, Timings, ToolError
from hermes_core.contracts.tokens import Exactness
from hermes_runner.report.failure_groups import OTHER_MESSAGES
from hermes_runner.report.summary import OTHER_NAMES, SummaryBuilder, pass_at_k, pass_at_ks, render_summary


def outcome(task: str = "a", reward: float | None = 1.0, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "rollout_id": "r", "task_id": task, "group_id": task, "index": 0, "split": "train", "seed": 0, "messages": [],
        "turns": 2, "stop_reason": StopReason.FINAL_ANSWER, "reward": reward,
        "reward_status": RewardStatus.SKIPPED if reward is None else RewardStatus.OK,
    }  # fmt: skip
    return RolloutOutcome(**{**values, **changes}).to_json()


def build(*outcomes: dict[str, Any], run: dict[str, Any] | None = None) -> dict[str, Any]:
    builder = SummaryBuilder()
    for one in outcomes:
        builder.add(one)
    summary = builder.build(run=run or {})
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    return summary


def render(summary: dict[str, Any], width: int = 80, **options: Any) -> str:
    stream = io.StringIO()
    render_summary(summary, Console(file=stream, width=width), **options)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (1, "1 sampled token was drawn under a mask; its sample is marked"),
        (1200, "1,200 sampled tokens were drawn under a mask; their samples are marked"),
    ],
)
def test_tokens_under_a_mask_are_told_in_a_sentence(tokens, said):
    counts = Exactness(sampled=tokens, trained=tokens, constrained=tokens)
    assert said in " ".join(render(build(outcome(exactness=counts)), width=160).split())


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
@settings(max_examples=60, deadline=None)
def test_pass_at_k_is_the_share_of_draws_that_hold_a_pass(case):
    n, passed, k = case
    draws = list(itertools.combinations([True] * passed + [False] * (n - passed), k))
    assert pass_at_k(n, passed, k) == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.parametrize(("n", "passed", "k"), [(4, 5, 1), (4, -1, 1), (4, 1, 0), (4, 1, 5)])
def test_pass_at_k_refuses_numbers_without_an_answer(n, passed, k):
    with pytest.raises(ValueError, match="pass@k: expected 0 <= passed <= n"):
        pass_at_k(n, passed, k)


@pytest.mark.parametrize(("n", "ks"), [(0, []), (1, [1]), (4, [1, 2, 4]), (6, [1, 2, 4, 6])])
def test_ks_are_the_powers_of_two_and_the_group_size(n, ks):
    assert pass_at_ks(n) == ks


def test_means_over_tasks_and_over_rollouts_are_told_apart():
    summary = build(outcome("a", 1.0), outcome("b", 0.0), outcome("b", 0.5), outcome("b", 0.25))
    assert summary["reward"]["mean_over_tasks"] == pytest.approx((1.0 + 0.25) / 2)
    assert summary["reward"]["mean_over_rollouts"] == pytest.approx(1.75 / 4)
    assert (summary["reward"]["min"], summary["reward"]["max"]) == (0.0, 1.0)
    a, b = summary["tasks"]
    assert (a["task_id"], a["n"], a["mean_reward"], a["std_reward"], a["pass@1"]) == ("a", 1, 1.0, 0.0, 1.0)
    assert b["std_reward"] == pytest.approx(math.sqrt((0.25**2 + 0.25**2) / 3))
    assert b["pass@k"] == {"1": 0.0, "2": 0.0, "3": 0.0}


def test_attempts_beyond_the_first_are_counted_by_cause():
    builder = SummaryBuilder()
    builder.add(outcome(attempt=3))
    for failed in ({"stop_reason": StopReason.MODEL_ERROR}, {"reward_status": RewardStatus.ERROR}):
        builder.add_attempt(outcome(reward=None, **failed))
    summary = builder.build(run={})
    assert summary["rollouts"]["retries"] == 2
    assert summary["rollouts"]["retry_causes"] == {"model_error": 1, "verifier_error": 1}
    assert "2 attempts were repeated: model_error 1, verifier_error 1" in render(summary)
    assert "repeated" not in render(build(outcome()))


def test_controls_and_verifiers_that_took_too_long_are_counted():
    slow = Failure(blame=Blame.VERIFIER, type="VerifierTimeoutError", message="took more than 5 s")
    summary = build(
        outcome(provenance={"verification": {"control": {"problem": ""}}}),
        outcome(reward=None, reward_status=RewardStatus.ERROR, reward_failure=slow),
        outcome(provenance={"verification": {"inputs": {}}}),
    )
    assert summary["verification"] == {"controls": 1, "timeouts": 1}
    text = " ".join(render(summary, width=200).split())
    assert "for 1 rollout an untouched sandbox of the task was judged too" in text
    assert "1 rollout has no reward because its verifier took too long" in text
    assert "untouched" not in render(build(outcome()))


def test_pass_at_k_of_a_task_by_hand():
    summary = build(*(outcome("a", reward) for reward in (1.0, 0.0, 0.0, 1.0 - 1e-10)), run={"group_size": 4})
    assert summary["tasks"][0]["pass@k"] == pytest.approx({"1": 0.5, "2": 1 - 1 / 6, "4": 1.0})
    assert summary["pass"]["pass@k"]["2"] == {"mean_over_tasks": pytest.approx(5 / 6), "tasks": 1}


def test_pass_at_k_says_of_how_many_tasks_it_is_the_mean():
    group = [outcome("a", 1.0), outcome("a", 0.0), outcome("b", 0.0), outcome("b", None)]
    summary = build(*group, run={"group_size": 2})
    assert summary["pass"]["pass@k"]["1"] == {"mean_over_tasks": 0.25, "tasks": 2}
    assert summary["pass"]["pass@k"]["2"] == {"mean_over_tasks": 1.0, "tasks": 1}
    assert "pass@2 100% (of 1 task)" in render(summary)


def test_a_rollout_without_a_reward_is_left_out_and_never_a_zero():
    """In hermes-agent an infrastructure failure scored 0.0 and lowered the mean."""
    failure = {"blame": "backend", "type": "SandboxLostError", "message": "gone"}
    lost = outcome("a", None, stop_reason=StopReason.TOOL_BACKEND_ERROR) | {"failure": failure}
    summary = build(outcome("a", 1.0), lost, outcome("b", None, reward_status=RewardStatus.ERROR))
    assert summary["reward"]["mean_over_tasks"] == 1.0
    assert summary["rollouts"]["left_out"] == 2
    assert [task["mean_reward"] for task in summary["tasks"]] == [1.0, None]
    assert summary["rollouts"]["reward_status"] == {"error": 1, "ok": 1, "skipped": 1}
    assert "2 of 3 rollouts have no reward" in render(summary)


def test_a_dropped_rollout_counts_in_no_statistic_and_its_cause_is_shown():
    kept = [outcome("a", 1.0, reward_parts={"x": 1.0}), outcome("a", 1.0, disposition="mask"), outcome("b", 0.0)]
    dropped = [
        outcome("a", 0.0, disposition="drop", stop_reason=StopReason.MAX_TURNS, reward_parts={"x": 0.0}),
        outcome("b", 1.0, disposition="drop", stop_reason=StopReason.MAX_TURNS),
        outcome("b", None, disposition="drop", reward_status=RewardStatus.ERROR),
    ]
    with_them, without = build(*kept, *dropped, run={"group_size": 2}), build(*kept, run={"group_size": 2})
    assert with_them["reward"] == without["reward"]
    assert with_them["pass"] == without["pass"]
    numbers = ("n", "passed", "mean_reward", "std_reward", "pass@1", "pass@k")
    for one, other in zip(with_them["tasks"], without["tasks"], strict=True):
        assert [one[name] for name in numbers] == [other[name] for name in numbers]
    assert [(task["left_out"], task["dropped"]) for task in with_them["tasks"]] == [(1, 1), (2, 2)]
    rollouts = with_them["rollouts"]
    counts = {name: rollouts[name] for name in ("total", "scored", "left_out", "dropped", "masked", "no_reward")}
    assert counts == {"total": 6, "scored": 3, "left_out": 3, "dropped": 3, "masked": 1, "no_reward": 0}
    assert rollouts["drop_causes"] == {"max_turns": 2, "verifier_error": 1}
    text = render(with_them, 100)
    assert "3 of 6 rollouts, excluded from means: max_turns 2, verifier_error 1" in text
    assert "1 of 6 rollouts: in the means, but not trained on" in text
    assert "no reward" not in text


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_is_left_out(reward):
    summary = build(outcome("a", 0.5), outcome("a", reward))
    assert (summary["reward"]["mean_over_rollouts"], summary["rollouts"]["left_out"]) == (0.5, 1)


def test_rollouts_are_counted_by_split():
    """In hermes-agent evaluation was mixed into training without a label."""
    summary = build(outcome(split="eval"), outcome(split="train"), outcome(split="train"))
    assert summary["rollouts"]["split"] == {"train": 2, "eval": 1}


def outcome_with_failure(kind: str, message: str) -> dict[str, Any]:
    return outcome(reward=None) | {"failure": {"blame": "model", "type": kind, "message": message}}


def test_failures_are_grouped_by_cause_with_an_example():
    broken = outcome(reward=None) | {"reward_failure": {"blame": "verifier", "type": "VerifierError", "message": "?"}}
    same = [
        outcome_with_failure("A", "no such image\n  → pull it"),
        outcome_with_failure("A", "no such image\n  → build it"),
    ]
    summary = build(outcome_with_failure("A", "disk full"), *same, outcome_with_failure("B", "x"), broken)
    groups = [(f["phase"], f["blame"], f["type"], f["count"], f["message"]) for f in summary["failures"]]
    assert groups[0] == ("rollout", "model", "A", 2, "no such image\n  → pull it")
    assert ("rollout", "model", "A", 1, "disk full") in groups
    assert ("reward", "verifier", "VerifierError", 1, "?") in groups
    text = render(summary)
    assert "2 x A (rollout, model) no such image" in text
    assert "1 x A (rollout, model) disk full" in text


def test_endless_messages_hide_no_other_kind_of_failure_and_all_are_counted():
    summary = build(
        *(outcome_with_failure("A", f"lost {number}") for number in range(600)), outcome_with_failure("B", "x")
    )
    shown, more = summary["failures"], summary["more_failures"]
    assert len(shown) == 20
    assert "B" in [group["type"] for group in shown]
    assert shown[0]["message"] == OTHER_MESSAGES
    assert sum(group["count"] for group in shown) + more["count"] == 601
    text = render(summary)
    assert text.count(" x A ") + text.count(" x B ") == 5
    assert "… 15 more kinds in summary.json" in text
    assert f"… {more['kinds']} more kinds ({more['count']} failures) in rollouts.jsonl" in text


def test_errors_of_plugins_and_sinks_are_shown():
    event = {"plugin": "acme", "hook": "hermes_on_turn", "kind": "error", "count": 3, "message": "\x1b[2J"}
    text = render(build(outcome(), run={"event_problems": [event] * 6, "sink_errors": {"wandb: gone": 2}}), 100)
    assert "3 x acme, hermes_on_turn (error): \\x1b[2J" in text
    assert "1 more in summary.json" in text
    assert "2 x wandb: gone" in text
    assert "plugin error" in text
    assert "sink error" in text
    without = render(build(outcome(), run={"event_problems": [], "sink_errors": {}}))
    assert "plugin error" not in without
    assert "sink error" not in without


def test_tools_that_are_not_offered_are_told():
    text = render(build(outcome(), run={"skipped_toolsets": ["tmux: cannot be used here", "web: not installed"]}), 100)
    assert "not offered tmux: cannot be used here; 1 more in summary.json" in " ".join(text.split())
    assert "not offered" not in render(build(outcome(), run={"skipped_toolsets": []}))


WORKERS = [
    {"worker": "w1", "node": "ab12cd34ef56ab", "lost": None},
    {"worker": "w2", "node": "ab12cd34ef56ab", "lost": None},
    {"worker": "w3", "node": "99", "lost": "the node has died"},
]


def test_the_engines_workers_and_nodes_of_a_run_are_shown():
    local, ray = ({"provenance": {"engine": {"name": name}}} for name in ("local", "ray"))
    engine = {"name": "ray", "workers": WORKERS, "lost_workers": 1, "unconfirmed": 2}
    summary = build(*[outcome(**ray)] * 3, outcome(**local), run={"engine": engine})
    assert summary["rollouts"]["engine"] == {"ray": 3, "local": 1}
    text = render(summary, 100)
    assert "ray: 3 workers on 2 nodes, 1 lost" in text
    assert "ray 3, local 1" in text
    assert "w3 on node 99: the node has died" in text
    assert "2 cancelled rollouts: hermes-core sandboxes gc where they ran" in text


def test_a_run_in_the_command_s_own_process_says_so():
    text = render(build(outcome(provenance={"engine": {"name": "local"}}), run={"engine": {"name": "local"}}))
    assert "local, in the command's own process" in text
    assert "run by" not in text


@pytest.mark.parametrize("engine", ["odd", {"name": "odd", "workers": 3}, {"name": "odd", "workers": ["w1", None]}])
def test_engine_facts_in_another_form_are_ignored(engine):
    assert "workers on" not in render(build(outcome(provenance={"engine": engine}), run={"engine": engine}))


def test_tool_errors_are_counted_by_tool_whatever_names_the_model_invents():
    def wrong(name: str) -> ToolError:
        return ToolError(turn=1, tool_name=name, arguments="", error="", tool_result="")

    many = [wrong(f"invented-{number}") for number in range(700)]
    summary = build(outcome(tool_errors=[wrong("terminal"), wrong("terminal"), wrong("x" * 10_000), *many]))
    by_tool = summary["tool_errors"]["by_tool"]
    assert summary["tool_errors"]["total"] == sum(by_tool.values()) == 703
    assert by_tool["terminal"] == 2
    assert by_tool[OTHER_NAMES] > 100
    assert max(map(len, by_tool)) <= 100


def test_time_is_split_and_speed_counts_this_session_alone():
    timings = Timings(total=10.0, model=6.0, tool=2.0, sandbox_start=1.0, verifier=0.5, framework=0.5)
    builder = SummaryBuilder()
    builder.add(outcome(timings=timings), earlier=True)
    builder.add(outcome(timings=timings))
    summary = builder.build(run={"wall_seconds": 4.0})
    assert summary["time"]["shares"] == pytest.approx(
        {"model": 0.6, "tool": 0.2, "sandbox_start": 0.1, "verifier": 0.05, "framework": 0.05}
    )
    assert summary["time"]["seconds"]["model"] == 12.0
    assert summary["speed"]["turns_per_second"] == 0.5
    assert summary["speed"]["rollouts_per_second"] == 0.25
    assert summary["turns"] == {"total": 4, "mean": 2.0}


def test_tokens_and_counters_are_added_up():
    counters = {"prompt_tokens": 10, "completion_tokens": 2, "tool_calls_attempted": 3}
    summary = build(outcome(counters=counters), outcome(counters=counters))
    assert summary["tokens"] == {"prompt": 20, "completion": 4, "mean_per_rollout": 12.0}
    assert summary["counters"]["tool_calls_attempted"] == 6


def test_calls_that_were_lost_with_their_sandbox_are_shown():
    text = render(build(*[outcome(counters={"sandbox_recoveries": 1})] * 2), 100)
    assert "2 calls lost with a sandbox that was restarted" in text
    assert "recovered" not in render(build(outcome()))


def test_the_metrics_of_hermes_agent_keep_their_names():
    git, text = {"metadata": {"category": "git"}}, {"category": "text"}
    error = ToolError(turn=1, tool_name="t", arguments="", error="", tool_result="")
    summary = build(
        outcome("a", 1.0, provenance=git), outcome("b", 0.0, provenance=git, tool_errors=[error]),
        outcome("c", 1.0, provenance=text), outcome("d", None),
    )  # fmt: skip
    assert summary["metrics"] == {
        "eval/pass_rate": pytest.approx(2 / 3),
        "eval/pass_rate_git": 0.5,
        "eval/pass_rate_text": 1.0,
        "eval/total_tasks": 4,
        "eval/scored_tasks": 3,
        "eval/passed_tasks": 2,
        "train/tool_errors_count": 1,
        "train/tool_parse_errors": 0,
    }


def test_provenance_keeps_what_all_rollouts_share():
    one = {"backend": "local", "sandbox": {"kind": "bwrap", "pid": 1}}
    other = {"backend": "local", "sandbox": {"kind": "bwrap", "pid": 2}, "extra": True}
    summary = build(outcome(provenance=one), outcome(provenance=other))
    assert summary["provenance"] == {"backend": "local", "sandbox": {"kind": "bwrap"}}


def test_an_empty_run_gives_nulls():
    summary = build()
    assert summary["reward"]["mean_over_tasks"] is None
    assert summary["metrics"]["eval/pass_rate"] is None
    assert summary["speed"]["turns_per_second"] is None
    assert summary["time"]["shares"]["model"] is None
    assert summary["tasks"] == []
    assert "0/0" in render(summary)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.floats(-2, 2)), max_size=25))
@settings(max_examples=50, deadline=None)
def test_running_sums_agree_with_the_whole_list(rollouts):
    summary = build(*(outcome(task, reward) for task, reward in rollouts))
    rewards = [reward for _, reward in rollouts if reward is not None]
    assert summary["rollouts"]["scored"] == len(rewards)
    assert summary["rollouts"]["total"] == len(rollouts)
    mean = sum(rewards) / len(rewards) if rewards else None
    assert summary["reward"]["mean_over_rollouts"] == (None if mean is None else pytest.approx(mean, abs=1e-9))


def test_memory_does_not_grow_with_rollouts():
    builder = SummaryBuilder()
    messages = [{"role": "user", "content": "x" * 10_000}]
    sizes = []
    for _ in range(2):
        for _ in range(20):
            builder.add(outcome(messages=messages))
        sizes.append(len(pickle.dumps(vars(builder))))
    assert sizes[1] - sizes[0] < 200


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_the_terminal_and_cuts_names_not_numbers(width):
    summary = build(*sample_run.outcomes(), run=sample_run.RUN)
    text = render(summary, width, paths=["out/report.html"])
    assert max(map(len, text.splitlines())) <= width
    for number in ("164/200", "pass@8", "errors", "0.714"):
        assert number in text
    assert text.rstrip().endswith("out/report.html")


@pytest.mark.parametrize("width", [40, 50, 60])
def test_a_narrow_terminal_gets_fewer_columns_and_whole_words(width):
    text = render(build(*sample_run.outcomes(), run=sample_run.RUN), width)
    head, hidden = text.splitlines()[0], next(line for line in text.splitlines() if line.startswith("no room for: "))
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in head
    columns = {*head.split()[1:], *hidden.removeprefix("no room for: ").split(", ")}
    assert columns == {"scored", "mean", "std", "pass@1", "pass@8", "turns", "errors"}


def test_rows_beyond_the_maximum_are_announced():
    summary = build(*(outcome(f"task-{number:02d}") for number in range(20)))
    text = render(summary, max_tasks=5)
    assert "task-04" in text
    assert "task-05" not in text
    assert "15 more tasks in summary.json" in text


def test_a_hostile_task_id_reaches_the_terminal_as_plain_text():
    text = render(build(outcome("[red]\x1b[2J\x9bevil\u202e[/red]")), 120)
    assert "[red]\\x1b[2J\\x9bevil\\u202e[/red]" in text
    assert "\x1b" not in text


def test_an_ascii_terminal_gets_escapes_instead_of_a_crash():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    summary = build(outcome("naïve-漢字-" * 12, reward=None), *(outcome(str(n)) for n in range(3)))
    render_summary(summary, Console(file=stream, width=80), max_tasks=2)
    stream.flush()
    assert b"more tasks" in stream.buffer.getvalue()


@given(st.text(max_size=60), st.integers(4, 40), st.sampled_from(["utf-8", "ascii", "latin-1"]))
@settings(max_examples=80, deadline=None)
def test_one_line_is_short_printable_and_encodable(text, limit, encoding):
    line = one_line(text, limit, encoding=encoding)
    assert len(line) <= limit
    assert line.isprintable() or not line
    line.encode(encoding)
