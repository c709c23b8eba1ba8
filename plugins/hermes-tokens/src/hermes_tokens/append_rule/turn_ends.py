"""Which control tokens a template writes at the end of a turn, and which only stand within one."""

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
"""Returns the rendered shape of what follows a turn with these calls; raises `TemplateError`."""
_CALL: Final = RequestedCall(id="call00001", name="look", arguments="{}")
_FOLLOWING: Final[tuple[tuple[Sequence[RequestedCall], Message], ...]] = (
    ((), {"role": "user", "content": "Hello"}),
    ((_CALL,), {"role": "tool", "tool_call_id": _CALL.id, "content": "seen"}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """How the template ends one kind of turn: before a user's message or nothing, or before a tool's result.

    `ids` may each be the last that was sampled. `certain` are those that also end the last turn of a conversation: no
    message follows whose beginning they could be.
    """

    has_calls: bool
    ids: frozenset[int]
    certain: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnds:
    """Control ids: `closes` are the last of a turn in the template's own text, `marks` set calls or reasoning apart.

    `openers` stand in what follows a turn, and at the end of none.
    """

    kinds: tuple[TurnEnd, ...]
    closes: frozenset[int]
    marks: frozenset[int]
    openers: frozenset[int]

    @property
    def written(self) -> frozenset[int]:
        """What ends a turn of any kind."""
        return frozenset().union(*(kind.ids for kind in self.kinds))

    @classmethod
    def of(cls, controls: ControlTokens, renderer: StubRenderer, reasoning: Reasoning, shape_of: ShapeOf) -> TurnEnds:
        """Read them off the renderings of a turn before a user's message and of one before a tool's result."""
        kinds: list[TurnEnd] = []
        closes, marks, texts = set[int](), set[int](), set[int]()
        for calls, message in _FOLLOWING:
            try:
                shape, last = shape_of(calls, [message]), _ids_at_last(controls, renderer, calls, message)
            except TemplateError:  # of a template without tools, say
                continue
            close = set() if shape.close is None else {shape.close.token.id}
            closes, marks, texts = closes | close, marks | shape.marks, texts | _ids_in(controls, shape.text)
            # Some templates end the last turn otherwise than an earlier one: gpt-oss. Behind a call there may be marks.
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
    """Return the control ids behind a turn that nothing follows; `message` is what the template must take there."""
    made = [{"id": call.id, "name": call.name} for call in calls]
    try:
        text = renderer.stub(made, [message], after_tools=False).after([], prompt=False)
    except TemplateError:  # of one that wants an answer to each call
        return frozenset()
    return _ids_in(controls, text)


def _ids_in(controls: ControlTokens, text: str) -> frozenset[int]:
    return frozenset(piece.id for piece in controls.split(text) if isinstance(piece, ControlToken))
