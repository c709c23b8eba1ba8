"""An environment as it was written for hermes-agent, with its imports changed and nothing else.

hermes-agent's modules were `environments.hermes_base_env`, `environments.agent_loop`, `environments.tool_context`
and `atroposlib.envs…`. The reward calls its context without `await` and awaits the server in between.
"""

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
    ServerBaseline,
    ToolContext,
)

TASKS = [
    {"prompt": "Write blue into colour.txt", "path": "colour.txt", "content": "blue"},
    {"prompt": "Write seven into number.txt", "path": "number.txt", "content": "seven"},
]


class WrittenFilesConfig(HermesAgentEnvConfig):
    judge: bool = False


class WrittenFilesEnv(HermesAgentBaseEnv):
    name = "written-files"
    env_config_cls = WrittenFilesConfig

    @classmethod
    def config_init(cls) -> tuple[WrittenFilesConfig, ServerBaseline | list[APIServerConfig]]:
        env_config = WrittenFilesConfig(
            enabled_toolsets=["terminal", "file"],
            max_agent_turns=5,
            terminal_backend="local",
            group_size=2,
            use_wandb=False,
            ensure_scores_are_not_same=False,
        )
        return env_config, [APIServerConfig(base_url="http://127.0.0.1:9/v1", model_name="m", api_key="x")]

    async def setup(self) -> None:
        self.iter = 0
        self.reward_buffer: list[float] = []

    async def get_next_item(self) -> dict[str, str]:
        item = TASKS[self.iter % len(TASKS)]
        self.iter += 1
        return item

    def format_prompt(self, item: dict[str, str]) -> str:
        return item["prompt"]

    async def compute_reward(self, item: dict[str, str], result: AgentResult, ctx: ToolContext) -> float:
        shown = ctx.terminal(f"cat {item['path']}")
        if shown["exit_code"] != 0:
            reward = 0.0
        elif self.config.judge:
            question = f"Is {shown['output']!r} right?"
            answer = await self.server.chat_completion(
                messages=[{"role": "user", "content": question}], n=1, max_tokens=5, temperature=0.0, split="eval"
            )
            reward = 0.75 if answer.choices[0].message.content.startswith("yes") else 0.25
        else:
            reward = 1.0 if shown["output"].strip() == item["content"] else 0.5
        assert ctx.read_file(item["path"]).get("error") is None or reward == 0.0
        self.reward_buffer.append(reward)
        return reward

    async def collect_trajectory(self, item: Any) -> tuple[ScoredDataItem | None, list[Any]]:
        self.seen = [*getattr(self, "seen", []), item["path"]]
        return await super().collect_trajectory(item)

    async def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        correct = 0
        for item in TASKS:
            task_id = str(uuid.uuid4())
            tools, valid_names = self._resolve_tools_for_group()
            messages = [{"role": "user", "content": self.format_prompt(item)}]
            agent = HermesAgentLoop(
                server=self.server,
                tool_schemas=tools,
                valid_tool_names=valid_names,
                max_turns=self.config.max_agent_turns,
                task_id=task_id,
                temperature=0.0,
                max_tokens=self.config.max_token_length,
                extra_body=self.config.extra_body,
            )
            result = await agent.run(messages)
            assert messages[-1]["role"] == "assistant"
            ctx = ToolContext(task_id)
            try:
                written = ctx.terminal(f"cat {item['path']}")["output"].strip()
                correct += result.finished_naturally and written == item["content"]
            finally:
                ctx.cleanup()
        self.eval_metrics = [("eval/percent_correct", correct / len(TASKS))]
        return dict(self.eval_metrics)

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        metrics = {} if wandb_metrics is None else wandb_metrics
        if self.reward_buffer:
            metrics["train/avg_reward"] = sum(self.reward_buffer) / len(self.reward_buffer)
            self.reward_buffer = []
        await super().wandb_log(metrics)


if __name__ == "__main__":
    WrittenFilesEnv.cli()
