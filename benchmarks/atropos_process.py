"""`process` beside atroposlib's own `process_manager`: rollouts per second on the same mock server with latency.

Both sides play 40 groups of 4 rollouts of 6 turns against a model that takes 200 ms, each in a process of its own.
`python benchmarks/atropos_process.py` prints JSON and exits 1 when the target is missed. Needs the extra
hermes-agent-core[atropos].
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mock_server import MODEL_NAME, running

HERE = Path(__file__).parent
GROUPS, GROUP_SIZE, TURNS, LATENCY_MS = 40, 4, 6, 200.0
TARGET = 10.0
PROMPT = "Call the tool until you are told to stop, then say that you are done."
TOOL = {"type": "function", "function": {"name": "noop", "parameters": {"type": "object", "properties": {}}}}


async def ours(url: str) -> None:
    """Play the groups with `HermesAgentBaseEnv`."""
    from hermes_core.atropos import APIServerConfig, HermesAgentBaseEnv, HermesAgentEnvConfig

    class Env(HermesAgentBaseEnv):
        reward_needs_sandbox = False

        async def get_next_item(self) -> dict[str, str]:
            return {"prompt": PROMPT}

        async def compute_reward(self, item: Any, result: Any, ctx: Any) -> float:
            del item, ctx
            return float(result.turns_used)

        async def evaluate(self, *args: Any, **kwargs: Any) -> None:
            del args, kwargs

    with tempfile.TemporaryDirectory() as folder:
        config = HermesAgentEnvConfig(
            group_size=GROUP_SIZE,
            total_steps=GROUPS,
            ensure_scores_are_not_same=False,
            enabled_toolsets=["noop"],
            plugins={"allow": ["hermes-agent-core"], "extra": ["noop_plugin"]},
            data_path_to_save_groups=str(Path(folder, "groups.jsonl")),
        )
        env = Env(config, [APIServerConfig(base_url=url, model_name=MODEL_NAME, api_key="x")])
        await env.process_manager()
        assert env.groups_written == GROUPS


async def bare(url: str) -> None:
    """Play the groups with atroposlib alone, and the plainest loop that calls tools."""
    base: Any = importlib.import_module("atroposlib.envs.base")
    # It would be downloaded, and the page made of the groups is not what is measured.
    base.AutoTokenizer = type("NoTokenizer", (), {"from_pretrained": classmethod(lambda cls, _name: cls())})
    base.generate_html = lambda _path: None

    class Env(base.BaseEnv):  # type: ignore[misc]  # atroposlib ships no types
        async def setup(self) -> None:
            self.max_token_len = 10**6

        async def get_next_item(self) -> dict[str, str]:
            return {"prompt": PROMPT}

        async def evaluate(self, *args: Any, **kwargs: Any) -> None:
            del args, kwargs

        async def add_rollouts_for_wandb(self, scored_data: Any, item: Any = None) -> None:
            del scored_data, item

        async def collect_trajectory(self, item: dict[str, str]) -> tuple[Any, list[Any]]:
            messages: list[Any] = [{"role": "user", "content": item["prompt"]}]
            while True:
                answer = await self.server.chat_completion(messages=messages, n=1, tools=[TOOL])
                message = answer.choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                if not message.tool_calls:
                    break
                messages += [{"role": "tool", "tool_call_id": c.id, "content": "{}"} for c in message.tool_calls]
            return {"tokens": [1, 2], "masks": [-100, 2], "scores": float(len(messages)), "messages": messages}, []

    config = base.BaseEnvConfig(use_wandb=False, group_size=GROUP_SIZE, ensure_scores_are_not_same=False)
    server = base.APIServerConfig(base_url=url, model_name=MODEL_NAME, api_key="x", health_check=False)
    env = Env(config, [server])
    env.n_groups_to_process, env.group_size_to_process = GROUPS, GROUP_SIZE
    await env.process_manager()
    assert env.curr_step == GROUPS


def play(side: str, url: str) -> dict[str, float]:
    """Play one side in this process; the imports of both are done before the clock starts."""
    importlib.import_module("atroposlib.envs.base")

    started = time.perf_counter()
    asyncio.run({"ours": ours, "bare": bare}[side](url))
    seconds = time.perf_counter() - started
    return {"seconds": round(seconds, 2), "rollouts_per_second": round(GROUPS * GROUP_SIZE / seconds, 2)}


def compare() -> dict[str, Any]:
    """Play both sides, one after the other."""
    found: dict[str, Any] = {}
    with running(turns=TURNS, latency_ms=LATENCY_MS) as url:
        for side in ("ours", "bare"):
            command = [sys.executable, __file__, "--side", side, "--url", url]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found[side] = json.loads(done.stdout.splitlines()[-1])
    found["ideal_seconds"] = TURNS * LATENCY_MS / 1000
    found["ratio"] = round(found["ours"]["rollouts_per_second"] / found["bare"]["rollouts_per_second"], 1)
    return found


def main() -> int:
    """Print the comparison, or one side of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", choices=("ours", "bare"))
    parser.add_argument("--url", default="")
    options = parser.parse_args()
    if options.side:
        print(json.dumps(play(options.side, options.url)))
        return 0
    found = compare()
    print(json.dumps(found, indent=2))
    return 0 if found["ratio"] >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
