from __future__ import annotations

import json

import pytest

from tiny_rl.proof import exactness, judged

PERFECT = {"sampled_trained_share": 1.0, "template_parity": None, "foreign_control_tokens": 0, "faults": []}
STEP = {"largest_difference": 1e-6, "unknown_tokens": 0, "trained_tokens": 3, "reward": 0.5}


@pytest.fixture
def run(tmp_path):
    """The files of a perfect run: one rollout of two turns that was trained on, and one that was not received."""
    exchange = {"rollout_id": "ro_a", "request_id": "1", "prompt_ids": [1, 2], "ids": [3, 4], "logprobs": [-1.0, -2.0]}
    later = {**exchange, "prompt_ids": [1, 2, 3, 4, 5], "ids": [6], "logprobs": [-3.0]}
    files: dict[str, list] = {
        "wire": [exchange, later, {**exchange, "rollout_id": "ro_b"}],
        "data": [
            {
                "tokens": [[1, 2, 3, 4, 5, 6]],
                "masks": [[-100, -100, 3, 4, -100, 6]],
                "inference_logprobs": [[1.0, 1.0, -1.0, -2.0, 1.0, -3.0]],
                "overrides": [{"rollout_id": "ro_a", "exactness": PERFECT}],
            }
        ],
        "ledger": [
            {"rollout_id": "ro_a", "end": "sent", "reason": "received"},
            {"rollout_id": "ro_b", "end": "cancelled", "reason": "training has ended"},
        ],
        "steps": [STEP],
        "evals": [{"reward": 0.2}, {"reward": 0.9}],
    }

    def written():
        for name, content in files.items():
            text = "".join(json.dumps(line) + "\n" for line in content)
            (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
        return tmp_path

    return files, written


def test_a_perfect_run_is_exact_and_names_what_was_not_received(run):
    _, written = run
    report = exactness(written())
    assert report["is_exact"]
    assert (report["sampled_trained_share"], report["prefix_exact_share"], report["trained_tokens"]) == (1.0, 1.0, 3)
    assert report["not_received"] == {"cancelled: training has ended": 1}


def lose_a_loss(files):
    files["data"][0]["masks"][0][3] = -100


def change_a_logprob(files):
    files["data"][0]["inference_logprobs"][0][5] = -3.5


def make_up_a_loss(files):
    files["data"][0]["masks"][0][4] = 5


def sample_one_more(files):
    files["wire"].append({**files["wire"][1], "prompt_ids": [1, 2, 3, 4, 5, 6, 7], "ids": [8], "logprobs": [-1.0]})


def forget_a_rollout(files):
    del files["ledger"][1]


def report_a_fault(files):
    files["data"][0]["overrides"][0]["exactness"] = {**PERFECT, "faults": ["turn 1: …"]}


def report_a_share(files):
    files["data"][0]["overrides"][0]["exactness"] = {**PERFECT, "template_parity": 0.5}


@pytest.mark.parametrize(
    "harm",
    [
        lose_a_loss,
        change_a_logprob,
        make_up_a_loss,
        sample_one_more,
        forget_a_rollout,
        report_a_fault,
        report_a_share,
    ],
)
def test_one_thing_wrong_is_found(run, harm):
    files, written = run
    harm(files)
    assert not exactness(written())["is_exact"]


def verdicts(run, *, seconds=60.0):
    _, written = run
    found = judged(written(), seconds=seconds)
    return found["logprobs_agree"], found["reward_rose"], found["nothing_lost"]


def test_a_perfect_run_shows_all_three(run):
    assert verdicts(run) == (True, True, True)


def test_a_difference_of_more_than_a_thousandth_fails(run):
    run[0]["steps"].append({**STEP, "largest_difference": 2e-3, "trained_tokens": 0})
    assert verdicts(run) == (False, True, True)


def test_tokens_that_could_not_be_checked_fail(run):
    run[0]["steps"].append({**STEP, "unknown_tokens": 1, "trained_tokens": 0})
    assert verdicts(run) == (False, True, True)


def test_a_small_rise_fails(run):
    run[0]["evals"][1] = {"reward": 0.4}
    assert verdicts(run) == (True, False, True)


@pytest.mark.parametrize(("seconds", "in_time"), [(60.0, True), (900.0, True), (901.0, False), (86_400.0, False)])
def test_the_time_is_judged_apart_from_what_was_shown(run, seconds, in_time):
    _, written = run
    found = judged(written(), seconds=seconds)
    assert verdicts(run, seconds=seconds) == (True, True, True)
    assert (found["in_time"], found["seconds"]) == (in_time, seconds)


def test_a_token_that_was_trained_and_never_received_fails(run):
    run[0]["steps"].append({**STEP, "trained_tokens": 1})
    assert verdicts(run) == (True, True, False)
