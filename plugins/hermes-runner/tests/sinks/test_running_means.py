"""The running means over outcomes, which charts show."""

from __future__ import annotations

import pytest

from hermes_runner.sinks.running_means import RunningMeans


def test_a_missing_reward_is_left_out_of_the_mean():
    means = RunningMeans()
    means.add({"stop_reason": "final_answer", "reward_status": "ok", "reward": 1.0, "turns": 1})
    means.add({"stop_reason": "model_error", "reward_status": "skipped", "reward": None, "disposition": "drop"})
    means.add({"stop_reason": "final_answer", "reward_status": "ok", "reward": float("nan"), "turns": 2})
    found = means.values()
    assert (found["rollouts"], found["mean/reward"], found["mean/turns"]) == (3, 1.0, 1.0)
    assert found["mean/without_reward"] == pytest.approx(2 / 3)
    assert found["stop_reason/model_error"] == pytest.approx(1 / 3)
