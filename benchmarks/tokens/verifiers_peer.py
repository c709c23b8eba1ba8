"""Run verifiers' training client: its trace graph, its renderers, its HTTP requests to a scripted vLLM server."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parents[2] / "plugins" / "hermes-tokens" / "tests" / "support"
Job = dict[str, Any]


def run_job(job: Job) -> dict[str, Any]:
    """Run a case; the exchanges are those of the server's log."""
    return {"exchanges": asyncio.run(_exchanges(job))}


async def _exchanges(job: Job) -> list[Any]:
    train = importlib.import_module("verifiers.v1.clients.train")
    configs = importlib.import_module("verifiers.v1.configs.client")
    sys.path.insert(0, str(SUPPORT))
    tests = importlib.import_module("token_server")
    turns = iter(job["turns"])

    def sampler(_prompt: list[int], _sampling: Mapping[str, Any]) -> Any:
        turn = next(turns)
        ids, finish = turn["ids"], turn["finish_reason"]
        stop = ids[-1] if finish == "stop" else None
        return tests.Sampled(ids=ids, logprobs=[-0.5] * len(ids), finish_reason=finish, stop_id=stop)

    async with tests.serving_tokens(tests.TokenServer("vllm", sampler, wire=_wire())) as server:
        config = configs.TrainClientConfig(
            base_url=f"{server.url}/v1",
            api_key_var="NO_KEY",
            renderer=_renderer(job),
            renderer_model_name=job["folder"],
        )
        client = train.TrainClient(config)
        try:
            await _talk(client, job)
        finally:
            await client.close()
    return [[line["prompt_ids"], line["ids"]] for line in server.lines]


async def _talk(client: Any, job: Job) -> None:
    graph = importlib.import_module("verifiers.v1.graph")
    dialect = importlib.import_module("verifiers.v1.dialects").ChatDialect()
    sampling = importlib.import_module("verifiers.v1.types").SamplingConfig()
    # A trace without a task and an agent, which the graph does not need.
    trace = importlib.import_module("verifiers.v1.trace").Trace.model_construct(task=None, agent=None)
    messages = list(job["first"])
    for turn in job["turns"]:
        body = {"model": "m", "messages": messages, "tools": job["tools"]}
        request = dialect.parse_request(body)
        pending = graph.prepare_turn(trace, request.messages, request.tools)
        response = await client.get_response(dialect, body, sampling, turn=pending)
        pending.commit(response)
        messages = [*messages, response.raw["choices"][0]["message"], *turn["new"]]


def _renderer(job: Job) -> Any:
    renderers = importlib.import_module("renderers")
    if job["template"] == "qwen3":
        return renderers.Qwen3RendererConfig()
    return renderers.Qwen35RendererConfig(enable_thinking=True)


def _wire() -> Any:
    """The tests' vLLM, with its names of tokens, and without a parameter that the client adds."""
    vllm = importlib.import_module("token_wire").VllmWire

    class Wire(vllm):  # type: ignore[misc, valid-type]  # a class that is imported by name
        """As above."""

        def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
            sampling = {key: body["sampling_params"][key] for key in body["sampling_params"] if "routed" not in key}
            return super().read({**body, "sampling_params": sampling}, headers)

        def answer(self, asked: Any, drawn: Any) -> Any:
            found = super().answer(asked, drawn)
            for entry in found["choices"][0]["logprobs"]["content"]:
                entry["token"] = f"token_id:{entry['token_id']}"
            return found

    return Wire()
