"""A run's folder against a wire log: tampering is found, and honest runs are not accused."""

from __future__ import annotations

import json

import pytest

from hermes_core.contracts.errors import ConfigError
from hermes_tokens.audit.wire_check import check_run

OPENING = list(range(100, 120))


def exchange(prompt, ids, *, session="r1-a", number=1, rollout="r1", **more):
    logprobs = [-token / 1000 for token in ids]
    line = {"prompt_ids": prompt, "ids": ids, "logprobs": logprobs, "rollout_id": rollout}
    return {**line, "request_id": f"{session}-{number}", **more}


def sample(tokens, trained):
    masks = [token if token in trained else -100 for token in tokens]
    logprobs = [-token / 1000 if token in trained else None for token in tokens]
    return {"tokens": tokens, "masks": masks, "logprobs": logprobs}


def outcome(*samples, rollout="r1", **more):
    whole = {"rollout_id": rollout, "disposition": "score", "reward_status": "ok", "stop_reason": "final_answer"}
    return {**whole, "samples": list(samples), **more}


FIRST = exchange(OPENING, [1, 2])
SECOND = exchange([*OPENING, 1, 2, 50], [3], number=2)
WHOLE = sample([*OPENING, 1, 2, 50, 3], {1, 2, 3})


@pytest.fixture
def compare_logs(tmp_path):
    def compare(outcomes, log):
        for name, lines in (("rollouts.jsonl", outcomes), ("wire.jsonl", log)):
            text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
            (tmp_path / name).write_text(text, encoding="utf-8")
        return check_run(tmp_path, tmp_path / "wire.jsonl")

    return compare


def test_an_honest_run_is_exact(compare_logs):
    found = compare_logs([outcome(WHOLE)], [FIRST, SECOND])
    assert (found.is_exact, found.total.sampled, dict(found.left_out)) == (True, 3, {})


def test_a_session_that_changes_its_name_in_the_middle_still_needs_all_its_tokens(compare_logs):
    renamed = {**SECOND, "request_id": "r1-b-1"}
    found = compare_logs([outcome(sample([*OPENING, 1, 2, 50, 3], {3}))], [FIRST, renamed])
    assert not found.is_exact
    assert "turn 0: sampled token 0 (id 1) has loss 0 times" in found.faults[0]


def test_an_attempt_that_was_repeated_is_left_out_under_its_cause(compare_logs):
    again = [exchange(OPENING, [7], session="r1-0"), FIRST, SECOND]
    found = compare_logs([outcome(WHOLE)], again)
    assert (found.is_exact, dict(found.left_out)) == (True, {"repeated attempts": 1})


def test_what_an_aborted_request_sampled_is_left_out_under_its_cause(compare_logs):
    aborted = exchange([*OPENING, 1, 2, 50, 3, 51], [8, 9], number=3, aborted=True)
    found = compare_logs([outcome(WHOLE)], [FIRST, SECOND, aborted])
    assert (found.is_exact, dict(found.left_out)) == (True, {"aborted requests": 2})


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"disposition": "mask"}, "masked"),
        ({"disposition": "drop", "reward_status": "skipped", "stop_reason": "model_error"}, "model_error"),
        ({"disposition": "drop", "reward_status": "error", "reward_failure": {"blame": "verifier"}}, "verifier_error"),
        ({"reward_status": "skipped"}, "no_reward"),
        ({"reward_status": "skipped", "failure": {"blame": "model"}, "stop_reason": "model_error"}, "model_error"),
    ],
)
def test_a_rollout_that_is_not_handed_on_is_left_out_under_its_cause(compare_logs, changed, cause):
    found = compare_logs([outcome(WHOLE, **changed)], [FIRST, SECOND])
    assert (found.is_exact, dict(found.left_out)) == (True, {cause: 3})


@pytest.mark.parametrize(
    "outcomes",
    [[], [outcome()], [outcome(WHOLE), outcome(WHOLE)], [outcome(WHOLE), outcome(WHOLE, rollout="r2")]],
    ids=["no rollout", "no samples", "a rollout twice", "a rollout that was never sampled"],
)
def test_rollouts_left_out_or_made_up_are_found(compare_logs, outcomes):
    assert not compare_logs(outcomes, [FIRST, SECOND]).is_exact


@pytest.mark.parametrize("line", ["[1]\n", "{\n", '{"rollout_id": 5}\n'])
def test_a_line_that_is_not_a_rollout_is_named(compare_logs, line):
    with pytest.raises(ConfigError, match=r"rollouts\.jsonl"):
        compare_logs([line], [FIRST])


@pytest.mark.parametrize("sampling", [{"structured_outputs": {"regex": "a"}}, {"json_schema": "{}"}, {"min_tokens": 2}])
def test_a_sample_that_hides_a_mask_the_log_has_is_a_fault(compare_logs, sampling):
    masked = {**SECOND, "sampling": sampling}
    found = compare_logs([outcome(WHOLE)], [FIRST, masked])
    assert not found.is_exact
    assert f"turn 1: drawn under {next(iter(sampling))}, but its sample is not marked as constrained" in found.faults[0]
    honest = compare_logs([outcome({**WHOLE, "constrained": True})], [FIRST, masked])
    assert honest.is_exact
    assert honest.total.constrained == 1


def test_a_log_without_sampling_parameters_gives_no_faults(compare_logs):
    assert compare_logs([outcome({**WHOLE, "constrained": True})], [FIRST, SECOND]).is_exact
