"""A group that failed for outside reasons is repeated by the same `process`; a dead server ends it."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import PuzzleEnv, TokenDouble, environment, lines, says

from hermes_atropos.command import _summary_line
from hermes_core.contracts.errors import ModelServerError, TaskError, UserError


def right(request):
    return says(str(2 * int(request.conversation.messages[0]["content"].partition("+")[0])))


def down(_request):
    return ModelServerError("connection refused")


def down_for_p1(request):
    return down(request) if request.conversation.messages[0]["content"] == "1+1?" else right(request)


async def run_process(folder, answer=right, kind=PuzzleEnv, **fields):
    paths = {"data_path_to_save_groups": str(folder / "g.jsonl"), "ledger_path": str(folder / "ledger.jsonl")}
    return await environment(TokenDouble(answer), kind=kind, **{**paths, **fields}).process_manager()


def tasks(folder):
    return sorted(group["group_overrides"]["task_id"] for group in lines(folder / "g.jsonl"))


class Stumbling(PuzzleEnv):
    """The author's own code raises for one item."""

    error = KeyError("oops")
    where = "collect_trajectories"

    async def collect_trajectories(self, item):
        self._stumble("collect_trajectories", item)
        return await super().collect_trajectories(item)

    async def collect_trajectory(self, item):
        self._stumble("collect_trajectory", item)
        return await super().collect_trajectory(item)

    async def compute_reward(self, item, result, ctx):
        self._stumble("compute_reward", item)
        return await super().compute_reward(item, result, ctx)

    async def postprocess_histories(self, trajectories):
        self._stumble("postprocess_histories", {"id": trajectories["group_overrides"]["task_id"]})
        return trajectories

    def _stumble(self, where, item):
        if where == self.where and item["id"] == "p1":
            raise self.error


async def test_a_group_that_the_server_failed_is_repeated_under_other_ids(tmp_path):
    counts = await run_process(tmp_path, down_for_p1, total_steps=3)
    assert "2 groups written, 1 failed, 0 from before; 1 failed group is repeated by the same command" in (
        _summary_line(counts)
    )
    counts = await run_process(tmp_path, total_steps=3)
    assert (counts["groups_written"], counts["groups_to_rerun"]) == (1, 0)
    assert tasks(tmp_path) == ["p0", "p1", "p2"]
    ledger = lines(tmp_path / "ledger.jsonl")
    assert len({line["rollout_id"] for line in ledger}) == len(ledger)
    assert Counter(line["end"] for line in ledger) == {"sent": 6, "errored": 6}
    assert "is complete with 3 groups" in _summary_line(await run_process(tmp_path, total_steps=3))


@pytest.mark.parametrize(
    "where", ["collect_trajectories", "collect_trajectory", "compute_reward", "postprocess_histories"]
)
async def test_a_group_that_the_authors_own_code_failed_is_repeated(tmp_path, where):
    stumbling = type("Stumbling", (Stumbling,), {"where": where})
    assert (await run_process(tmp_path, kind=stumbling, total_steps=3))["groups_to_rerun"] == 1
    await run_process(tmp_path, total_steps=3)
    assert tasks(tmp_path) == ["p0", "p1", "p2"]


async def test_an_item_that_says_itself_that_it_cannot_run_is_done(tmp_path):
    stumbling = type("Stumbling", (Stumbling,), {"error": TaskError("no such repository")})
    assert (await run_process(tmp_path, kind=stumbling, total_steps=3))["groups_to_rerun"] == 0
    assert (await run_process(tmp_path, total_steps=3))["is_finished_before"] is True


async def test_a_group_that_ran_and_was_rejected_is_done(tmp_path):
    fields = {"ensure_scores_are_not_same": True, "total_steps": 3}
    assert (await run_process(tmp_path, **fields))["groups_to_rerun"] == 0
    assert (await run_process(tmp_path, **fields))["is_finished_before"] is True


@pytest.mark.parametrize("concurrent", [1, 3, 64])
async def test_a_server_that_stops_answering_ends_it_and_loses_no_item(tmp_path, concurrent):
    with pytest.raises(UserError, match=r"gave no answer in the last \d+ groups: connection refused") as raised:
        await run_process(tmp_path, down, total_steps=12, max_concurrent_groups=concurrent)
    assert "rerun the same command" in raised.value.hint
    await run_process(tmp_path, total_steps=12)
    assert sorted(tasks(tmp_path)) == sorted(f"p{n}" for n in range(12))


async def test_single_groups_without_an_answer_do_not_end_it(tmp_path):
    def every_second(request):
        number = int(request.conversation.messages[0]["content"].partition("+")[0])
        return down(request) if number % 2 else right(request)

    counts = await run_process(tmp_path, every_second, total_steps=12, max_concurrent_groups=1)
    assert (counts["groups_written"], counts["groups_to_rerun"]) == (6, 6)


class Swallowing(PuzzleEnv):
    """An own collect_trajectories that calls the model and ignores errors."""

    async def collect_trajectories(self, item):
        try:
            await self.server.chat_completion(messages=[{"role": "user", "content": item["question"]}])
        except ModelServerError:
            return None, []
        return await super().collect_trajectories(item)


async def test_a_server_error_that_the_authors_code_swallows_loses_no_item(tmp_path):
    counts = await run_process(tmp_path, down, Swallowing, total_steps=3)
    assert (counts["groups_failed"], counts["groups_to_rerun"]) == (3, 3)
    counts = await run_process(tmp_path, right, Swallowing, total_steps=3)
    assert (counts["groups_written"], counts["is_finished_before"]) == (3, False)
    assert tasks(tmp_path) == ["p0", "p1", "p2"]
