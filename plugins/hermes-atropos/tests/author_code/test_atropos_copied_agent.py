"""A `collect_trajectory` copied from hermes-agent's AgentEnv, with its executor and its agent."""

from __future__ import annotations

import uuid

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from agent_envs import call_of
from atropos_envs import lines
from chatml_folder import chatml_folder
from token_server import Sampled, TokenServer, serving_tokens
from written_agent_env import SumsEnv

from hermes_atropos.agent.agent import AtroposAgent
from hermes_atropos.command import parse
from hermes_tokens import ChatTokenizer

PLUGINS = '{"allow": ["hermes-sandbox", "hermes-tools", "hermes-models", "hermes-tokens", "hermes-runner"]}'
AWK = call_of("terminal", command="awk '{s+=$1} END {print s}' numbers.txt > sum.txt")


class CopiedEnv(SumsEnv):
    async def collect_trajectory(self, item):
        if self._tool_executor is None:
            raise RuntimeError("Tool backend not started")
        trajectory_id = str(uuid.uuid4())
        task = self.build_task(item)

        async def _exec(call):
            return await self._tool_executor.execute(trajectory_id, call)

        agent = AtroposAgent(
            server=self.server,
            tokenizer=None,
            tools=self.tools,
            config=self.build_agent_config(item),
            execute_tool=_exec,
        )
        try:
            meta = await self.setup_trajectory_workspace(item, trajectory_id=trajectory_id, exec_tool=_exec)
            result = await agent.run(task)
            if not result.success or result.trajectory_data is None:
                return None, []
            score, _ = await self.verify_and_score_trajectory(
                item,
                result.final_response,
                trajectory_id=trajectory_id,
                exec_tool=_exec,
                agent_result=result,
                workspace_meta=meta,
            )
            scored = {
                "tokens": result.trajectory_data.tokens,
                "masks": result.trajectory_data.masked_tokens,
                "scores": score,
            }
            return scored, []
        finally:
            await self._tool_executor.release_trajectory(trajectory_id, reset_workspace=True)


async def test_it_works_in_a_workspace_of_its_own_and_keeps_its_logprobs(tmp_path):
    folder, path = chatml_folder(tmp_path / "tokenizer"), tmp_path / "g.jsonl"
    tokenizer = ChatTokenizer.load(folder)

    def sample(prompt, _sampling):
        asked = tokenizer.decode(prompt).partition("Write the sum")[2]
        ids = tokenizer.encode_scaffold(f"{'Done.' if '<tool_response>' in asked else AWK}<|im_end|>")
        return Sampled(ids=ids, logprobs=[-0.25] * len(ids), stop_id=ids[-1])

    async with serving_tokens(TokenServer("vllm", sample)) as served:
        flags = {"tool_pool_mode": "local", "tokenizer_name": folder, "total_steps": 1, "plugins": PLUGINS}
        words = [word for name, value in flags.items() for word in (f"--env.{name}", str(value))]
        server = ["--openai.base_url", served.url, "--openai.server_type", "vllm"]
        invocation = parse(CopiedEnv, ["process", "--env.data_path_to_save_groups", str(path), *words, *server])
        env = CopiedEnv(invocation.env, invocation.servers)
        await env.process_manager()
    (group,) = lines(path)
    assert group["scores"] == [1.0, 1.0]
    assert env.server.own._open == {}
    for masks, logprobs in zip(group["masks"], group["inference_logprobs"], strict=True):
        assert [number for mask, number in zip(masks, logprobs, strict=True) if mask != -100] == [-0.25] * sum(
            mask != -100 for mask in masks
        )
