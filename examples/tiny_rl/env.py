"""The environment: an ordinary `HermesAgentBaseEnv`, whose model reads files in a sandbox with `read_file`.

`python -m tiny_rl.env serve|evaluate --config env.yaml`
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from hermes_atropos import AgentResult, APIServerConfig, HermesAgentBaseEnv, HermesAgentEnvConfig
from hermes_core.contracts.rollout import RolloutOutcome
from hermes_core.contracts.task import TaskFile
from hermes_core.rollout import GroupPlan
from tiny_rl.tasks import Task, reward, tasks

MOST_TURNS: Final = 4
MOST_TOKENS: Final = 24
"""Tokens of one turn: a call takes eight, an answer five."""


class LookupConfig(HermesAgentEnvConfig):
    """Which tasks are drawn, and where evaluations are recorded."""

    task_seed: int = Field(default=0, description="Determines the training tasks and the held-out ones.")
    eval_tasks: int = Field(
        default=100, ge=1, description="Number of held-out tasks per evaluation; each seed has its own."
    )
    evals_path: str = Field(default="evals.jsonl", description="Gets one line for each evaluation.")


class LookupEnv(HermesAgentBaseEnv):
    """Asks for codes that only `read_file` can find."""

    name = "tiny-lookup"
    env_config_cls = LookupConfig
    reward_needs_sandbox = False

    @classmethod
    def config_init(cls) -> tuple[LookupConfig, list[Any]]:
        """Return a configuration for a model server and a trajectory API on this machine."""
        config = LookupConfig(
            tokenizer_name="model",
            group_size=8,
            # The trainer sets the number when it registers.
            total_steps=-1,
            max_num_workers=8,
            max_batches_offpolicy=1,
            enabled_toolsets=["file"],
            disabled_toolsets=["write_file", "patch", "search_files"],
            max_agent_turns=MOST_TURNS,
            sampling={"max_tokens": MOST_TOKENS},
            generate_protocol="vllm",
            logprobs_mode="raw",
            require_exact=True,
            # The trainer itself skips groups without differences; dropping them here would distort the reward's curve.
            ensure_scores_are_not_same=False,
            serve_poll_interval=0.1,
            # The run requests evaluations, before and after training.
            steps_per_eval=0,
        )
        return config, [APIServerConfig(base_url="http://127.0.0.1:8900", server_type="vllm", model_name="default")]

    async def setup(self) -> None:
        """Start the stream of training tasks."""
        self._tasks = tasks("train", self.config.task_seed)

    async def get_next_item(self) -> Task:
        """Return the next training task."""
        return next(self._tasks)

    def format_prompt(self, item: Task) -> str:
        """Return the question."""
        return item.question

    def plan_group(self, item: Task, *, split: str = "train") -> GroupPlan:
        """Plan a group whose sandboxes hold the task's files."""
        plan = super().plan_group(item, split=split)
        files = tuple(TaskFile(path=path, data=text.encode()) for path, text in item.files.items())
        return dataclasses.replace(plan, task=dataclasses.replace(plan.task, id=item.id, files=files))

    async def compute_reward(self, item: Task, result: AgentResult, ctx: Any) -> float:  # noqa: ARG002 - the answer is enough
        """Compare the final answer with the code."""
        return reward(item, result.final_response)

    async def evaluate(self, *_args: Any, **_kwargs: Any) -> None:
        """Run the held-out tasks once each, and record their mean reward."""
        held_out = tasks("test", self.config.task_seed)
        items = [next(held_out) for _ in range(self.config.eval_tasks)]
        outcomes = await asyncio.gather(*(self.run_item(item) for item in items))
        line = json.dumps({"step": self.curr_step, **_summary(outcomes)})
        await asyncio.to_thread(_append, Path(self.config.evals_path), line)


def _summary(outcomes: list[RolloutOutcome]) -> dict[str, Any]:
    rewards = [outcome.reward for outcome in outcomes if outcome.reward is not None]
    return {
        "reward": sum(rewards) / len(outcomes),
        "tasks": len(outcomes),
        "scored": len(rewards),
        "exact": sum(outcome.exactness is not None and outcome.exactness.is_exact for outcome in outcomes),
        "stop_reasons": sorted({str(outcome.stop_reason) for outcome in outcomes}),
    }


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


if __name__ == "__main__":
    LookupEnv.cli()
