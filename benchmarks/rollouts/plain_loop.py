"""The baseline: the agent loop a person writes with aiohttp in twenty lines; its tool does nothing, or runs bash.

Sends the same growing messages and the same tools as the framework does, and no more than that: no limits, no records,
no retries. `python -m benchmarks.rollouts.plain_loop --rollouts 200 --turns 6 --concurrency 64` starts the mock server
itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time
from collections.abc import Sequence
from typing import Any

import aiohttp

from benchmarks.rollouts.mock_server import MODEL_NAME, running

NOOP_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "noop",
        "description": "Does nothing.",
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    },
}
SHELL_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "terminal",
        "description": "Runs a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
PROMPT = "Call the tool until you are told to stop, then say that you are done."


def run(
    url: str,
    rollouts: int,
    turns: int,
    concurrency: int,
    *,
    tools: Sequence[dict[str, Any]] = (NOOP_TOOL,),
    prompt: str = PROMPT,
) -> dict[str, float]:
    """Run rollouts against a server and measure this process; `turns` guards against a different setup of the mock."""
    return asyncio.run(_measure(url, rollouts, turns, concurrency, list(tools), prompt=prompt))


async def _measure(
    url: str, rollouts: int, turns: int, concurrency: int, tools: list[dict[str, Any]], *, prompt: str
) -> dict[str, float]:
    slots = asyncio.Semaphore(concurrency)

    async def limited(session: aiohttp.ClientSession) -> int:
        async with slots:
            return await _rollout(session, url, tools, prompt)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(limited(session) for _ in range(min(rollouts, concurrency))))  # opens the connections
        cpu, wall = _cpu(), time.perf_counter()
        taken = await asyncio.gather(*(limited(session) for _ in range(rollouts)))
        cpu, wall = _cpu() - cpu, time.perf_counter() - wall
    if set(taken) != {turns}:
        raise RuntimeError(f"expected {turns} turns per rollout, got {sorted(set(taken))}")
    total = sum(taken)
    return {
        "rollouts": rollouts,
        "turns": total,
        "cpu_s": cpu,
        "wall_s": wall,
        "cpu_per_turn_ms": 1000 * cpu / total,
        "turns_per_s": total / wall,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


async def _rollout(session: aiohttp.ClientSession, url: str, tools: list[dict[str, Any]], prompt: str) -> int:
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    turns = 0
    while True:
        body = {"model": MODEL_NAME, "messages": messages, "tools": tools, "temperature": 1.0}
        async with session.post(f"{url}/chat/completions", json=body) as response:
            response.raise_for_status()
            message = (await response.json())["choices"][0]["message"]
        turns += 1
        messages.append(message)
        if not message.get("tool_calls"):
            return turns
        for call in message["tool_calls"]:
            arguments = json.loads(call["function"]["arguments"])
            content = await _run_shell(arguments["command"]) if "command" in arguments else "ok"
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})


async def _run_shell(command: str) -> str:
    process = await asyncio.create_subprocess_exec("bash", "-c", command, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    return said.decode()


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--url", help="base URL of a running mock server; without it one is started")
    parser.add_argument("--rollouts", type=int, default=200)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--shell", action="store_true", help="offer a tool that runs each command by its own bash")
    options = parser.parse_args()
    tools = (SHELL_TOOL,) if options.shell else (NOOP_TOOL,)
    if options.url:
        result = run(options.url, options.rollouts, options.turns, options.concurrency, tools=tools)
    else:
        with running(turns=options.turns, latency_ms=options.latency_ms) as url:
            result = run(url, options.rollouts, options.turns, options.concurrency, tools=tools)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
