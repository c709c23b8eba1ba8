"""One rollout at token level against a token server over loopback, for tests of requests and samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from token_server import Sampled, TokenServer, serving_tokens

from hermes_core.contracts.model import Conversation, ModelRequest, ToolSchemas
from hermes_tokens.clients.factory import create_generate_client
from hermes_tokens.clients.token_model import TokenModel
from hermes_tokens.exactness import Exchange, check_exactness
from hermes_tokens.tokenizer import ChatTokenizer

TOOLS = ToolSchemas.of(
    [{"type": "function", "function": {"name": "terminal", "description": "run", "parameters": {"type": "object"}}}]
)
CALL = {"id": "call_1", "type": "function", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}
CALL_TEXT = '<tool_call>\n{"name": "terminal", "arguments": {"command":"ls"}}\n</tool_call>'


class Script:
    """Samples the given texts in turn; each may end with a control token or not."""

    def __init__(self, tokenizer: ChatTokenizer, *texts: str | Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._texts = list(texts)

    def __call__(self, prompt: list[int], sampling) -> Sampled:
        text = self._texts.pop(0)
        ids = self._tokenizer.encode_scaffold(text) if isinstance(text, str) else list(text)
        stops = ids[-1:] and ids[-1] in self._tokenizer.stop_ids
        return Sampled(
            ids=ids,
            logprobs=[-(1 + place) / 8 for place in range(len(ids))],
            finish_reason="stop" if stops else "length",
            stop_id=ids[-1] if stops else None,
        )


class Rollout:
    """A session together with its conversation."""

    def __init__(self, server: TokenServer, model: TokenModel, tokenizer: ChatTokenizer) -> None:
        self.server = server
        self.model = model
        self.tokenizer = tokenizer
        self.session = model.session("r1")

    async def ask(self, *messages, tools: ToolSchemas = TOOLS, **sampling):
        return await self.session.chat(
            ModelRequest(conversation=Conversation(messages), tools=tools, sampling=sampling, rollout_id="r1")
        )

    def check(self):
        """Return the independent check against the server's own log."""
        exchanges = [exchange for line in self.server.lines if (exchange := Exchange.of_line(line))]
        return check_exactness(exchanges, [sample.to_json() for sample in self.session.samples()])

    def text(self, number: int = 0) -> str:
        return self.tokenizer.decode(self.session.samples()[number].tokens)


@asynccontextmanager
async def open_rollout(folder: Path, sampler: Callable | Sequence, *, protocol: str = "vllm", client=None, **options):
    """Serve a sampler, or texts to sample; `client` and the other options are those of the client and of the model."""
    tokenizer = ChatTokenizer.load(folder)
    script = sampler if callable(sampler) else Script(tokenizer, *sampler)
    async with serving_tokens(TokenServer(protocol, script)) as server:
        generating = create_generate_client(protocol, server.url, "m", **(client or {}))
        model = TokenModel(generating, tokenizer, **options)
        try:
            yield Rollout(server, model, tokenizer)
        finally:
            await model.aclose()


USER = {"role": "user", "content": "Look."}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "notes.txt"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
