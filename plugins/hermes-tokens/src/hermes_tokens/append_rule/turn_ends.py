"""Which control tokens a template writes at the end of a turn, and which only stand within one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hermes_core.contracts.model import Message, RequestedCall
from hermes_tokens.chat_template.template import TemplateError

if TYPE_CHECKING:
    from hermes_tokens.append_rule.append import AppendRule
    from hermes_tokens.append_rule.junction import Shape

_CALL: Final = RequestedCall(id="call00001", name="look", arguments="{}")
_FOLLOWING: Final[tuple[tuple[Sequence[RequestedCall], Message], ...]] = (
    ((), {"role": "user", "content": "Hello"}),
    ((_CALL,), {"role": "tool", "tool_call_id": _CALL.id, "content": "seen"}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnds:
    """Control ids: `written` end a turn in the template's own text, `marks` set calls or reasoning apart within one."""

    written: frozenset[int]
    marks: frozenset[int]

    @classmethod
    def of(cls, rule: AppendRule) -> TurnEnds:
        """Read them off the renderings of a turn before a user's message and of one before a tool's result."""
        shapes = list(_shapes(rule))
        closes = {shape.close.token.id for shape in shapes if shape.close is not None}
        written = closes.union(*(shape.inner for shape in shapes))
        around = {rule.reasoning.opening, rule.reasoning.closing}
        reasoning = {token.id for text, token in rule.tokenizer.controls.by_text.items() if text in around}
        return cls(written=frozenset(written), marks=frozenset(reasoning.union(*(shape.marks for shape in shapes))))


def _shapes(rule: AppendRule) -> Iterator[Shape]:
    for calls, message in _FOLLOWING:
        try:
            yield rule.shape(calls, [message])[0]
        except TemplateError:  # of a template without tools, say
            continue
