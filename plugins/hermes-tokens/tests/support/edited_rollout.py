"""A rollout with a caller that edits history, and typical edits."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chatml_folder import TEMPLATE

from hermes_core.contracts.errors import ModelServerError
from hermes_core.contracts.model import Conversation, Message, ModelRequest, ToolSchemas
from hermes_tokens.append_rule.append import AppendRule
from hermes_tokens.clients.token_model import TokenModel
from hermes_tokens.exactness import Exchange, check_exactness
from hermes_tokens.generation import Generated, GenerateRequest
from hermes_tokens.tokenizer import ChatTokenizer

_REASONING = "{% if message.reasoning_content %}<think>\n{{ message.reasoning_content }}\n</think>\n\n{% endif %}"
THINKING = TEMPLATE.replace("{{ message.content or '' }}", f"{_REASONING}{{{{ message.content or '' }}}}")
TOOL = {"type": "function", "function": {"name": "terminal", "description": "run", "parameters": {"type": "object"}}}
TOOLS = ToolSchemas.of([TOOL])


def new_call(number: int, command: str) -> dict[str, Any]:
    function = {"name": "terminal", "arguments": json.dumps({"command": command, "times": 1.0})}
    return {"id": f"call_{number}", "type": "function", "function": function}


def result(number: int, content: str) -> Message:
    return result_of(f"call_{number}", content)


def result_of(call_id: str, content: str = "found") -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


OPENING: list[Message] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Look around."}]
# Each turn as its caller reads it, and what follows it.
TURNS: list[tuple[Message, list[Message]]] = [
    (
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "a file?",
            "tool_calls": [new_call(1, "ls -l")],
        },
        [result(1, "notes.txt")],
    ),
    ({"role": "assistant", "content": "There are notes."}, [{"role": "user", "content": "Read them twice."}]),
    (
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [new_call(2, "cat notes.txt"), new_call(3, "wc notes.txt")],
        },
        [result(2, "secret: 42"), result(3, "1 2 10")],
    ),
    ({"role": "assistant", "content": "It says 42."}, [{"role": "user", "content": "Why?"}]),
]


@dataclass
class Sampler:
    """A generate client that samples the given ids in turn, and keeps the prompts it was sent."""

    turns: list[list[int]]
    exchanges: list[Exchange] = field(default_factory=list)
    fails: int = 0
    aborts: int = 0

    @property
    def provenance(self) -> dict[str, Any]:
        return {}

    async def check(self) -> None:
        """Be there."""

    async def aclose(self) -> None:
        """Close nothing."""

    async def generate(self, request: GenerateRequest) -> Generated:
        if self.fails:
            self.fails -= 1
            raise ModelServerError("the server is away")
        ids = self.turns.pop(0)
        logprobs = [-(1 + place) / 8 for place in range(len(ids))]
        self.exchanges.append(Exchange(prompt_ids=list(request.prompt.ids), ids=ids, logprobs=logprobs))
        if self.aborts:
            self.aborts -= 1
            return Generated(ids=tuple(ids), logprobs=tuple(logprobs), finish_reason="abort")
        return Generated(ids=tuple(ids), logprobs=tuple(logprobs), finish_reason="stop", stop_id=ids[-1])


class EditedRollout:
    """A session with the turns above, each written as the template writes it."""

    def __init__(
        self, tokenizer: ChatTokenizer, *, tells: bool, stops: Sequence[str] = ("<|im_end|>",), **options: Any
    ) -> None:
        self.tokenizer = tokenizer
        self.rule = AppendRule(tokenizer, tools=[TOOL])
        self.sampler = Sampler([])
        self.model = TokenModel(self.sampler, tokenizer, **options)
        self.session = self.model.session("r1")
        self.tells = tells
        self.stops = stops
        self.spells = False
        self.messages = copy.deepcopy(OPENING)

    async def turn(self, answer: Message, *, tools: ToolSchemas = TOOLS) -> None:
        """Sample one turn, which the caller reads as the answer."""
        await self.sample(self.text(answer), tools=tools)
        if self.tells:
            self.session.record_message(copy.deepcopy(answer))

    async def sample(self, text: str, *, tools: ToolSchemas = TOOLS) -> None:
        """Sample a text; spelled, no two letters are one token, which no encoder makes of it."""
        pieces = self.tokenizer.controls.split(text)
        letters = [letter for piece in pieces for letter in (piece if isinstance(piece, str) else [piece.text])]
        parts = letters if self.spells else [text]
        ids = [token for part in parts for token in self.tokenizer.encode_scaffold(part)]
        self.sampler.turns = [ids] * (self.sampler.aborts or 1)
        await self.session.chat(ModelRequest(conversation=Conversation(self.messages), tools=tools, rollout_id="r1"))

    def text(self, answer: Message) -> str:
        """Return an answer as the template writes it, up to the token that ends the turn."""
        before = self.rule.opening_text(self.messages)
        calls = answer.get("tool_calls")
        following = result_of(calls[0]["id"]) if calls else {"role": "user", "content": "Well?"}
        written = self.rule.opening_text([*self.messages, answer, following])
        if not written.startswith(before):  # the template writes an earlier turn otherwise than the last
            written = self.rule.opening_text([*self.messages, answer])
        assert written.startswith(before)
        text = written[len(before) :]
        place, stop = min((text.index(stop), stop) for stop in self.stops if stop in text)
        return text[:place] + stop

    async def turns(self, count: int) -> None:
        """Run turns with what follows each."""
        for answer, following in TURNS[:count]:
            await self.turn(answer)
            self.messages += copy.deepcopy([answer, *following])

    @property
    def sent(self) -> list[int]:
        return list(self.sampler.exchanges[-1].prompt_ids)

    @property
    def written(self) -> list[int]:
        """The ids of the template's own rendering of the messages."""
        return list(self.rule.opening(self.messages).ids)

    def reasons(self) -> list[str]:
        return [sample.reason for sample in self.session.samples()]

    def check(self):
        return check_exactness(self.sampler.exchanges, [sample.to_json() for sample in self.session.samples()])


def assert_true(rollout: EditedRollout) -> None:
    """Check that the report agrees with the server's log: each sampled token once, in the prompts that were sent."""
    report = rollout.session.exactness()
    assert report.is_exact, report.to_json()
    assert report.faults == ()
    assert report.parity_equal == report.parity_checked == 1
    assert rollout.check().is_exact, rollout.check().to_json()
    assert rollout.check().continued == report.continued
    edits = sum(reason.startswith("history_edited: turn ") for reason in rollout.reasons())
    assert report.break_reasons == ({"history_edited": edits} if edits else {})


Edit = Callable[[list[Message], int], bool]
"""Changes or moves the message at an index; returns whether it could."""


def of_field(name: str, value: Callable[[Any], Any]) -> Edit:
    def edit(messages: list[Message], at: int) -> bool:
        if not messages[at].get(name):
            return False
        messages[at][name] = value(messages[at][name])
        return True

    return edit


def of_call(change: Callable[[dict[str, Any]], object]) -> Edit:
    def edit(messages: list[Message], at: int) -> bool:
        calls = messages[at].get("tool_calls")
        if not calls:
            return False
        change(calls[-1])
        return True

    return edit


def arguments(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda call: call["function"].update(arguments=json.dumps(values))


def drop(messages: list[Message], at: int) -> bool:
    del messages[at]
    return True


def swap(messages: list[Message], at: int) -> bool:
    other = (at + 1) % len(messages)
    messages[at], messages[other] = messages[other], messages[at]
    return True


def insert(**message: str) -> Edit:
    def edit(messages: list[Message], at: int) -> bool:
        messages.insert(at, dict(message))
        return True

    return edit


EDITS: dict[str, Edit] = {
    "drop": drop,
    "reorder": swap,
    "insert a user": insert(role="user", content="And?"),
    "insert an assistant": insert(role="assistant", content="And."),
    "insert a system": insert(role="system", content="Be kind."),
    "shorten": of_field("content", lambda text: text[:-1]),
    "shorten at its start": of_field("content", lambda text: text[1:]),
    "empty": of_field("content", lambda text: ""),
    "none": of_field("content", lambda text: None),
    "add": of_field("content", lambda text: f"{text} And more."),
    "space": of_field("content", lambda text: f"{text}\n"),
    "redact": of_field("content", lambda text: "[redacted]"),
    "change reasoning": of_field("reasoning_content", lambda text: "no file"),
    "drop reasoning": of_field("reasoning_content", lambda text: None),
    "remove a call": of_field("tool_calls", lambda calls: calls[:-1]),
    "double a call": of_field("tool_calls", lambda calls: [*calls, calls[-1]]),
    "reorder calls": of_field("tool_calls", lambda calls: calls[::-1]),
    "redact arguments": of_call(arguments(command="***", times=1.0)),
    "drop arguments": of_call(arguments()),
    "add an argument": of_call(arguments(command="cat notes.txt", times=1.0, more="x")),
    "another number": of_call(arguments(command="wc notes.txt", times=1)),
    "reorder arguments": of_call(arguments(times=1.0, command="wc notes.txt")),
    "another name": of_call(lambda call: call["function"].update(name="term")),
    "another role": lambda messages, at: (
        "reasoning_content" not in messages[at] and (messages[at].update(role="user") or True)
    ),
}
