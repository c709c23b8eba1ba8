from __future__ import annotations

import itertools
import random

import pytest

from tiny_rl.tasks import COLOURS, demonstration, held_out_chains, reward, tasks


def drawn(split, seed=0, count=400):
    return list(itertools.islice(tasks(split, seed), count))


def test_a_seed_draws_the_same_tasks_again():
    assert drawn("train") == drawn("train")


def chains(split, seed):
    return {task.path for task in drawn(split, seed) if len(task.path) == 2}


@pytest.mark.parametrize("seed", range(8))
def test_held_out_tasks_are_chains_of_files_that_no_training_task_has(seed):
    assert chains("train", seed).isdisjoint(chains("test", seed))
    assert {len(task.path) for task in drawn("test", seed)} == {2}
    assert len(chains("train", seed)) + len(chains("test", seed)) == len(COLOURS) * (len(COLOURS) - 1)


@pytest.mark.parametrize("seed", range(8))
def test_no_file_of_a_training_task_shows_a_held_out_chain(seed):
    """A demonstration reads at random; it cannot read missing files."""
    held_out = {(f"{first}.txt", f"see {then}\n") for first, then in held_out_chains(seed)}
    assert all(held_out.isdisjoint(task.files.items()) for task in drawn("train", seed))


@pytest.mark.parametrize("seed", range(8))
def test_held_out_tasks_need_every_part_of_what_training_tasks_teach(seed):
    """Each colour is requested, and named by a file, in both sets; only the pairs are new."""
    for split in ("train", "test"):
        firsts, seconds = zip(*chains(split, seed), strict=True)
        assert set(firsts) == set(seconds) == {f"{colour}.txt" for colour in COLOURS}
    direct = {task.path[0] for task in drawn("train", seed) if len(task.path) == 1}
    assert direct == {f"{colour}.txt" for colour in COLOURS}


@pytest.mark.parametrize("guess", ["the colour's own file", "the most common answer", "the file that training named"])
def test_a_held_out_task_is_not_solved_without_reading_both_files(guess):
    """No shortcut solves more of the held-out tasks than chance."""
    trained = dict(sorted(chains("train", 0)))
    solved = 0
    for task in drawn("test"):
        first = task.path[0]
        if guess == "the colour's own file":
            answer = task.files[first].split()[1]
        elif guess == "the most common answer":
            answer = drawn("train")[0].answer
        else:
            answer = task.files[trained[first]].split()[1]
        solved += int(reward(task, answer))
    assert solved / len(drawn("test")) < 0.02


def test_each_seed_holds_out_a_set_of_its_own():
    assert len({held_out_chains(seed) for seed in range(20)}) == 20
    assert len({tuple(task.answer for task in drawn("test", seed)) for seed in range(20)}) == 20
    assert drawn("test", 3) == drawn("test", 3)


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
