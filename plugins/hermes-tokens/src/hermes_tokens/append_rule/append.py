"""The append rule, for any template: the next prompt is the ids so far plus what the template writes after the turn.

Imported on demand; needs `tokenizers` and `jinja2`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from typing import Any, Final, TypeVar

from hermes_core.contracts.model import Message, RequestedCall
from hermes_core.contracts.parsing import ToolCallParser
from hermes_tokens.append_rule.junction import Shape, require_texts
from hermes_tokens.append_rule.message_boundaries import message_ends
from hermes_tokens.append_rule.offered_tools import are_listed, declaration_of, without_controls
from hermes_tokens.append_rule.placeholders import SlottedMessages
from hermes_tokens.append_rule.stub_rendering import StubRenderer
from hermes_tokens.append_rule.template_skeleton import ContextSpan, Scaffold, treatments
from hermes_tokens.append_rule.turn_ends import TurnEnds
from hermes_tokens.chat_template.reasoning import Reasoning
from hermes_tokens.chat_template.template import TemplateError
from hermes_tokens.generation import FinishReason
from hermes_tokens.tokenizer import ChatTokenizer

# There are few shapes: they differ in how many results of which calls arrive at once. White space is part of a shape.
_MAX_SHAPES: Final = 512
# These are shapes of whole conversations, which may be long.
_MAX_OPENINGS: Final = 64
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedTurn:
    """How a sampled turn ended; `last_id` is its last sampled id, or None for an empty turn.

    `reasoning_open`: the turn ended at a limit, inside its reasoning. `stop_ids` were requested for this turn only.
    """

    last_id: int | None = None
    finish_reason: FinishReason = "stop"
    calls: tuple[RequestedCall, ...] = ()
    reasoning_open: bool = False
    stop_ids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The unsampled ids that follow the present ones.

    `kept`: 1 if the sampled stop token is the template's own. `replaced`: 1 if the last sampled id has to be replaced
    by `ids`, in a new branch. `inserted`: how many of `ids` close a turn that did not close itself. `opens_reasoning`:
    the next sampled turn starts inside reasoning.
    """

    spans: tuple[ContextSpan, ...] = ()
    kept: int = 0
    replaced: int = 0
    inserted: int = 0
    opens_reasoning: bool = False

    @property
    def ids(self) -> tuple[int, ...]:
        """All ids, in order."""
        return tuple(token for span in self.spans for token in span.ids)


class AppendRule:
    """The rule for one template and one set of tools, shared by the rollouts of a run. Each shape is rendered once.

    Tools that the template does not list are declared in the system prompt by `parser`: `declaration` is that text (""
    if there is none); callers never see it in a message. `stop_ids` end a turn in addition to the tokenizer's own.
    Without `may_replace`, a turn with a stop token that the template does not write is not continued, because the token
    would have to be replaced in a branch.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        *,
        tools: Sequence[Any] = (),
        parser: ToolCallParser | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        stop_ids: AbstractSet[int] = frozenset(),
        may_replace: bool = True,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.tokenizer = tokenizer
        self.stop_ids = tokenizer.stop_ids | stop_ids
        self._may_replace = may_replace
        self.tools = tuple(tools)
        kwargs = dict(template_kwargs or {})
        self.template = tokenizer.template(self.tools).using(kwargs, clock=clock)
        offered = without_controls(self.tools, tokenizer.controls)
        self.lists_tools = are_listed(self.template, offered)
        self.parser = parser
        self.declaration = "" if self.lists_tools else declaration_of(parser, offered)
        self.renderer = StubRenderer(self.template, offered, declaration=self.declaration)
        self.reasoning = Reasoning.of(self.renderer)
        self._marker = self.reasoning.marker_spans(tokenizer)
        named = [tokenizer.fingerprint, self.tools, self.declaration, kwargs]
        described = json.dumps(named, default=str, sort_keys=True)
        self.fingerprint = sha256(described.encode("utf-8", "replace")).hexdigest()
        self._openings: dict[str, tuple[Scaffold, bool]] = {}
        self._shapes: dict[tuple[str, bool], Shape] = {}

    def with_tools(self, tools: Sequence[Any]) -> AppendRule:
        """Return the same rule for other tools."""
        return AppendRule(
            self.tokenizer,
            tools=tools,
            parser=self.parser,
            template_kwargs=self.template.variables,
            stop_ids=self.stop_ids,
            may_replace=self._may_replace,
        )

    @cached_property
    def ends(self) -> TurnEnds:
        """The control tokens at the end of a turn and within it."""
        return TurnEnds.of(
            self.tokenizer.controls,
            self.renderer,
            self.reasoning,
            lambda calls, messages: self.shape(calls, messages)[0],
        )

    def opening(self, messages: Sequence[Message]) -> Appended:
        """Return the first prompt, up to where the model starts to write; raises `TemplateError`."""
        slotted = SlottedMessages(messages)
        found = self._openings.get(slotted.key)
        if found is None:
            found = self._opening(slotted)
            _remember(self._openings, slotted.key, found, _MAX_OPENINGS)
        scaffold, opens_reasoning = found
        return Appended(spans=tuple(scaffold.spans(slotted.values)), opens_reasoning=opens_reasoning)

    def delta(self, closing: ClosedTurn, messages: Sequence[Message], *, after_tools: bool = False) -> Appended:
        """Return what follows a sampled turn; raise `TemplateError` for messages that the template refuses.

        `after_tools`: there was a tool result before this turn. Some templates treat the first tool result differently.
        """
        shape, slotted = self.shape(closing.calls, messages, after_tools=after_tools)
        junction = shape.junction(closing.last_id, self.stop_ids | closing.stop_ids)
        if junction.replaced and closing.last_id is not None and not self._may_replace:
            raise self._refusal(closing.last_id)
        marker = closing.reasoning_open and not junction.kept
        closed = [*(self._marker if marker else ()), *junction.before.spans(slotted.values)]
        inserted = sum(len(span.ids) for span in closed) - junction.replaced
        return Appended(
            spans=_merge_spans([*closed, *junction.after.spans(slotted.values)]),
            kept=junction.kept,
            replaced=junction.replaced,
            inserted=max(0, inserted),
            opens_reasoning=self.reasoning.is_opened_by(shape.text),
        )

    def _refusal(self, token: int) -> TemplateError:
        return TemplateError(
            f"expected a turn that ends as the chat template writes it, got {self.tokenizer.decode([token])!r} "
            f"(id {token}) at its end: replacing it starts a branch, and allow_branches is false",
            hint="remove --no-allow-branches (allow_branches: false), or find out why the model stops there",
        )

    def shape(
        self, calls: Sequence[RequestedCall], messages: Sequence[Message], *, after_tools: bool = False
    ) -> tuple[Shape, SlottedMessages]:
        """Return the rendered shape of these messages and the texts to fill in."""
        slotted = SlottedMessages(messages, calls)
        key = (slotted.key, after_tools)
        shape = self._shapes.get(key)
        if shape is None:
            stops = frozenset(filter(self.tokenizer.is_special, self.stop_ids))
            shape = Shape.of(self.renderer, self.tokenizer, slotted, after_tools=after_tools, stops=stops)
            _remember(self._shapes, key, shape, _MAX_SHAPES)
        return shape, slotted

    def opening_text(self, messages: Sequence[Message]) -> str:
        """Return the first prompt as text."""
        slotted = SlottedMessages(messages)
        return self._opening(slotted)[0].text(slotted.values)

    def _opening(self, slotted: SlottedMessages) -> tuple[Scaffold, bool]:
        new = slotted.messages
        text = self.renderer.render(new)
        require_texts(slotted, text)
        probe = self.renderer.render(slotted.with_padding())
        scaffold = Scaffold(
            self.tokenizer,
            text,
            treatments=treatments(text, probe, slotted.texts),
            ends=message_ends(text, lambda count: self.renderer.render(new[:count], prompt=False), slotted, first=1),
            roles=[*(str(message.get("role")) for message in new), "assistant"],
            at_start=True,
        )
        return scaffold, self.reasoning.is_opened_by(text)


def _merge_spans(spans: Sequence[ContextSpan]) -> tuple[ContextSpan, ...]:
    """Join the pieces of text that close a turn."""
    merged: list[ContextSpan] = []
    for index, span in enumerate(spans):
        if index and merged[-1].role == span.role == "assistant":
            merged[-1] = ContextSpan(role=span.role, ids=merged[-1].ids + span.ids)
        else:
            merged.append(span)
    return tuple(merged)


def _remember(cache: dict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    if len(cache) >= most:
        cache.pop(next(iter(cache)))
    cache[key] = value
