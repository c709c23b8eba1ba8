"""An environment as it was written over hermes-agent's `AgentEnv`, with its imports changed and nothing else.

hermes-agent's modules were `atropos.agent`, `atropos.envs.agent_env`, `atropos.tools` and `atroposlib.envs…`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import Field

from hermes_atropos import APIServerConfig, ToolCall, ToolResult
from hermes_atropos.agent.env import AgentEnv, AgentEnvConfig
from hermes_atropos.agent.results import AgentConfig, AgentResult

Item = dict[str, Any]


class SumsConfig(AgentEnvConfig):
    numbers: int = Field(default=3, description="How many numbers are in the file.")
    steps_for_hard: int = Field(default=6, description="Steps of an item with many numbers.")


class SumsEnv(AgentEnv[SumsConfig]):
    """The model has to run a command to learn the numbers, and to write their sum where the test looks for it."""

    name = "sums"
    env_config_cls = SumsConfig

    @classmethod
    def config_init(cls) -> tuple[SumsConfig, list[APIServerConfig]]:
        env_config = SumsConfig(
            group_size=2,
            use_wandb=False,
            include_messages=True,
            ensure_scores_are_not_same=False,
            tool_pool_mode="nomad",
            enabled_toolsets=["default"],
            agent_max_steps=4,
            agent_temperature=0.7,
        )
        return env_config, [APIServerConfig(base_url="http://127.0.0.1:9/v1", model_name="m", api_key="x")]

    async def setup_agent_env(self) -> None:
        self._rng = random.Random(0)
        self.scores: list[float] = []

    async def get_next_item(self) -> Item:
        return {"numbers": [self._rng.randint(1, 99) for _ in range(self.config.numbers)]}

    def build_task(self, item: Item) -> str:
        return f"Write the sum of the {len(item['numbers'])} numbers in numbers.txt to sum.txt."

    def build_agent_config(self, item: Item) -> AgentConfig:
        if len(item["numbers"]) < 10:
            return super().build_agent_config(item)
        return AgentConfig(
            max_steps=self.config.steps_for_hard,
            temperature=self.config.agent_temperature,
            max_tokens=self.config.agent_max_tokens,
        )

    async def setup_trajectory_workspace(
        self, item: Item, *, trajectory_id: str, exec_tool: Callable[[ToolCall], Awaitable[ToolResult]]
    ) -> dict[str, Any]:
        lines = " ".join(map(str, item["numbers"]))
        result = await exec_tool(
            ToolCall(
                name="terminal",
                arguments={"command": f"printf '%s\\n' {lines} > numbers.txt && mkdir -p tests", "timeout": 30},
            )
        )
        if not result.success:
            raise RuntimeError(f"cannot prepare {trajectory_id}: {result.error}")
        return {"expected": sum(item["numbers"])}

    async def score_trajectory(self, item: Item, final_response: str) -> float:
        raise NotImplementedError("scored in the workspace")

    async def verify_and_score_trajectory(
        self,
        item: Item,
        final_response: str,
        *,
        trajectory_id: str,
        exec_tool: Callable[[ToolCall], Awaitable[ToolResult]],
        agent_result: AgentResult | None = None,
        workspace_meta: dict[str, Any] | None = None,
    ) -> tuple[float, dict[str, Any]]:
        if agent_result is None or agent_result.total_tool_calls == 0:
            return 0.0, {"error": "no tool calls"}
        test = f'test "$(cat sum.txt)" = {(workspace_meta or {})["expected"]}'
        await exec_tool(ToolCall(name="write_file", arguments={"path": "tests/run.sh", "content": test}))
        result = await exec_tool(ToolCall(name="terminal", arguments={"command": "bash tests/run.sh"}))
        score = 1.0 if result.success else 0.0
        self.scores.append(score)
        return score, {"exit_code": result.metadata.get("exit_code"), "steps": agent_result.num_steps}

    async def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        final_response, about = await self.run_agent("Say where you are.", trajectory_id="eval-1")
        return {"success": float(about["success"]), "calls": about["tool_calls"], "length": len(final_response)}


if __name__ == "__main__":
    SumsEnv.cli()
