"""An environment of hermes-agent with its own `collect_trajectory`; only the imports are changed."""

from __future__ import annotations

import uuid
from typing import Any

from hermes_atropos import (
    AgentResult,
    APIServerConfig,
    HermesAgentBaseEnv,
    HermesAgentEnvConfig,
    HermesAgentLoop,
    ScoredDataItem,
    ToolContext,
)


class WrittenRolloutsEnv(HermesAgentBaseEnv):
    name = "written-rollouts"
    env_config_cls = HermesAgentEnvConfig

    @classmethod
    def config_init(cls) -> tuple[HermesAgentEnvConfig, list[APIServerConfig]]:
        config = HermesAgentEnvConfig(
            enabled_toolsets=["terminal"], group_size=2, ensure_scores_are_not_same=False, max_agent_turns=4
        )
        return config, [APIServerConfig(base_url="http://127.0.0.1:9/v1", model_name="m", api_key="x")]

    async def setup(self) -> None:
        self.groups_with_tools: list[set[str]] = []

    async def get_next_item(self) -> dict[str, str]:
        return {"prompt": "Write blue into colour.txt"}

    def format_prompt(self, item: dict[str, str]) -> str:
        return item["prompt"]

    async def compute_reward(self, item: dict[str, str], result: AgentResult, ctx: ToolContext) -> float:
        written = ctx.write_file("colour.txt", "blue")
        shown = ctx.terminal("cat colour.txt")
        is_blue = shown["exit_code"] == 0 and shown["output"].strip() == "blue"
        return 1.0 if is_blue and not written.get("error") else 0.0

    async def collect_trajectory(self, item: dict[str, str]) -> tuple[ScoredDataItem | None, list[Any]]:
        task_id = str(uuid.uuid4())
        if self._current_group_tools is None:
            tools, valid_names = self._resolve_tools_for_group()
        else:
            tools, valid_names = self._current_group_tools
            self.groups_with_tools.append(valid_names)
        messages = [{"role": "user", "content": self.format_prompt(item)}]
        options = {
            "tool_schemas": tools,
            "valid_tool_names": valid_names,
            "max_turns": self.config.max_agent_turns,
            "task_id": task_id,
            "temperature": self.config.agent_temperature,
            "max_tokens": self.config.max_token_length,
            "extra_body": self.config.extra_body,
        }
        if self._use_managed_server():
            async with self.server.managed_server(tokenizer=None) as managed:
                result = await HermesAgentLoop(server=managed, **options).run(messages)
        else:
            result = await HermesAgentLoop(server=self.server, **options).run(messages)
        ctx = ToolContext(task_id)
        try:
            reward = await self.compute_reward(item, result, ctx)
        finally:
            ctx.cleanup()
        for err in result.tool_errors:
            self._tool_error_buffer.append(
                {
                    "turn": err.turn,
                    "tool": err.tool_name,
                    "args": err.arguments[:150],
                    "error": err.error[:300],
                    "result": err.tool_result[:300],
                }
            )
        nodes = (result.managed_state or {}).get("nodes", [])
        if nodes:
            node = nodes[-1]
            scored = {"tokens": node.tokens, "masks": node.masked_tokens, "scores": reward}
        else:
            tokens = list(range(8))
            scored = {"tokens": tokens, "masks": [-100, *tokens[1:]], "scores": reward}
        scored["messages"] = result.messages
        return scored, []

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        return None
