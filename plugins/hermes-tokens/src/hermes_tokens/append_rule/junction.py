"""Find the junction between a sampled turn and the template text that follows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from hermes_core.contracts.model import Message
from hermes_tokens.append_rule.message_boundaries import message_ends
from hermes_tokens.append_rule.placeholders import SLOT, SlottedMessages, slot
from hermes_tokens.append_rule.stub_rendering import StubRenderer
from hermes_tokens.append_rule.template_skeleton import Scaffold, Treatment, treatments
from hermes_tokens.chat_template.template import TemplateError
from hermes_tokens.tokenizer import ChatTokenizer
from hermes_tokens.vocabulary import ControlToken, ControlTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A control token in a text."""

    token: ControlToken
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Junction:
    """The text to append to a sampled turn: `before` closes it, `after` follows."""

    before: Scaffold
    after: Scaffold
    kept: int = 0
    replaced: int = 0


@dataclass(slots=True, kw_only=True)
class Shape:
    """The text after a stub's body, for messages of one shape.

    `close` is the token that ends the turn, and `body_end` the position where a truncated turn continues. `inner` are
    the control tokens in between, each of which may be the last one sampled; `marks` are those that delimit calls.
    """

    tokenizer: ChatTokenizer
    text: str
    treatments: Mapping[int, Treatment]
    ends: Sequence[int]
    roles: Sequence[str]
    body_end: int
    close: Placed | None
    inner: Mapping[int, Placed] = field(default_factory=dict)
    marks: frozenset[int] = frozenset()
    _junctions: dict[tuple[int, int, int], Junction] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        renderer: StubRenderer,
        tokenizer: ChatTokenizer,
        slotted: SlottedMessages,
        *,
        after_tools: bool,
        stops: AbstractSet[int] = frozenset(),
    ) -> Shape:
        """Render the shape; raise `TemplateError` if the template does not support it.

        `stops` end a turn in addition to the tokenizer's own stop tokens.
        """
        new = slotted.messages
        stub = renderer.stub(slotted.calls, new, after_tools=after_tools)
        text = stub.after(new)
        require_texts(slotted, text)
        ends = message_ends(text, lambda count: stub.after(new[:count], prompt=False), slotted, first=0)
        tokens = list(_find_controls(tokenizer.controls, text, _first_text(slotted, text)))
        others = stops | (_content_close(renderer, tokenizer.controls) if stub.has_calls else frozenset())
        own_end = ends[0] or (len(text) if stub.has_calls else 0)  # after a call, 0 means unknown
        close = _known_close(tokens, tokenizer.stop_ids, others, own_end=own_end)
        if close is None:
            close = _likely_close(tokens, text, own_end=own_end, has_calls=stub.has_calls)
        before = [] if close is None else [placed for placed in tokens if placed.end < close.end]
        inner, marks = ([], before) if stub.has_calls else (before, [])
        return cls(
            tokenizer=tokenizer,
            text=text,
            treatments=treatments(text, stub.after(slotted.with_padding()), slotted.texts),
            ends=ends,
            roles=["assistant", *(str(message.get("role")) for message in new), "assistant"],
            body_end=0 if not stub.has_calls else ends[0] if close is None else close.start,
            close=close,
            inner={placed.token.id: placed for placed in inner},
            marks=frozenset(placed.token.id for placed in marks),
        )

    def fill(self, values: Sequence[str]) -> str:
        """Return the text with the messages' own texts filled in, except where one could pass for the turn's text."""
        lost = None if self.close is None else SLOT.search(self.text, self.ends[0], self.close.start)
        return self._piece(0 if lost is None else lost.end(), len(self.text), None).text(values)

    def junction(self, last_id: int | None, stop_ids: AbstractSet[int]) -> Junction:
        """Return what follows a turn that ends with this sampled id."""
        if last_id is None:
            return self._junction(self.body_end)
        if self.close is not None and last_id == self.close.token.id:
            return self._junction(self.close.end, kept=1)
        if last_id in self.inner:
            return self._junction(self.inner[last_id].end)
        return self._junction(self.body_end, replaced=int(last_id in stop_ids and last_id not in self.marks))

    def _junction(self, start: int, *, kept: int = 0, replaced: int = 0) -> Junction:
        key = (start, kept, replaced)
        if key not in self._junctions:
            end = start if self.close is None else self.close.end
            sampled = next((each.token for each in self.inner.values() if each.end == start), None)
            close = None if self.close is None else self.close.token
            before, after = self._piece(start, end, sampled), self._piece(end, len(self.text), close)
            self._junctions[key] = Junction(before=before, after=after, kept=kept, replaced=replaced)
        return self._junctions[key]

    def _piece(self, start: int, end: int, after: ControlToken | None) -> Scaffold:
        return Scaffold(
            self.tokenizer,
            self.text[start:end],
            treatments=self.treatments,
            ends=[place - start for place in self.ends],
            roles=self.roles,
            after=after,
        )


def require_texts(slotted: SlottedMessages, text: str) -> None:
    """Raise `TemplateError` if the template leaves out text that the model must read."""
    for index, role in slotted.required.items():
        if slot(index) not in text:
            raise TemplateError(
                f"expected a template that writes the content of {role} messages, got one that leaves it out",
                hint="use a template that supports such messages",
            )


def _find_controls(controls: ControlTokens, text: str, limit: int) -> Iterator[Placed]:
    place = 0
    for piece in controls.split(text):
        size = len(piece.text if isinstance(piece, ControlToken) else piece)
        if place + size > limit:
            return
        if isinstance(piece, ControlToken):
            yield Placed(token=piece, start=place, end=place + size)
        place += size


def _first_text(slotted: SlottedMessages, text: str) -> int:
    """Return the position of the first text of the new messages."""
    places = (match.start() for match in SLOT.finditer(text) if int(match[1]) in slotted.texts)
    return next(places, len(text))


def _close(tokens: Iterable[Placed], ids: AbstractSet[int]) -> Placed | None:
    return next((placed for placed in tokens if placed.token.id in ids), None)


def _known_close(
    tokens: Sequence[Placed], ids: AbstractSet[int], others: AbstractSet[int], *, own_end: int
) -> Placed | None:
    """Return the last stop token in the turn's own text, or else the tokenizer's first stop token.

    An earlier token may only delimit a call, and another one after the turn may open the next message.
    """
    own = [placed for placed in tokens if placed.start < own_end]
    return _close(reversed(own), ids | others) or _close(tokens, ids)


def _likely_close(tokens: Sequence[Placed], text: str, *, own_end: int, has_calls: bool) -> Placed | None:
    """Return the first control token after a turn; with calls, the one right after it, or the turn's own last one.

    The text after that belongs to the next message and is never part of a turn.
    """
    near = [placed for placed in tokens if not text[own_end : placed.start].strip()]
    found = next((placed for placed in near if placed.start >= own_end or not has_calls), None)
    return found or (near[-1] if near and not text[near[-1].end : own_end].strip() else None)


def _content_close(renderer: StubRenderer, controls: ControlTokens) -> frozenset[int]:
    """Return the first control token after a turn without calls; it may also close a turn with calls."""
    user: Message = {"role": "user", "content": "Hello"}
    try:
        text = renderer.stub((), [user], after_tools=False).after([user])
    except TemplateError:
        return frozenset()
    first = next(_find_controls(controls, text, len(text)), None)
    return frozenset() if first is None else frozenset({first.token.id})
