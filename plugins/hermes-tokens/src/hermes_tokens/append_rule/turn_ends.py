"""Find the control tokens that a template writes at the end of a turn, and those that occur only within one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hermes_core.contracts.model import Message, RequestedCall
from hermes_tokens.append_rule.junction import Shape
from hermes_tokens.append_rule.stub_rendering import StubRenderer
from hermes_tokens.chat_template.reasoning import Reasoning
from hermes_tokens.chat_template.template import TemplateError
from hermes_tokens.vocabulary import ControlToken, ControlTokens

ShapeOf = Callable[[Sequence[RequestedCall], Sequence[Message]], Shape]
"""Returns the rendered shape of the text after a turn with these calls; raises `TemplateError`."""
_CALL: Final = RequestedCall(id="call00001", name="look", arguments="{}")
_FOLLOWING: Final[tuple[tuple[Sequence[RequestedCall], Message], ...]] = (
    ((), {"role": "user", "content": "Hello"}),
    ((_CALL,), {"role": "tool", "tool_call_id": _CALL.id, "content": "seen"}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """How the template ends one kind of turn: one before a user message or the end, or one before a tool result.

    Each of `ids` may be the last sampled one. `certain` are those that also end the last turn of a conversation, so
    they cannot be the start of the next message.
    """

    has_calls: bool
    ids: frozenset[int]
    certain: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnds:
    """Control ids: `closes` end a turn in the template's own text, `marks` delimit calls or reasoning.

    `openers` occur in the text after a turn, and never at the end of one.
    """

    kinds: tuple[TurnEnd, ...]
    closes: frozenset[int]
    marks: frozenset[int]
    openers: frozenset[int]

    @property
    def written(self) -> frozenset[int]:
        """The ids that end a turn of any kind."""
        return frozenset().union(*(kind.ids for kind in self.kinds))

    @classmethod
    def of(cls, controls: ControlTokens, renderer: StubRenderer, reasoning: Reasoning, shape_of: ShapeOf) -> TurnEnds:
        """Find them in the renderings of a turn before a user message and of one before a tool result."""
        kinds: list[TurnEnd] = []
        closes, marks, texts = set[int](), set[int](), set[int]()
        for calls, message in _FOLLOWING:
            try:
                shape, last = shape_of(calls, [message]), _ids_at_last(controls, renderer, calls, message)
            except TemplateError:  # for example, of a template without tools
                continue
            close = set() if shape.close is None else {shape.close.token.id}
            closes, marks, texts = closes | close, marks | shape.marks, texts | _ids_in(controls, shape.text)
            # Some templates (gpt-oss) end the last turn differently from an earlier one. Marks may follow a call.
            ids = close.union(shape.inner, () if calls else last)
            kinds.append(TurnEnd(has_calls=bool(calls), ids=frozenset(ids), certain=last & ids))
        around = {reasoning.opening, reasoning.closing}
        marks |= {token.id for text, token in controls.by_text.items() if text in around}
        ends = marks.union(*(kind.ids for kind in kinds))
        return cls(
            kinds=tuple(kinds), closes=frozenset(closes), marks=frozenset(marks), openers=frozenset(texts - ends)
        )


def _ids_at_last(
    controls: ControlTokens, renderer: StubRenderer, calls: Sequence[RequestedCall], message: Message
) -> frozenset[int]:
    """Return the control ids after the last turn of a conversation; the template must accept `message` there."""
    made = [{"id": call.id, "name": call.name} for call in calls]
    try:
        text = renderer.stub(made, [message], after_tools=False).after([], prompt=False)
    except TemplateError:  # of a template that requires an answer to each call
        return frozenset()
    return _ids_in(controls, text)


def _ids_in(controls: ControlTokens, text: str) -> frozenset[int]:
    return frozenset(piece.id for piece in controls.split(text) if isinstance(piece, ControlToken))
