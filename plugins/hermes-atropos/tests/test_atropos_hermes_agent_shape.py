"""An environment written for hermes-agent, imports changed and nothing else: process, serve, evaluate."""

from __future__ import annotations

import json
import os

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import lines
from chat_server import completion, serving_answers
from served_groups import serve_one_group
from written_files_env import TASKS, WrittenFilesEnv

from hermes_atropos import ToolContext
from hermes_atropos.command import parse
from hermes_core.contracts.errors import ConfigError

PLUGINS = (
    '{"allow": ["hermes-sandbox", "hermes-tools", "hermes-models", "hermes-tokens", '
    '"hermes-runner"], "extra": ["atropos_components"]}'
)


def environment(*words, command="process", **fields):
    flags = [word for name, value in fields.items() for word in (f"--env.{name}", str(value))]
    invocation = parse(WrittenFilesEnv, [command, "--env.plugins", PLUGINS, *flags, *words])
    return WrittenFilesEnv(invocation.env, invocation.servers)


async def writes_what_is_asked(request):
    """Call `terminal` once, then answer; a judge's question is answered with yes."""
    body = json.loads(await request.read())
    first, last = body["messages"][0]["content"], body["messages"][-1]
    if first.startswith("Is "):
        return _json(completion("yes"))
    if last["role"] == "tool":
        return _json(completion("written"))
    task = next(task for task in TASKS if task["prompt"] == first)
    arguments = json.dumps({"command": f"printf {task['content']} > {task['path']}"})
    call = {"id": "c", "type": "function", "function": {"name": "terminal", "arguments": arguments}}
    return _json(completion(None, tool_calls=[call]))


def _json(value):
    from aiohttp import web

    return web.json_response(value)


@pytest.fixture
async def chat():
    async with serving_answers() as served:
        served.set_answers(writes_what_is_asked)
        yield served


async def test_process_scores_what_the_model_did_in_its_sandbox(chat, tmp_path):
    path = tmp_path / "g.jsonl"
    before = dict(os.environ)
    env = environment("--openai.base_url", chat.url, data_path_to_save_groups=path, total_steps=2)
    await env.process_manager()
    assert [group["scores"] for group in lines(path)] == [[1.0, 1.0], [1.0, 1.0]]
    assert sorted(env.seen) == sorted([task["path"] for task in TASKS] * 2)
    assert dict(os.environ) == before


async def test_its_reward_may_await_the_server_between_calls_without_await(chat, tmp_path):
    path = tmp_path / "g.jsonl"
    env = environment("--openai.base_url", chat.url, data_path_to_save_groups=path, total_steps=1, judge="true")
    await env.process_manager()
    assert lines(path)[0]["scores"] == [0.75, 0.75]


async def test_evaluate_uses_the_agent_loop_and_a_context_by_task_id(chat):
    env = environment("--openai.base_url", chat.url, command="evaluate")
    assert await env._run_evaluate() == {"eval/percent_correct": 1.0}
    temperatures = {body["temperature"] for _, body in chat.chats}
    assert temperatures == {0.0}


async def test_the_sandboxes_of_its_own_rollouts_are_closed_with_it(chat):
    env = environment("--openai.base_url", chat.url, command="evaluate")
    env.evaluate = env_evaluate_without_cleanup(env)
    await env._run_evaluate()
    assert env.server.own._open == {}


def env_evaluate_without_cleanup(env):
    async def evaluate():
        assert ToolContext("left-open").terminal("echo here")["output"].strip() == "here"
        assert set(env.server.own._open) == {"left-open"}

    return evaluate


async def test_a_context_by_task_id_needs_an_environment():
    with pytest.raises(ConfigError, match="outside of an environment"):
        ToolContext("t")


async def test_serve_sends_a_trainer_what_was_sampled(tmp_path):
    def reply(prompt):
        return "cannot<|im_end|>" if "tool_response" in prompt else "CALL terminal<|im_end|>"

    fields = {"tool_call_parser": "shouting", "include_messages": "true"}
    env, group, trained = await serve_one_group(environment, reply, tmp_path / "tokenizer", **fields)
    assert group["scores"] == [0.0, 0.0]
    assert trained == "CALL terminal<|im_end|>cannot<|im_end|>"
    assert env.ledger.summary()["open"] == 0


async def test_metrics_for_items_have_hermes_agents_names(chat):
    env = environment("--openai.base_url", chat.url, command="evaluate")
    await env.setup()
    items = [{**TASKS[0], "category": "easy"}, {**TASKS[1], "category": "hard", "content": "eight"}]
    metrics = await env.evaluate_items(items)
    await env.aclose()
    assert metrics["eval/total_tasks"] == 2
    assert metrics["eval/passed_tasks"] == 1
    assert (metrics["eval/pass_rate"], metrics["eval/pass_rate_easy"], metrics["eval/pass_rate_hard"]) == (
        0.5,
        1.0,
        0.0,
    )
