"""The logprobs of samples, computed again by another program from the same weights."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

from families import FAMILIES
from vllm_engine import Engine

from hermes_core.contracts.model import Conversation, ModelRequest, ToolSchemas
from hermes_parsers import get_parser
from hermes_tokens import ChatTokenizer, TokenModel, create_generate_client

COMPUTE = Path(__file__).with_name("support") / "compute_logprobs.py"
# Both compute in float32, in another order of additions: that is worth some 1e-5. A token at another place, another
# temperature or half precision would be wrong by 0.01 and more.
LARGEST_DIFFERENCE = 1e-3


async def test_the_logprob_of_each_sampled_token_is_that_of_its_own_place(engine):
    client = create_generate_client("vllm", engine.url, engine.model_name)
    model = TokenModel(client, ChatTokenizer.load(engine.tokenizer_dir), parser=get_parser(FAMILIES["qwen3"].parser))
    try:
        samples = [
            sample for part in await asyncio.gather(*(_talk(model, f"r{n}") for n in range(8))) for sample in part
        ]
    finally:
        await model.aclose()
    computed = await asyncio.to_thread(_compute, engine, [list(sample.tokens) for sample in samples])
    differences = [
        abs(kept - again)
        for sample, logprobs in zip(samples, computed, strict=True)
        for kept, again in zip(sample.logprobs, logprobs, strict=True)
        if kept is not None
    ]
    assert len(differences) == 8 * 3 * 40
    assert max(differences) < LARGEST_DIFFERENCE


async def _talk(model: TokenModel, rollout: str):
    """Run three turns, of which the model writes any tokens there are, and return the samples."""
    session = model.session(rollout)
    messages = [{"role": "user", "content": "What is it?"}]
    for _ in range(3):
        request = ModelRequest(
            conversation=Conversation(messages),
            tools=ToolSchemas.of([]),
            rollout_id=rollout,
            sampling={"max_tokens": 40, "ignore_eos": True},
        )
        reply = await session.chat(request)
        message = {"role": "assistant", "content": reply.content}
        session.record_message(message)
        messages = [*messages, message, {"role": "user", "content": "And then?"}]
    assert session.exactness().is_exact
    return session.samples()


def _compute(engine: Engine, sequences: list[list[int]]) -> list[list[float | None]]:
    text = json.dumps({"folder": str(engine.tokenizer_dir), "sequences": sequences})
    found = subprocess.run(
        [engine.python, COMPUTE], input=text, text=True, capture_output=True, check=True, timeout=300
    )
    return json.loads(found.stdout)
