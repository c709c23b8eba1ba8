from __future__ import annotations

import itertools
import random

from tiny_rl.tasks import demonstration, reward, tasks


def drawn(split, seed=0, count=400):
    return list(itertools.islice(tasks(split, seed), count))


def test_a_seed_draws_the_same_tasks_again():
    assert drawn("train") == drawn("train")


def test_held_out_tasks_ask_what_no_training_task_asks():
    asked = [{task.question for task in drawn(split)} for split in ("train", "test")]
    assert asked[0].isdisjoint(asked[1])
    assert len(asked[1]) >= 15


def test_the_answer_is_at_the_end_of_the_path_and_not_in_the_question():
    for task in drawn("test"):
        *pointers, last = task.path
        assert task.files[last] == f"code {task.answer}\n"
        assert all(task.files[path].startswith("see ") for path in pointers)
        assert task.answer not in task.question


def test_only_the_code_itself_is_rewarded():
    task = drawn("test")[0]
    assert reward(task, f" {task.answer}\n") == 1.0
    assert [reward(task, text) for text in ("", "0000", f"{task.answer} or 0000")] == [0.0, 0.0, 0.0]


def test_a_demonstration_reads_at_random_and_is_right_by_luck_only():
    chance = random.Random(0)
    rewards = [reward(task, demonstration(task, chance)[-1]["content"]) for task in drawn("train", count=3000)]
    assert 0.1 < sum(rewards) / len(rewards) < 0.4


def test_both_depths_are_asked_for():
    shares = [len(task.path) for task in drawn("train")]
    assert 0.4 < shares.count(1) / len(shares) < 0.6
    assert set(shares) == {1, 2}
