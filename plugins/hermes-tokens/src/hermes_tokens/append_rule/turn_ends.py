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
    """Control ids: `closes` are the last of a turn in the template's own text, `marks` set calls or reasoning apart.

    `by_kind` are those at the end of a turn, any of which may be the last that was sampled: before a user's message,
    and before a tool's result.
    """

    closes: frozenset[int]
    marks: frozenset[int]
    by_kind: tuple[frozenset[int], ...]

    @property
    def written(self) -> frozenset[int]:
        """Those of all kinds of turns."""
        return frozenset().union(*self.by_kind)

    @classmethod
    def of(cls, rule: AppendRule) -> TurnEnds:
        """Read them off the renderings of a turn before a user's message and of one before a tool's result."""
        shapes = list(_shapes(rule))
        closes = [frozenset(() if shape.close is None else (shape.close.token.id,)) for shape in shapes]
        around = {rule.reasoning.opening, rule.reasoning.closing}
        reasoning = {token.id for text, token in rule.tokenizer.controls.by_text.items() if text in around}
        return cls(
            closes=frozenset().union(*closes),
            marks=frozenset(reasoning.union(*(shape.marks for shape in shapes))),
            by_kind=tuple(close.union(shape.inner) for close, shape in zip(closes, shapes, strict=True)),
        )


def _shapes(rule: AppendRule) -> Iterator[Shape]:
    for calls, message in _FOLLOWING:
        try:
            yield rule.shape(calls, [message])[0]
        except TemplateError:  # of a template without tools, say
            continue
