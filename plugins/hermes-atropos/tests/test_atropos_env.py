"""The author interface of an environment: what can be overridden, called and read, and what is reported."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import traceback
import types

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import ChatDouble, PuzzleEnv, TokenDouble, calls, environment, lines, says

from hermes_atropos import compat
from hermes_core.contracts.errors import BackendError, ModelAuthError, ModelServerError
from hermes_core.contracts.rollout import RewardStatus


async def group_of(env):
    await env.setup()
    group, backlog = await env.collect_trajectories(await env.get_next_item())
    await env.aclose()
    return group, backlog


async def test_an_own_rollout_keeps_every_optional_field_in_its_group():
    """Peers 4, 12: bare grouping loses half of them."""
    item = {
        "tokens": [1, 2],
        "masks": [-100, 2],
        "scores": 0.5,
        "inference_logprobs": [1.0, -0.5],
        "ref_logprobs": [0.0, -0.25],
        "advantages": [0.0, 1.0],
        "distill_token_ids": [[1], [2]],
        "distill_logprobs": [[0.1], [0.2]],
        "images": "picture",
        "messages": [{"role": "user", "content": "x"}],
        "overrides": {"mine": 1},
        "group_overrides": {"ours": 2},
    }

    class Own(PuzzleEnv):
        async def collect_trajectory(self, _item):
            return dict(item), ["later"]

    group, backlog = await group_of(environment(TokenDouble(), kind=Own))
    for field in set(item) - {"overrides", "group_overrides"}:
        assert group[field] == [item[field]] * 2
    assert [about["mine"] for about in group["overrides"]] == [1, 1]
    assert len({about["rollout_id"] for about in group["overrides"]}) == 2
    assert group["group_overrides"]["ours"] == 2
    assert backlog == ["later", "later"]


async def test_an_own_rollout_may_return_none_or_raise_and_costs_its_place_only():
    turns = []

    class Own(PuzzleEnv):
        async def collect_trajectory(self, item):
            turns.append(item)
            if len(turns) == 1:
                return None, []
            if len(turns) == 2:
                raise KeyError("oops")
            return await super().collect_trajectory(item)

    env = environment(TokenDouble(), kind=Own)
    group, _ = await group_of(env)
    assert len(group["tokens"]) == 2
    reasons = {entry.reason for entry in env.ledger.entries if entry.end == "errored"}
    assert reasons == {"collect_trajectory returned nothing", "KeyError: 'oops'"}


async def test_own_groups_have_lines_in_the_ledger_too(tmp_path):
    class Own(PuzzleEnv):
        async def collect_trajectories(self, item):
            made = [await self.collect_trajectory(item) for _ in range(2)]
            items = [one for one, _ in made]
            keys = ("tokens", "masks", "scores", "overrides")
            return {key: [one[key] for one in items] for key in keys} | {"group_overrides": None}, []

    env = environment(TokenDouble(), kind=Own, total_steps=1, data_path_to_save_groups=str(tmp_path / "g.jsonl"))
    await env.process_manager()
    assert env.ledger.summary() == {"sent": 2, "rejected": 0, "errored": 0, "cancelled": 0, "open": 0}


async def test_own_groups_without_rollout_ids_get_a_line_per_sequence(tmp_path):
    class Own(PuzzleEnv):
        async def collect_trajectories(self, item):
            return {"tokens": [[1], [2]], "masks": [[1], [2]], "scores": [0.0, 1.0]}, []

    env = environment(TokenDouble(), kind=Own, total_steps=1, data_path_to_save_groups=str(tmp_path / "g.jsonl"))
    await env.process_manager()
    assert env.ledger.summary()["sent"] == 2
    assert lines(tmp_path / "g.jsonl")[0]["scores"] == [0.0, 1.0]


async def test_a_reward_in_either_style_is_called(tmp_path):
    class Sync(PuzzleEnv):
        def compute_reward(self, item, result, ctx):
            return 0.25

    class Async(PuzzleEnv):
        async def compute_reward(self, item, result, ctx):
            await asyncio.sleep(0)
            return 0.75

    assert (await group_of(environment(TokenDouble(), kind=Sync)))[0]["scores"] == [0.25, 0.25]
    assert (await group_of(environment(TokenDouble(), kind=Async)))[0]["scores"] == [0.75, 0.75]


async def test_a_reward_sees_what_hermes_agents_saw(tmp_path):
    seen = []

    class Seeing(PuzzleEnv):
        async def compute_reward(self, item, result, ctx):
            seen.append((item, result, ctx))
            return 1.0

    model = TokenDouble(lambda request: says("done") if len(request.conversation) > 1 else calls("noop"))
    await group_of(environment(model, kind=Seeing, group_size=1))
    item, result, ctx = seen[0]
    assert item["id"] == "p0"
    assert (result.turns_used, result.finished_naturally) == (2, True)
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert result.tool_errors == ()
    assert result.managed_state["nodes"]
    assert ctx.task_id == ctx.rollout_id


async def test_a_reward_that_fails_is_no_reward_and_never_zero():
    """hermes-agent's defect: an exception in a reward became 0.0."""

    class Failing(PuzzleEnv):
        async def compute_reward(self, item, result, ctx):
            raise RuntimeError("no tests found")

    env = environment(TokenDouble(), kind=Failing, max_attempts=1)
    group, _ = await group_of(env)
    assert group is None
    assert "RuntimeError: no tests found" in env.ledger.entries[0].reason


@pytest.mark.parametrize("value", [None, "much", float("nan")])
async def test_a_reward_that_is_not_a_number_is_an_error(value):
    class Odd(PuzzleEnv):
        async def compute_reward(self, item, result, ctx):
            return value

    group, _ = await group_of(environment(TokenDouble(), kind=Odd, max_attempts=1))
    assert group is None


async def test_a_model_that_answers_nothing_is_not_rewarded():
    env = environment(TokenDouble(lambda _: ModelServerError("502")), max_attempts=1)
    await group_of(env)
    assert env.rewarded == []


async def test_an_error_that_would_hit_every_rollout_is_raised_and_every_line_closed():
    env = environment(TokenDouble(lambda _: ModelAuthError("401")), group_size=4)
    with pytest.raises(ModelAuthError):
        await group_of(env)
    summary = env.ledger.summary()
    assert summary["open"] == 0
    assert summary["errored"] + summary["cancelled"] == 4


async def test_a_rollout_outside_of_a_group_has_its_split_and_enters_no_table():
    """hermes-agent's defect: evaluation wrote into the buffers of the training."""
    env = environment(TokenDouble(lambda _: calls("no_such_tool")), max_agent_turns=1)
    await env.setup()
    outcome = await env.run_item(env.puzzles[0])
    await env.aclose()
    assert (outcome.split, outcome.reward_status) == ("eval", RewardStatus.OK)
    assert env.ledger.entries[0].reason == "eval: not for training"
    assert env._tool_error_buffer == []


@pytest.mark.parametrize("most", [1, 3])
async def test_max_eval_workers_bounds_an_evaluation(most):
    together, seen, all_there = [0], [], asyncio.Event()

    async def answer(_request):
        together[0] += 1
        seen.append(together[0])
        if together[0] == most:
            all_there.set()
        await all_there.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        together[0] -= 1
        return says("0")

    env = environment(ChatDouble(answer), max_eval_workers=most)
    await env.setup()
    metrics = await env.evaluate_items(env.puzzles[:6])
    await env.aclose()
    assert max(seen) == most
    assert (metrics["eval/total_tasks"], metrics["eval/passed_tasks"], metrics["eval/errors"]) == (6, 1, 0)


async def test_an_item_without_a_reward_is_in_no_rate():
    env = environment(ChatDouble(lambda _: ModelServerError("502")))
    await env.setup()
    metrics = await env.evaluate_items(env.puzzles[:2])
    await env.aclose()
    assert metrics == {"eval/total_tasks": 2, "eval/passed_tasks": 0, "eval/errors": 2}


async def test_an_authors_own_run_item_is_told_that_it_is_for_an_evaluation(monkeypatch):
    env = environment(ChatDouble(lambda _: ModelServerError("502")))
    await env.setup()
    run_item, splits = env.run_item, []

    async def note_split(item, *, split):
        splits.append(split)
        return await run_item(item, split=split)

    monkeypatch.setattr(env, "run_item", note_split)
    await env.evaluate_items(env.puzzles[:2])
    await env.aclose()
    assert splits == ["eval", "eval"]


async def test_two_environments_share_nothing():
    first, second = (environment(TokenDouble(), enabled_toolsets=[name]) for name in ("terminal", "file"))
    before = dict(os.environ)
    await asyncio.gather(group_of(first), group_of(second))
    assert first.model.requests[0].tools.names != second.model.requests[0].tools.names
    assert dict(os.environ) == before


async def test_the_dataset_of_a_group_is_what_its_prompt_says():
    class Messages(PuzzleEnv):
        def format_prompt(self, item):
            return [{"role": "system", "content": "s"}, {"role": "user", "content": item["question"]}]

    group, _ = await group_of(environment(TokenDouble(), kind=Messages))
    assert [message["role"] for message in group["messages"][0]] == ["system", "user", "assistant"]


async def test_a_prompt_of_another_type_fails_its_group_with_a_hint(caplog):
    class Odd(PuzzleEnv):
        def format_prompt(self, item):
            return 7

    env = environment(TokenDouble(), kind=Odd, total_steps=1)
    with caplog.at_level(logging.ERROR):
        await env.process_manager()
    assert "expected format_prompt to return text or messages, got int" in caplog.text


def test_a_conversation_is_shown_with_calls_results_and_reasoning():
    shown = PuzzleEnv._format_trajectory_for_display(
        [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "u"},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "r" * 301,
                "tool_calls": [{"function": {"name": "f", "arguments": "a" * 201}}],
            },
            {"role": "tool", "content": "t" * 501},
            {"role": "assistant", "content": "done"},
        ]
    )
    assert shown == "\n\n".join(
        [
            "[SYSTEM]\ns",
            "[USER]\nu",
            f"[ASSISTANT thinking]\n{'r' * 300}...",
            f"[TOOL CALL] f({'a' * 200}...)",
            f"[TOOL RESULT] {'t' * 500}...",
            "[ASSISTANT]\ndone",
        ]
    )


class FakeWandb(types.ModuleType):
    def __init__(self):
        super().__init__("wandb")
        self.runs, self.logged, self.tables = [], [], []

    def init(self, **fields):
        self.runs.append(fields)

    def log(self, metrics, step=None):
        self.logged.append(metrics)

    def Table(self, columns):  # noqa: N802 - wandb's name
        table = types.SimpleNamespace(rows=[], add_data=lambda *row: self.tables.append(row))
        self.tables.append(tuple(columns))
        return table


async def test_wandb_gets_hermes_agents_keys_when_it_is_on(monkeypatch):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr(compat._base, "wandb", fake)
    model = TokenDouble(lambda request: says("done") if len(request.conversation) > 1 else calls("boom"))
    env = environment(model, use_wandb=True, total_steps=1)
    await env.process_manager()
    (metrics,) = fake.logged
    assert metrics["train/tool_errors_count"] == 2
    assert metrics["train/tool_error_details"].startswith("[turn 1] boom({}) -> RuntimeError: boom number 1")
    assert "train/completion_lengths" in metrics
    assert fake.runs[0]["name"].startswith("puzzle-")
    assert fake.tables[0] == ("text", "score")
    assert fake.tables[1][0].startswith("[USER]\n0+0?\n\n[TOOL CALL] boom({})")


async def test_the_tool_errors_are_counted_anew_after_each_report():
    env = environment(TokenDouble(lambda request: says("x") if len(request.conversation) > 1 else calls("boom")))
    await env.setup()
    await env.collect_trajectories(await env.get_next_item())
    metrics: dict = {}
    await env.wandb_log(metrics)
    assert metrics["train/tool_errors_count"] == 2
    metrics = {}
    await env.wandb_log(metrics)
    await env.aclose()
    assert metrics["train/tool_errors_count"] == 0


def test_num_rollouts_to_keep_and_per_group_bound_the_table():
    async def table(**fields):
        env = environment(TokenDouble(), **fields)
        await env.setup()
        for _ in range(3):
            await env.add_rollouts_for_wandb(
                {"scores": [0.0, 1.0], "messages": [[{"role": "user", "content": "x"}]] * 2}
            )
        await env.aclose()
        return [len(group) for group in env.rollouts_for_wandb]

    assert asyncio.run(table(num_rollouts_to_keep=2)) == [1, 1]
    assert asyncio.run(table(num_rollouts_per_group_for_logging=-1)) == [2, 2, 2]


async def test_a_cancelled_process_stops_its_rollouts_and_says_so():
    gone = []

    async def answer(_request):
        try:
            await asyncio.Event().wait()
        finally:
            gone.append(1)

    model = ChatDouble(answer)
    env = environment(model)
    task = asyncio.create_task(env.process_manager())
    async with asyncio.timeout(60):
        while len(model.requests) < 4:
            await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(gone) == 4
    assert env.ledger.summary() == {"sent": 0, "rejected": 0, "errored": 0, "cancelled": 4, "open": 0}


def test_sigterm_ends_a_command_as_an_interrupt_does(tmp_path, capsys):
    async def answer(_request):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    class Stopped(PuzzleEnv):
        model = ChatDouble(answer)

    ledger = tmp_path / "ledger.jsonl"
    with pytest.raises(SystemExit) as stopped:
        Stopped.cli(
            [
                "process",
                f"--env.ledger_path={ledger}",
                f"--env.data_path_to_save_groups={tmp_path / 'g.jsonl'}",
                "--env.group_size=1",
                "--env.total_steps=1",
            ]
        )
    assert stopped.value.code == 130
    assert [line["end"] for line in lines(ledger)] == ["cancelled"]


async def test_a_secret_that_an_engine_repeats_is_in_nothing_that_an_environment_says(monkeypatch, caplog, tmp_path):
    class Keyed(PuzzleEnv):
        reward_needs_sandbox = True

    settings = {
        "plugins": {
            "allow": [
                "hermes-sandbox",
                "hermes-tools",
                "hermes-models",
                "hermes-tokens",
                "hermes-runner",
            ],
            "extra": ["keyed_components"],
        },
        "enabled_toolsets": ["terminal"],
        "terminal_backend": "keyed",
        "backend_options": {"token": "m4rk3r-m4rk3r", "talks": True},
        "data_path_to_save_groups": str(tmp_path / "groups.jsonl"),
        "ledger_path": str(tmp_path / "ledger.jsonl"),
        "total_steps": 1,
    }
    with pytest.raises(BackendError, match=r"nobody is let in with \(withheld\)") as caught:
        await environment(TokenDouble(), kind=Keyed, **settings).process_manager()
    assert "m4rk3r-m4rk3r" not in "".join(traceback.format_exception(caught.value))

    async def accept_any_spec(self, spec):
        del self, spec

    monkeypatch.setattr("keyed_components.Keyed.check", accept_any_spec)
    env = environment(TokenDouble(lambda _: calls("terminal", '{"command": "true"}')), kind=Keyed, **settings)
    group, _ = await group_of(env)
    assert group is None
    said = f"{caplog.text}{(tmp_path / 'ledger.jsonl').read_text()}{env.ledger.entries}"
    assert ("nobody is let in" in said, "m4rk3r-m4rk3r" in said) == (True, False)


@pytest.mark.parametrize(("backend", "warnings"), [("rooted", 1), ("telling", 0)])
async def test_where_commands_are_root_a_reward_that_runs_programs_is_warned_of(caplog, backend, warnings):
    class Looks(PuzzleEnv):
        reward_needs_sandbox = True

    env = environment(ChatDouble(), kind=Looks, terminal_backend=backend)
    with caplog.at_level(logging.WARNING):
        await env.preflight()
    assert caplog.text.count("a model can replace the programs that compute_reward runs there") == warnings
    await env.aclose()
