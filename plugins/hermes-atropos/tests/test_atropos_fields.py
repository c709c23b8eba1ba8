"""Every field of the environments' configuration changes something that can be seen from outside."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
import rollout_components

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import ChatDouble, PuzzleEnv, TokenDouble, calls, environment, says, server

from hermes_core.contracts.errors import ConfigError, ModelServerError, TaskError, UnknownComponentError
from hermes_core.contracts.model import ModelReply, RequestedCall, Usage
from hermes_core.contracts.tokens import Exactness
from hermes_models import OpenAIChatClient
from hermes_testing.watching import TooSoon, with_more_time


async def run_group(model=None, kind=PuzzleEnv, **fields):
    """Run one group; returns it with the model and the environment."""
    env = environment(model or TokenDouble(), kind=kind, **fields)
    await env.setup()
    group, _ = await env.collect_trajectories(await env.get_next_item())
    await env.aclose()
    return group, env


def once(name, arguments="{}"):
    """Call a tool in the first turn, and answer in the second."""

    def answer(request):
        return says("done") if len(request.conversation) > 2 else calls(name, arguments)

    return answer


async def tools_of(**fields):
    model = TokenDouble()
    await run_group(model, **fields)
    return set(model.requests[0].tools.names)


async def test_enabled_toolsets_are_offered():
    assert await tools_of(enabled_toolsets=["terminal"]) == {"terminal", "process"}
    assert await tools_of(enabled_toolsets=["file"]) == {"patch", "read_file", "search_files", "write_file"}
    assert "terminal" in await tools_of(enabled_toolsets=None)


async def test_disabled_toolsets_are_taken_away():
    fields = {"enabled_toolsets": ["terminal", "file"]}
    assert "terminal" not in await tools_of(**fields, disabled_toolsets=["terminal"])


async def test_a_distribution_is_drawn_by_the_seed_and_once_a_group():
    draws = []
    for seed in (0, 2, 4, 7, 8):
        model = TokenDouble()
        await run_group(model, distribution="development", seed=seed, group_size=3)
        offered = {request.tools.names for request in model.requests}
        assert len(offered) == 1
        draws.append(offered.pop())
    assert len(set(draws)) > 1
    model = TokenDouble()
    await run_group(model, distribution="development", seed=0)
    assert model.requests[0].tools.names == draws[0]


async def test_a_draw_of_nothing_that_is_installed_fails_its_group_only():
    env = environment(TokenDouble(), distribution="research")
    await env.setup()
    failed = succeeded = 0
    for _ in range(40):
        try:
            await env.collect_trajectories(await env.get_next_item())
            succeeded += 1
        except TaskError as error:
            assert "install a plugin" in str(error)  # noqa: PT017 - one of several outcomes
            failed += 1
    await env.aclose()
    assert failed > succeeded > 0


async def test_a_distribution_of_which_nothing_is_installed_is_an_error_at_once():
    with pytest.raises(ConfigError, match="no tool of web can be offered"):
        environment(TokenDouble(), distribution="minimal")


async def test_concurrent_groups_keep_their_own_tools():
    """hermes-agent's defect: with four groups at a time all used the tools of the last one."""
    model = TokenDouble()
    env = environment(model, distribution="development")
    await env.setup()
    items = [await env.get_next_item() for _ in range(12)]
    await asyncio.gather(*(env.collect_trajectories(item) for item in items), return_exceptions=True)
    await env.aclose()
    by_prompt = {}
    for request in model.requests:
        by_prompt.setdefault(request.conversation.messages[0]["content"], set()).add(request.tools.names)
    assert all(len(names) == 1 for names in by_prompt.values())
    assert len({names for offered in by_prompt.values() for names in offered}) > 1


async def test_max_agent_turns_ends_a_rollout():
    group, _ = await run_group(TokenDouble(lambda _: calls("noop")), max_agent_turns=3)
    assert [about["stop_reason"] for about in group["overrides"]] == ["max_turns"] * 2
    assert group["overrides"][0]["turns"] == 3


async def test_the_system_prompt_comes_first():
    model = TokenDouble()
    await run_group(model, system_prompt="be brief")
    assert model.requests[0].conversation.messages[0] == {"role": "system", "content": "be brief"}
    await run_group(model, system_prompt=None)
    assert model.requests[-1].conversation.messages[0]["role"] == "user"


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [("agent_temperature", 0.25, "temperature"), ("max_token_length", 77, "max_tokens")],
)
async def test_sampling_fields_go_into_every_request(field, value, name):
    model = TokenDouble(once("noop"))
    group, _ = await run_group(model, **{field: value})
    assert {request.sampling[name] for request in model.requests} == {value}
    assert group["generation_params"][name] == value


async def test_extra_body_goes_to_chat_servers_and_sampling_to_all():
    fields = {"extra_body": {"provider": {"order": ["a"]}}, "sampling": {"top_p": 0.5}}
    chat = ChatDouble()
    await run_group(chat, **fields)
    assert chat.requests[0].sampling["provider"] == {"order": ["a"]}
    assert chat.requests[0].sampling["top_p"] == 0.5


async def test_reasoning_fields_go_into_chat_requests():
    model = ChatDouble()
    await run_group(model, reasoning_effort="low")
    assert model.requests[0].sampling["reasoning"] == {"enabled": True, "effort": "low"}


async def test_the_terminal_backend_is_the_named_one():
    class Needy(PuzzleEnv):
        reward_needs_sandbox = True

    with pytest.raises(UnknownComponentError, match="hermes-backend-docker"):
        await run_group(kind=Needy, terminal_backend="docker")


async def test_lifetime_and_further_sandbox_fields_reach_the_backend():
    class Needy(PuzzleEnv):
        reward_needs_sandbox = True

    fields = {"terminal_lifetime": 77, "sandbox": {"pids": 5}, "max_attempts": 1}
    group, env = await run_group(kind=Needy, terminal_backend="telling", **fields)
    assert group is None
    assert {entry.reason for entry in env.ledger.entries} == {"tool_backend_error: BackendError: lifetime 77, pids 5"}


async def test_terminal_timeout_stops_a_command(tmp_path):
    begun = tmp_path / "begun"

    async def attempt(seconds):
        begun.unlink(missing_ok=True)
        model = TokenDouble(once("terminal", json.dumps({"command": f"echo begun; touch {begun}; sleep 600"})))
        group, _ = await run_group(model, enabled_toolsets=["terminal"], terminal_timeout=seconds, group_size=1)
        TooSoon.unless(begun.exists(), "the command had not begun")
        assert group is not None
        said = group["messages"][0][2]["content"].replace(" ", "")
        assert "begun" in said
        assert '"exit_code":124' in said

    await with_more_time(attempt)


async def test_tool_pool_size_bounds_the_worker_threads_of_rewards():
    async def run(size, patience):
        pair = threading.Barrier(2)

        class Meeting(PuzzleEnv):
            def compute_reward(self, item, result, ctx):
                pair.wait(patience)
                return 1.0

        group, _ = await run_group(kind=Meeting, tool_pool_size=size, max_attempts=1)
        return group

    assert (await run(8, 60))["scores"] == [1.0, 1.0]
    assert await run(1, 0.5) is None


async def test_the_parser_reads_raw_text_in_phase_two():
    def answer(request):
        return says("done") if len(request.conversation) > 2 else says("CALL noop")

    group, _ = await run_group(TokenDouble(answer), tool_call_parser="shouting")
    assert [message["role"] for message in group["messages"][0]] == ["user", "assistant", "tool", "assistant"]
    group, _ = await run_group(TokenDouble(answer), tool_call_parser=None)
    assert [message["role"] for message in group["messages"][0]] == ["user", "assistant"]


async def test_what_a_chat_server_left_unread_is_read_by_the_parser():
    def answer(request):
        return says("done") if len(request.conversation) > 2 else says("CALL noop")

    group, _ = await run_group(ChatDouble(answer), tool_call_parser="shouting")
    assert [message["role"] for message in group["messages"][0]] == ["user", "assistant", "tool", "assistant"]
    group, _ = await run_group(ChatDouble(answer), tool_call_parser="hermes")
    assert [message["role"] for message in group["messages"][0]] == ["user", "assistant"]


async def test_a_parser_that_is_not_installed_is_an_error_that_says_where_it_is():
    with pytest.raises(UnknownComponentError, match="hermes-parsers"):
        environment(
            TokenDouble(),
            tool_call_parser="hermes",
            plugins={
                "allow": [
                    "hermes-sandbox",
                    "hermes-tools",
                    "hermes-models",
                    "hermes-tokens",
                    "hermes-runner",
                ]
            },
        )


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, 5000),
        ({"default_result_size_chars": 100, "preview_size_chars": 100}, 100),
        ({"default_result_size_chars": 100, "preview_size_chars": 80}, 80),
        ({"turn_budget_chars": 4000, "preview_size_chars": 60}, 60),
        ({"tool_result_overrides": {"long_text": 100}, "preview_size_chars": 40}, 40),
    ],
)
async def test_the_result_budget_shortens_what_a_tool_answers(fields, shown):
    group, _ = await run_group(TokenDouble(once("long_text")), enabled_toolsets=["atropos_testing"], **fields)
    assert group["messages"][0][2]["content"].count("x" * 20) == shown // 20


async def test_time_limit_ends_a_rollout(monkeypatch):
    begun, hang = [], rollout_components.Hang.call

    async def note_and_hang(self, arguments, context):
        begun.append(context)
        return await hang(self, arguments, context)

    async def attempt(seconds):
        begun.clear()
        group, _ = await run_group(TokenDouble(lambda _: calls("hang")), time_limit=seconds)
        TooSoon.unless(len(begun) >= 2, "the calls of the group's two rollouts had not begun")
        assert group is not None
        assert group["overrides"][0]["stop_reason"] == "time_limit"

    monkeypatch.setattr(rollout_components.Hang, "call", note_and_hang)
    await with_more_time(attempt)


async def test_max_tool_calls_ends_a_rollout():
    group, _ = await run_group(TokenDouble(lambda _: calls("noop")), max_tool_calls=1)
    assert group["overrides"][0]["stop_reason"] == "tool_call_limit"


async def test_max_total_tokens_ends_a_rollout():
    call = RequestedCall(id="c", name="noop", arguments="{}")
    reply = ModelReply(content=None, tool_calls=(call,), usage=Usage(completion_tokens=10))
    group, _ = await run_group(TokenDouble(lambda _: reply), max_total_tokens=15)
    assert (group["overrides"][0]["stop_reason"], group["overrides"][0]["turns"]) == ("token_limit", 2)


async def test_max_truncated_replies_ends_a_rollout():
    call = RequestedCall(id="c", name="noop", arguments='{"n": ')
    reply = ModelReply(content=None, tool_calls=(call,), finish_reason="length")
    group, _ = await run_group(TokenDouble(lambda _: reply), max_truncated_replies=2)
    assert (group["overrides"][0]["stop_reason"], group["overrides"][0]["turns"]) == ("token_limit", 2)


async def test_verifier_timeout_ends_a_reward():
    class Slow(PuzzleEnv):
        async def compute_reward(self, item, result, ctx):
            await asyncio.Event().wait()

    group, env = await run_group(kind=Slow, verifier_timeout=0.05, max_attempts=1)
    assert group is None
    assert "took more than 0.05 s" in env.ledger.entries[0].reason


def failing_first(count):
    seen = []

    def answer(request):
        seen.append(request)
        return ModelServerError("502") if len(seen) <= count else says("0")

    return TokenDouble(answer)


async def test_a_failed_rollout_is_replaced():
    group, env = await run_group(failing_first(1), failed_rollouts="replace")
    assert len(group["scores"]) == 2
    assert "group_size" not in group["group_overrides"]
    assert env.ledger.summary() == {"sent": 0, "rejected": 0, "errored": 1, "cancelled": 0, "open": 2}


async def test_max_attempts_bounds_the_replacements():
    _, env = await run_group(failing_first(99), failed_rollouts="replace", max_attempts=2)
    assert env.ledger.summary()["errored"] == 4


async def test_a_group_shrinks_where_the_config_says_so():
    group, _ = await run_group(failing_first(1), failed_rollouts="shrink", group_size=4)
    assert len(group["scores"]) == 3
    assert group["group_overrides"]["group_size"] == 3


async def test_min_group_size_rejects_what_shrank_too_much():
    group, env = await run_group(failing_first(2), failed_rollouts="shrink", group_size=4, min_group_size=3)
    assert group is None
    summary = env.ledger.summary()
    assert (summary["errored"], summary["rejected"], summary["open"]) == (2, 2, 0)
    assert "expected at least 3 scored rollouts, got 2 of 4" in {e.reason.partition(":")[0] for e in env.ledger.entries}


async def test_a_group_is_rejected_for_one_failure_where_the_config_says_so():
    group, _ = await run_group(failing_first(1), failed_rollouts="reject", group_size=4)
    assert group is None


async def test_the_policy_decides_about_a_cause():
    def endless(_request):
        return calls("noop")

    fields = {"max_agent_turns": 2, "max_attempts": 1}
    scored, _ = await run_group(TokenDouble(endless), **fields)
    assert scored["scores"] == [0.0, 0.0]
    dropped, _ = await run_group(TokenDouble(endless), policy={"max_turns": "drop"}, **fields)
    assert dropped is None
    masked, _ = await run_group(TokenDouble(endless), policy={"max_turns": "mask"}, **fields)
    assert {mask for masks in masked["masks"] for mask in masks} == {-100}


async def test_require_exact_drops_what_is_not():
    report = Exactness(sampled=2, trained=1, faults=("turn 0, token 1 has no loss",))
    group, env = await run_group(TokenDouble(exactness=report), require_exact=True, max_attempts=1)
    assert group is None
    assert "require_exact: turn 0, token 1 has no loss" in env.ledger.entries[0].reason
    group, _ = await run_group(TokenDouble(exactness=report), require_exact=False)
    assert group is not None


async def test_branches_become_sequences_with_weights():
    model = TokenDouble(samples=lambda session: [session.sample(), session.sample(branch=1, reason="compaction")])
    group, _ = await run_group(model)
    assert [about["weight"] for about in group["overrides"]] == [0.5] * 4
    assert group["group_overrides"]["group_size"] == 4


@pytest.mark.parametrize(("field", "split"), [("num_max_requests_at_once", "train"), ("num_requests_for_eval", "eval")])
async def test_a_server_gets_no_more_concurrent_requests_than_configured(field, split, monkeypatch):
    together, most = [0], [0]
    crowded = asyncio.Event()

    async def answer(_request):
        together[0] += 1
        most[0] = max(most[0], together[0])
        if together[0] == wanted:
            crowded.set()
        await crowded.wait()
        for _ in range(20):  # one more would come now
            await asyncio.sleep(0)
        together[0] -= 1
        return ModelReply(content="x")

    monkeypatch.setattr("hermes_atropos.model_servers.model_pool._chat_client", lambda _server: ChatDouble(answer))
    for wanted, limits in ((2, {field: 2}), (4, {})):
        most[0] = 0
        crowded.clear()
        env = environment(None, servers=[server(**limits)])
        await env.setup()
        await asyncio.gather(*(env.run_item(item, split=split) for item in env.puzzles[:4]))
        await env.aclose()
        assert most == [wanted]


def test_an_openai_server_is_spoken_to_by_the_plain_chat_client():
    env = PuzzleEnv(PuzzleEnv.config_init()[0], [server()])
    assert isinstance(env._workshop.model_pool.lanes[0].client, OpenAIChatClient)
    assert env._use_managed_server() is False


class SandboxEnv(PuzzleEnv):
    reward_needs_sandbox = True

    async def compute_reward(self, item, result, ctx):
        return 1.0 if (await ctx.terminal("true"))["exit_code"] == 0 else 0.5


def ending_its_sandbox(request):
    """Kill the agent in the first turn, in each attempt."""
    return calls("terminal", json.dumps({"command": "kill -9 $PPID"}))


@pytest.mark.parametrize("failed_rollouts", ["replace", "shrink", "reject"])
async def test_a_model_that_ends_its_sandbox_gets_the_lowest_reward(failed_rollouts):
    fields = {"enabled_toolsets": ["terminal"], "failed_rollouts": failed_rollouts, "lowest_reward": -2.0}
    group, env = await run_group(
        TokenDouble(ending_its_sandbox), SandboxEnv, ensure_scores_are_not_same=False, **fields
    )
    assert group["scores"] == [-2.0, -2.0]
    assert env.ledger.summary()["errored"] == 2


async def test_an_item_of_an_evaluation_that_lost_its_sandbox_is_repeated():
    seen = []

    def once_only(request):
        seen.append(request)
        return ending_its_sandbox(request) if len(seen) == 1 else says("0")

    env = environment(TokenDouble(once_only), kind=SandboxEnv, enabled_toolsets=["terminal"])
    await env.setup()
    outcome = await env.run_item(await env.get_next_item())
    await env.aclose()
    assert (outcome.reward, outcome.attempt) == (1.0, 2)
