"""`process`: groups at the same time, failures recorded, a file and a page, no wandb."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import ChatDouble, PuzzleEnv, TokenDouble, environment, lines, says

from hermes_core.contracts.errors import ConfigError, ModelAuthError, ModelServerError


def right(request):
    number = int(request.conversation.messages[0]["content"].partition("+")[0])
    return says(str(2 * number))


async def test_groups_are_written_with_messages_scores_and_exact_tokens(tmp_path):
    env = environment(TokenDouble(right), data_path_to_save_groups=str(tmp_path / "g.jsonl"), include_messages=True)
    await env.process_manager()
    groups = lines(tmp_path / "g.jsonl")
    assert len(groups) == 2
    assert groups[0]["scores"] == [1.0, 1.0]
    assert groups[0]["tokens"] == [[1, 2, 10, 3]] * 2
    assert groups[0]["masks"] == [[-100, -100, 10, 3]] * 2
    assert groups[0]["inference_logprobs"] == [[1.0, 1.0, -0.5, -0.5]] * 2
    assert [message["role"] for message in groups[0]["messages"][0]] == ["user", "assistant"]
    assert groups[0]["generation_params"]["temperature"] == 1.0
    assert env.ledger.summary() == {"sent": 4, "rejected": 0, "errored": 0, "cancelled": 0, "open": 0}


async def test_a_page_for_people_lies_beside_the_file(tmp_path):
    env = environment(
        TokenDouble(lambda _: says("<b>5</b>")),
        data_path_to_save_groups=str(tmp_path / "g.jsonl"),
        include_messages=True,
    )
    await env.process_manager()
    page = (tmp_path / "g.html").read_text()
    assert "score 0" in page
    assert "&lt;b&gt;5&lt;/b&gt;" in page


async def test_earlier_data_is_never_overwritten(tmp_path):
    path = tmp_path / "g.jsonl"
    path.write_text("precious\n")
    env = environment(TokenDouble(right), data_path_to_save_groups=str(path))
    await env.process_manager()
    assert path.read_text() == "precious\n"
    assert len(lines(tmp_path / "g_1.jsonl")) == 2


async def test_groups_run_at_the_same_time(tmp_path):
    """Bare atroposlib runs one at a time: peers 4, 13."""
    everybody, waiting = asyncio.Event(), []

    async def answer(request):
        waiting.append(request)
        if len(waiting) == 6:
            everybody.set()
        await asyncio.wait_for(everybody.wait(), 60)
        return says("x")

    env = environment(ChatDouble(answer), total_steps=3, data_path_to_save_groups=str(tmp_path / "g.jsonl"))
    await env.process_manager()
    assert len(lines(tmp_path / "g.jsonl")) == 3


async def test_max_concurrent_groups_bounds_them(tmp_path):
    together, most = [0], [0]

    async def answer(request):
        together[0] += 1
        most[0] = max(most[0], together[0])
        await asyncio.sleep(0)
        together[0] -= 1
        return says("x")

    env = environment(ChatDouble(answer), total_steps=5, max_concurrent_groups=1)
    await env.process_manager()
    assert most == [2]


async def test_a_failing_group_is_recorded_and_the_next_one_goes_on(tmp_path):
    def answer(request):
        return ModelServerError("502") if request.conversation.messages[0]["content"] == "0+0?" else right(request)

    env = environment(TokenDouble(answer), total_steps=3, data_path_to_save_groups=str(tmp_path / "g.jsonl"))
    await env.process_manager()
    assert len(lines(tmp_path / "g.jsonl")) == 2
    summary = env.ledger.summary()
    assert (summary["sent"], summary["open"]) == (4, 0)
    assert summary["errored"] == 6  # two places, three attempts each
    reasons = {entry.reason for entry in env.ledger.entries if entry.end == "errored"}
    assert reasons == {"model_error: ModelServerError: 502"}


async def test_an_error_of_the_author_fails_its_group_only(tmp_path):
    class Stumbling(PuzzleEnv):
        async def collect_trajectories(self, item):
            if item["id"] == "p0":
                raise KeyError("oops")
            return await super().collect_trajectories(item)

    env = environment(TokenDouble(right), kind=Stumbling, data_path_to_save_groups=str(tmp_path / "g.jsonl"))
    await env.process_manager()
    assert len(lines(tmp_path / "g.jsonl")) == 1


async def test_what_would_hit_every_group_ends_it_and_keeps_what_was_written(tmp_path):
    def answer(request):
        return right(request) if request.conversation.messages[0]["content"] == "0+0?" else ModelAuthError("401")

    path = tmp_path / "g.jsonl"
    env = environment(TokenDouble(answer), total_steps=9, max_concurrent_groups=1, data_path_to_save_groups=str(path))
    with pytest.raises(ModelAuthError, match="401"):
        await env.process_manager()
    assert len(lines(path)) == 1
    assert env.ledger.summary()["open"] == 0


async def test_no_more_items_ends_it(tmp_path):
    class Short(PuzzleEnv):
        async def get_next_item(self):
            return await super().get_next_item() if self.position < 1 else None

    env = environment(TokenDouble(right), kind=Short, total_steps=9, data_path_to_save_groups=str(tmp_path / "g.jsonl"))
    await env.process_manager()
    assert len(lines(tmp_path / "g.jsonl")) == 1


async def test_messages_are_written_only_on_request(tmp_path):
    env = environment(TokenDouble(right), data_path_to_save_groups=str(tmp_path / "g.jsonl"), include_messages=False)
    await env.process_manager()
    assert lines(tmp_path / "g.jsonl")[0]["messages"] is None


async def test_phase_one_writes_conversations_marked_as_not_trainable(tmp_path):
    env = environment(ChatDouble(right), data_path_to_save_groups=str(tmp_path / "g.jsonl"), include_messages=True)
    await env.process_manager()
    group = lines(tmp_path / "g.jsonl")[0]
    assert [about["trainable"] for about in group["overrides"]] == [False, False]
    assert group["overrides"][0]["without_tokens"] == "no tokenizer_name"
    assert group["messages"][0][-1]["content"] == "0"


async def test_equal_scores_are_rejected_with_a_reason_where_they_must_differ(tmp_path):
    env = environment(TokenDouble(right), ensure_scores_are_not_same=True, ledger_path=str(tmp_path / "ledger.jsonl"))
    await env.process_manager()
    assert {(line["end"], line["reason"]) for line in lines(tmp_path / "ledger.jsonl")} == {
        ("rejected", "all scores are 1")
    }


async def test_nothing_of_wandb_is_imported(tmp_path):
    env = environment(TokenDouble(right), data_path_to_save_groups=str(tmp_path / "g.jsonl"))
    was_there = "wandb" in sys.modules
    await env.process_manager()
    assert ("wandb" in sys.modules) is was_there


async def test_a_file_that_cannot_be_written_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    env = environment(TokenDouble(right), data_path_to_save_groups=str(tmp_path / "file" / "g.jsonl"))
    with pytest.raises(Exception, match="cannot be written"):
        await env.process_manager()


async def test_the_default_items_are_the_datasets(tmp_path):
    from hermes_atropos import HermesAgentBaseEnv

    class Default(HermesAgentBaseEnv):
        model = None
        reward_needs_sandbox = False

        def build_model(self):
            return self.model

        def compute_reward(self, item, result, ctx):
            return len(result.final_response)

        async def evaluate(self, *args, **kwargs):
            return {}

    data = tmp_path / "data.jsonl"
    data.write_text('{"q": "one?", "split": "train"}\n{"q": "two?", "split": "test"}\n')
    path = tmp_path / "g.jsonl"
    fields = {"dataset_name": str(data), "prompt_field": "q", "include_messages": True, "total_steps": 1}
    for split, prompt in (("train", "one?"), ("test", "two?")):
        out = path.with_stem(split)
        env = environment(TokenDouble(), kind=Default, dataset_split=split, data_path_to_save_groups=str(out), **fields)
        await env.process_manager()
        assert lines(out)[0]["messages"][0][0]["content"] == prompt
        assert lines(out)[0]["scores"] == [4.0, 4.0]
    env = environment(TokenDouble(), kind=Default, dataset_name=str(data), prompt_field="question")
    with pytest.raises(ConfigError, match="the field 'question', got: q, split"):
        await env.process_manager()
    assert Path(path).exists() is False
