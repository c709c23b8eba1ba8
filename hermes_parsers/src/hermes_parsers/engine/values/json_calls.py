"""Convert a JSON object that should be a call to a draft: name, arguments with source text, and faults."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers.engine.scanning.scan import INVALID_JSON, OK, Draft
from hermes_parsers.engine.values.json_text import JsonError, Members, is_shallow, members_at, value_at, window
from hermes_parsers.writing import dumps

Match = Callable[[str, int], re.Match[str] | None]
_UNSPANNED: Final = -1
_SPACE: Final = r"[ \t\n\r]*+"


class CallKeys(NamedTuple):
    """The keys of a format for name, arguments and id; if several are present, the first wins."""

    name: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments", "parameters")
    id: tuple[str, ...] = ("id",)


OPENAI_KEYS: Final = CallKeys()


def plain_head(keys: CallKeys) -> str:
    """Match the part of a well-formed call before its arguments, with the name; no two parts match the same text."""
    name, arguments = f'"{keys.name[0]}"', f'"{keys.arguments[0]}"'
    return _SPACE.join([r"\{", name, ":", r'"([\w.\-]++)"', ",", arguments, ":", r"(?=\{)"])


def plain_call(text: str, start: int, at: int, before: Match, behind: Match) -> Draft | None:
    """Read a call written like the template's, as most are; None leaves any other to the slow path.

    Args:
        text: Only a part of it is examined, so `behind` must not treat the end of that part as the end of the text.
        start: Where the call begins.
        at: Where its object begins.
        before: Matches up to the arguments, with the name in its first group.
        behind: Matches what follows the arguments; its first group, if it has one, is the id.
    """
    if not (head := before(text, at)):
        return None
    piece, offset = window(text, head.end())
    body = head.end() - offset
    try:
        value, end = value_at(piece, body)
    except JsonError:
        return None
    if not (tail := behind(piece, end)) or not is_shallow(piece, body, end):
        return None
    written_id = tail[1] if tail.lastindex else None
    return Draft(start, offset + tail.end(), OK, head[1], piece[body:end], value, "", written_id)


def draft_of(text: str, start: int, end: int, found: Members, keys: CallKeys = OPENAI_KEYS) -> Draft:
    """Build the draft of an object whose members have spans."""
    draft = Draft(start, end)
    function = found.get("function")
    if function is not None and isinstance(function[0], dict) and not any(key in found for key in keys.name):
        # The shape of the OpenAI API, which models often write: the call is one level deeper.
        inner = members_at(text, function[1])[0] if function[1] >= 0 else without_spans(function[0])
        found = {**found, **inner}
    name = next((found[key][0] for key in keys.name if key in found), None)
    written = next((found[key][0] for key in keys.id if key in found), None)
    draft.id = written if isinstance(written, str) and written else None
    arguments = next((found[key] for key in keys.arguments if key in found), (None, _UNSPANNED, _UNSPANNED))
    set_arguments(draft, text, *arguments)
    if not isinstance(name, str) or not name:
        draft.status, draft.reason = AttemptStatus.MISSING_NAME, _missing(keys, name, found)
    else:
        draft.name = name
    return draft


def set_arguments(draft: Draft, text: str, value: Any, start: int, end: int) -> None:
    """Use a value as the arguments of a draft, with its source text if it has a span."""
    if value is None:
        draft.arguments, draft.value = "{}", {}
    elif isinstance(value, dict):
        draft.arguments = text[start:end] if start >= 0 else dumps(value)
        draft.value = value
    elif isinstance(value, str):
        _unwrap(draft, value)
    else:
        draft.value = value
        draft.fail(INVALID_JSON, f"expected an object as arguments, got {type(value).__name__}")


def _unwrap(draft: Draft, value: str) -> None:
    """Read arguments that are a JSON text inside a JSON string, as the OpenAI API carries them."""
    inner = value.strip()
    try:
        read, end = value_at(inner, 0) if inner else ({}, 0)
    except JsonError:
        read, end = None, -1
    if not isinstance(read, dict) or end != len(inner) or not is_shallow(inner, 0, end):
        draft.value = value
        draft.fail(INVALID_JSON, f"expected an object as arguments, got a string that is not one: {value!r:.80}")
        return
    draft.arguments, draft.value = inner or "{}", read
    draft.reason = "the arguments were JSON in a string"


def _missing(keys: CallKeys, name: Any, found: Members) -> str:
    wanted = " or ".join(repr(key) for key in keys.name)
    if name is None:
        return f"expected the key {wanted}, got {', '.join(map(repr, list(found)[:8])) or 'an empty object'}"
    return f"expected a string as {wanted}, got {name!r:.80}"


def without_spans(value: dict[str, Any]) -> Members:
    """Return an object's members without spans."""
    return {key: (item, _UNSPANNED, _UNSPANNED) for key, item in value.items()}


def repaired_object(text: str, start: int, end: int) -> tuple[dict[str, Any], str] | None:
    """Read the object that fills a span leniently; return it and the repairs, or None."""
    from hermes_parsers.engine.values.literals import read_repaired
    from hermes_parsers.engine.values.quoted_strings import LiteralError

    try:
        value, at, repairs = read_repaired(text, start, end)
    except (LiteralError, RecursionError):  # the possible depth depends on the caller's stack
        return None
    rest = text[at:end].strip()
    if rest.strip("}]"):
        return None
    notes = [*repairs, "extra closing brackets"] if rest else [*repairs]
    if not isinstance(value, dict) or not notes:
        return None
    return value, "repaired: " + ", ".join(notes)


def repaired_end(text: str, start: int, end: int) -> int:
    """Return where an object ends that was read leniently, or -1."""
    from hermes_parsers.engine.values.literals import read_repaired
    from hermes_parsers.engine.values.quoted_strings import LiteralError

    try:
        return read_repaired(text, start, end)[1]
    except (LiteralError, RecursionError):  # as above
        return -1
