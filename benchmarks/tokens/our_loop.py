"""Our side at token level: the real scheduler, engine, token model, vLLM client and recorder on the mock's requests.

Prints one JSON object; run by `framework_cost` in a separate process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.rollouts.our_loop import Silent, cpu_seconds, specs
from hermes_core.discovery import PluginSettings, load_plugins
from hermes_core.rollout import Runtime, run_rollout
from hermes_core.specs import Ref
from hermes_runner import OutputFolder, Policy, Recorder, Scheduler
from hermes_tokens import ChatTokenizer, GenerateClient, Generated, GenerateRequest, TokenModel, create_generate_client


class Marking:
    """A generate client that records the process's CPU seconds at each request and passes it on."""

    def __init__(self, inner: GenerateClient) -> None:
        self._inner = inner
        self.marks: dict[str, list[float]] = {}

    @property
    def provenance(self) -> Any:
        """The wrapped client's value."""
        return self._inner.provenance

    async def check(self) -> None:
        """Check the server."""
        await self._inner.check()

    async def generate(self, request: GenerateRequest) -> Generated:
        """Sample a turn."""
        self.marks.setdefault(request.rollout_id, []).append(time.process_time())
        return await self._inner.generate(request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


async def run_rollouts(url: str, tokenizer: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run the rollouts after a round that opens the connections."""
    registry = load_plugins(
        PluginSettings(
            allow=(
                "hermes-sandbox",
                "hermes-tools",
                "hermes-models",
                "hermes-tokens",
                "hermes-runner",
                "hermes-parsers",
            ),
            extra=("noop_plugin",),
        )
    )
    client = Marking(create_generate_client("vllm", url, "m", echo_prompt=options.echo))
    model = TokenModel(client, ChatTokenizer.load(tokenizer))
    with tempfile.TemporaryDirectory() as out:
        folder = OutputFolder.open(Path(out), {}, facts={})
        recorder = Recorder(folder, {})
        async with Runtime(registry, parser=Ref(kind="parser", name="hermes")) as runtime:
            scheduler = Scheduler(
                partial(run_rollout, runtime=runtime, model=model), recorder, Policy({}, max_attempts=1), Silent()
            )
            await scheduler.run(
                iter(specs(registry, options.concurrency, options.turns)), max_concurrent=options.concurrency
            )
            client.marks.clear()
            before = cpu_seconds()
            plan = specs(registry, options.rollouts, options.turns)
            await scheduler.run(iter(plan), max_concurrent=options.concurrency)
            cpu = cpu_seconds() - before
        await model.aclose()
        await recorder.close()
        lines = [json.loads(line) for line in folder.rollouts.lines()][-options.rollouts :]
        folder.close()
    turns = sum(line["turns"] for line in lines)
    inexact = [line["exactness"] for line in lines if line["exactness"]["faults"]]
    if inexact or any(line["stop_reason"] != "final_answer" for line in lines):
        raise RuntimeError(f"expected exact rollouts with a final answer, got {inexact[:1] or lines[0]}")
    return {
        "turns": turns,
        "tokens_per_rollout": sum(len(line["samples"][0]["tokens"]) for line in lines) / len(lines),
        "cpu_per_turn_ms": 1000 * cpu / turns,
        "marks": list(client.marks.values()),
    }


def main() -> None:
    """Measure once and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rollouts", type=int, default=16)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--echo", action="store_true", help="let the server send the prompt back")
    parser.add_argument("--profile", action="store_true", help="print what costs most instead")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "rollouts"))
    if options.profile:
        _profiled(options)
        return
    print(json.dumps(asyncio.run(run_rollouts(options.url, options.folder, options))))


def _profiled(options: argparse.Namespace) -> None:
    import cProfile
    import pstats

    profile = cProfile.Profile()
    profile.runcall(asyncio.run, run_rollouts(options.url, options.folder, options))
    pstats.Stats(profile).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
