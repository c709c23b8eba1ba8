"""Find the ends of the messages in a rendering."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hermes_tokens.append_rule.placeholders import BODY, SLOT, SlottedMessages, common_start, slot
from hermes_tokens.chat_template.template import TemplateError


def message_ends(text: str, prefix: Callable[[int], str], slotted: SlottedMessages, *, first: int) -> list[int]:
    """Return the end of each message from number `first`; number 0 is the text before the messages.

    A message ends where the text after its last slot differs from the rendering of fewer messages (`prefix`). The text
    between two slots is cached by roles, so a long conversation is not rendered message by message.
    """
    known: dict[tuple[str, str, str], int] = {}
    ends: list[int] = []
    for count, (last, start, key) in enumerate(_between(text, slotted)):
        if count < first:
            continue
        if last is None or key not in known:
            known[key] = _size(text[start:], last, prefix, count)
        end = start + known[key]
        ends.append(max(end, ends[-1] if ends else 0))
    return ends


def _size(rest: str, last: int | None, prefix: Callable[[int], str], count: int) -> int:
    """Return how far a message extends after its last slot, or after the start of the text if it has no slot."""
    try:
        shorter = prefix(count)
    except TemplateError:  # the template refuses some messages at the end
        return 0
    if last is None:
        return common_start(rest, shorter)
    _, found, tail = shorter.partition(slot(last))  # the same slot as in `_between`: a name may occur twice
    return common_start(rest, tail) if found else 0


def _between(text: str, slotted: SlottedMessages) -> Iterator[tuple[int | None, int, tuple[str, str, str]]]:
    """Yield, for each message, its last slot, the slot's end, and the text up to the next message's slot."""
    places: dict[int, tuple[int, int]] = {}
    for match in SLOT.finditer(text):
        places.setdefault(int(match[1]), match.span())
    roles = ["", *(str(message.get("role")) for message in slotted.messages), ""]
    bounds = [*slotted.bounds, slotted.bounds[-1]]
    yield None, 0, ("", "", "")
    for count in range(1, len(slotted.messages) + 1):
        own = [index for index in range(bounds[count - 1], bounds[count]) if index in places]
        rest = [places[index][0] for index in range(bounds[count], bounds[count + 1]) if index in places]
        if not own:
            yield None, 0, ("", "", "")
            continue
        last = max(own, key=lambda index: places[index][1])
        start = places[last][1]
        between = text[start : min(rest)] if rest else text[start:]
        yield last, start, (SLOT.sub(BODY, between), roles[count], roles[count + 1])
