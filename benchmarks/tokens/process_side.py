"""One side of `process`: an environment whose rollouts call a tool that does nothing, on atroposlib or on ours.

Prints one JSON object; run by `process_comparison` in a separate process, with an environment that has atroposlib.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.rollouts.plain_loop import NOOP_TOOL, PROMPT
from benchmarks.tokens import conversations

ITEM = {"question": PROMPT}


def ours(url: str, groups: int, size: int, out: Path) -> Any:
    """Create an environment of hermes-atropos."""
    package = importlib.import_module("hermes_atropos")

    class Env(package.HermesAgentBaseEnv):  # type: ignore[misc, name-defined]  # a module that is imported by name
        """Gives every rollout the same score."""

        reward_needs_sandbox = False

        async def get_next_item(self) -> Any:
            return ITEM

        def format_prompt(self, item: Any) -> str:
            return str(item["question"])

        async def compute_reward(self, item: Any, result: Any, ctx: Any) -> float:
            del item, result, ctx
            return 1.0

        async def evaluate(self) -> None:
            return None

    config = package.HermesAgentEnvConfig(
        group_size=size,
        total_steps=groups,
        ensure_scores_are_not_same=False,
        tool_call_parser=None,
        enabled_toolsets=["noop"],
        plugins={
            "allow": [
                "hermes-sandbox",
                "hermes-tools",
                "hermes-models",
                "hermes-tokens",
                "hermes-runner",
            ],
            "extra": ["noop_plugin"],
        },
        data_path_to_save_groups=str(out / "groups.jsonl"),
    )
    return Env(config, [package.APIServerConfig(base_url=url, model_name="mock", api_key="x")])


def theirs(url: str, groups: int, size: int, out: Path) -> Any:
    """Create an environment of atroposlib, with the loop of its examples."""
    base = importlib.import_module("atroposlib.envs.base")

    class Env(base.BaseEnv):  # type: ignore[misc, name-defined]  # as above
        """Gives every rollout the same score."""

        n_groups_to_process = groups
        group_size_to_process = size

        async def setup(self) -> None:
            return None

        async def get_next_item(self) -> Any:
            return ITEM

        async def collect_trajectory(self, item: Any) -> Any:
            messages: list[Any] = [{"role": "user", "content": item["question"]}]
            while True:
                done = await self.server.chat_completion(messages=messages, tools=[NOOP_TOOL], n=1)
                message = done.choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                if not message.tool_calls:
                    return {"tokens": [1, 2, 3], "masks": [-100, 2, 3], "scores": 1.0}, []
                messages += [{"role": "tool", "tool_call_id": c.id, "content": "{}"} for c in message.tool_calls]

        async def evaluate(self) -> None:
            return None

    tokenizer = conversations.write_folder(out / "tokenizer", "{{ messages }}")
    config = base.BaseEnvConfig(
        tokenizer_name=str(tokenizer),
        group_size=size,
        ensure_scores_are_not_same=False,
        use_wandb=False,
        data_path_to_save_groups=str(out / "groups.jsonl"),
    )
    server = base.APIServerConfig(base_url=url, model_name="mock", api_key="x", health_check=False)
    return Env(config, [server])


async def run_process(env: Any) -> float:
    """Return the seconds that `process` takes."""
    began = time.perf_counter()
    await env.process_manager()
    return time.perf_counter() - began


def main() -> None:
    """Measure once and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("side", choices=["ours", "atroposlib"])
    parser.add_argument("url")
    parser.add_argument("--groups", type=int, default=40)
    parser.add_argument("--size", type=int, default=4)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "rollouts"))
    make = ours if options.side == "ours" else theirs
    with tempfile.TemporaryDirectory() as out:
        env = make(options.url, options.groups, options.size, Path(out))
        logging.disable(logging.CRITICAL)
        seconds = asyncio.run(run_process(env))
        lines = (Path(out) / "groups.jsonl").read_text(encoding="utf-8").splitlines()
    if len(lines) != options.groups or any(len(json.loads(line)["scores"]) != options.size for line in lines):
        raise RuntimeError(f"expected {options.groups} groups, got {len(lines)}")
    rollouts = options.groups * options.size
    print(json.dumps({"wall_s": seconds, "rollouts": rollouts, "per_s": rollouts / seconds}))


if __name__ == "__main__":
    main()
