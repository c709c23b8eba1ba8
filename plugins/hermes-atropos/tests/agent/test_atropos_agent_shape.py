"""An environment written over hermes-agent's AgentEnv, with its imports changed alone: process, serve, evaluate."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from agent_envs import agent_config, call_of, responses
from aiohttp import web
from atropos_envs import ChatDouble, lines, says, server
from chat_server import completion, serving_answers
from served_groups import serve_one_group
from written_agent_env import SumsEnv

from hermes_atropos.command import parse
from hermes_core.contracts.errors import PluginError

PLUGINS = '{"allow": ["hermes-sandbox", "hermes-tools", "hermes-models", "hermes-tokens", "hermes-runner"]}'
AWK = call_of("terminal", command="awk '{s+=$1} END {print s}' numbers.txt > sum.txt")


def environment(*words, command="process", mode="local", **fields):
    flags = [word for name, value in fields.items() for word in (f"--env.{name}", str(value))]
    words = [command, "--env.plugins", PLUGINS, "--env.tool_pool_mode", mode, *flags, *words]
    invocation = parse(SumsEnv, words)
    return SumsEnv(invocation.env, invocation.servers)


async def answers(request):
    body = await request.json()
    is_first = body["messages"][-1]["content"].startswith(("Write", "Say"))
    return web.json_response(completion(f"<think>Add.</think>{AWK}" if is_first else "<think>Good.</think>Done."))


@pytest.fixture
async def chat():
    async with serving_answers() as served:
        served.set_answers(answers)
        yield served


async def test_process_scores_what_is_in_the_workspace(chat, tmp_path):
    path, before = tmp_path / "g.jsonl", dict(os.environ)
    env = environment("--openai.base_url", chat.url, data_path_to_save_groups=path, total_steps=2, numbers=12)
    await env.process_manager()
    groups = lines(path)
    assert [group["scores"] for group in groups] == [[1.0, 1.0]] * 2
    assert env.scores == [1.0] * 4
    assert groups[0]["overrides"][0]["reward_parts"] == {"exit_code": 0.0, "steps": 2.0}
    assert [message["role"] for message in groups[0]["messages"][0]] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert dict(os.environ) == before


async def test_evaluate_runs_the_agent(chat):
    env = environment("--openai.base_url", chat.url, command="evaluate")
    assert await env._run_evaluate() == {"success": 1.0, "calls": 1, "length": 5}


async def test_its_own_pool_names_the_package_that_is_missing(chat, tmp_path):
    path = tmp_path / "g.jsonl"
    env = environment("--openai.base_url", chat.url, mode="nomad", data_path_to_save_groups=path)
    with pytest.raises(PluginError, match="pip install hermes-backend-nomad, or set tool_pool_mode: local"):
        await env.process_manager()


async def test_serve_sends_a_trainer_what_was_sampled(tmp_path):
    texts = (f"{AWK}<|im_end|>", "Done.<|im_end|>")

    def reply(prompt):
        return texts[0 if prompt.count("<|im_start|>assistant") == 1 else 1]

    env, group, trained = await serve_one_group(environment, reply, tmp_path / "tokenizer", require_exact="true")
    assert group["scores"] == [1.0, 1.0]
    assert trained == "".join(texts)
    assert env.ledger.summary()["open"] == 0


async def test_the_documents_example_runs(tmp_path):
    document = Path(__file__).parents[2].joinpath("ATROPOS.md")
    if not document.is_file():
        pytest.skip("ATROPOS.md lies in the repository only")
    codes = re.findall(r"^```python\n(.*?)^```", document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    names: dict = {"__name__": "lines"}
    exec(next(code for code in codes if "class Lines" in code), names)  # the document's own text
    kind = names["Lines"]
    kind.build_model = lambda self: ChatDouble(
        lambda request: (
            says(responses(request.conversation.messages[-1]["content"])[0]["output"])
            if len(request.conversation) > 2
            else says(call_of("terminal", command="wc -l < notes.txt"))
        )
    )
    path = tmp_path / "g.jsonl"
    await kind(agent_config(data_path_to_save_groups=str(path), total_steps=2), [server()]).process_manager()
    assert [group["scores"] for group in lines(path)] == [[1.0, 1.0]] * 2
