"""Validate a response template and convert it to what the scanner needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hermes_core.nearest import did_you_mean
from hermes_parsers.declarative.bodies.body import Body, call_body
from hermes_parsers.declarative.errors import TemplateError, fault
from hermes_parsers.declarative.patterns.delimiters import Delimiter, cores, delimiter, nodes_of, without_space
from hermes_parsers.declarative.patterns.syntax import Ahead, Choice, Edge, Literal, Node, Sequence, bodies, names

VERSION: Final = 1
REASONING: Final = ("thinking", "reasoning_content", "reasoning")
CONTENT: Final = "content"
CALLS: Final = "tool_calls"
_TEMPLATE_KEYS: Final = ("version", "defaults", "fields", "start_anchor", "start_anchor_pattern")
_FIELD_KEYS: Final = (
    "open",
    "open_pattern",
    "close",
    "close_pattern",
    "content",
    "content_args",
    "repeats",
    "join",
    "optional",
    "transform",
    "transform_each",
)
_CONTENTS: Final = ("text", "int", "float", "bool", "json", "xml-inline", "kv-lines")


class TextField(NamedTuple):
    """Reasoning or content.

    `openings` is empty if the field takes all text that no other field claims; `header` matches the whole opening if
    that is more than a literal. `is_opened_by_prompt` says that the text may begin inside the field.
    """

    openings: tuple[str, ...]
    closings: tuple[str, ...]
    header: Delimiter | None = None
    is_opened_by_prompt: bool = False
    strips: bool = True


class CallField(NamedTuple):
    """The field of the calls."""

    opening: Delimiter
    closing: Delimiter | None
    body: Body


class ResponseTemplate(NamedTuple):
    """The scanner's view of a template. `anchors` are the literals that begin a message of the model in a prompt."""

    reasoning: TextField | None
    content: TextField | None
    calls: CallField | None
    anchors: tuple[str, ...]

    @property
    def takes_rest(self) -> bool:
        """Whether text outside the marked fields is content; otherwise content stands between marks."""
        return self.content is None or not self.content.openings


def read_template(spec: Any, name: str) -> ResponseTemplate:
    """Validate and convert a template; errors refer to it by `name`.

    Raises:
        TemplateError: It is malformed or uses an unsupported feature; the message says where and what to write there.
    """
    if not isinstance(spec, Mapping):
        raise fault(name, "an object with 'fields' and 'start_anchor'", spec)
    if "fields" not in spec and ("properties" in spec or any(str(key).startswith("x-") for key in spec)):
        raise _older(name)
    _refuse_unknown(name, spec, _TEMPLATE_KEYS)
    if spec.get("version", VERSION) != VERSION:
        raise fault(f"{name}.version", f"{VERSION}, the only one there is", spec["version"])
    if not isinstance(spec.get("defaults", {}), Mapping):
        raise fault(f"{name}.defaults", "an object", spec["defaults"])
    fields = spec.get("fields")
    if not isinstance(fields, Mapping) or not fields:
        raise fault(f"{name}.fields", "an object with at least one field", fields)
    _check_fields(f"{name}.fields", fields)
    anchors = _anchors(name, spec)
    places = {key: f"{name}.fields.{key}" for key in fields}
    reasoning = next((key for key in REASONING if key in fields), None)
    return ResponseTemplate(
        reasoning=None if reasoning is None else _reasoning(places[reasoning], fields[reasoning]),
        content=_content(places[CONTENT], fields[CONTENT]) if CONTENT in fields else None,
        calls=_calls(places[CALLS], fields[CALLS]) if CALLS in fields else None,
        anchors=anchors,
    )


def _older(name: str) -> TemplateError:
    return TemplateError(
        f"{name} is a response_schema, the older JSON schema with x-regex, which transformers 5.13 replaced; it is "
        f"not supported, because its patterns need backtracking",
        hint='use the "response_template" of a newer revision of the model, or a parser by name: '
        "hermes-core parsers list",
    )


def _refuse_unknown(place: str, given: Mapping[Any, Any], known: tuple[str, ...]) -> None:
    for key in given:
        if key not in known:
            hint = did_you_mean(str(key), known, also=f"known keys: {', '.join(known)}")
            raise TemplateError(f"{place} has no key {key!r}", hint=hint)


def _check_fields(place: str, fields: Mapping[str, Any]) -> None:
    known = (*REASONING, CONTENT, CALLS)
    for key, field in fields.items():
        if key not in known:
            raise TemplateError(
                f"{place}.{key}: expected one of {', '.join(known)} as the name of a field",
                hint=f"rename {key!r}, or remove it: its text is then content",
            )
        _check_field(f"{place}.{key}", field)
    if len([key for key in REASONING if key in fields]) > 1:
        raise TemplateError(f"{place} has reasoning under several names", hint=f"keep one of {', '.join(REASONING)}")
    rest = [key for key, field in fields.items() if "open" not in field and "open_pattern" not in field]
    if len(rest) > 1 or (rest and rest[0] != CONTENT):
        raise TemplateError(
            f"{place}: only {CONTENT!r} can lack 'open' and 'open_pattern' and so take the rest of the text, "
            f"got {', '.join(map(repr, rest))}",
            hint="add 'open' or 'open_pattern' to the other fields",
        )


def _check_field(place: str, field: Any) -> None:
    if not isinstance(field, Mapping):
        raise fault(place, "an object", field)
    _refuse_unknown(place, field, _FIELD_KEYS)
    kinds: Mapping[str, tuple[type, str]] = {
        "content_args": (Mapping, "an object"),
        "repeats": (bool, "true or false"),
        "optional": (bool, "true or false"),
        "transform_each": (bool, "true or false"),
        "join": (str, "a text"),
    }
    for key, (kind, what) in kinds.items():
        if field.get(key) is not None and not isinstance(field[key], kind):
            raise fault(f"{place}.{key}", what, field[key])
    if field.get("content", "text") not in _CONTENTS:
        raise fault(f"{place}.content", f"one of {', '.join(_CONTENTS)}", field["content"])
    if field.get("join") is not None and not field.get("repeats"):
        raise TemplateError(f"{place}: 'join' needs 'repeats'", hint=f'add "repeats": true to {place}')
    if field.get("transform_each") and field.get("transform") is None:
        raise TemplateError(f"{place}: 'transform_each' needs 'transform'", hint=f"add a transform to {place}")


def _anchors(name: str, spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the literals of the start anchor; those inside a pattern are useless without the prompt."""
    nodes = nodes_of(name, spec, "start_anchor")
    if nodes is None:
        return ()
    if "start_anchor_pattern" in spec:
        return (nodes[0].text,) if len(nodes) == 1 and isinstance(nodes[0], Literal) else ()
    return cores(name, nodes)


def _is_text(place: str, field: Mapping[str, Any]) -> None:
    if field.get("content", "text") != "text" or field.get("transform") is not None:
        raise TemplateError(
            f"{place}: expected text for reasoning and content, got content {field.get('content')!r} with transform "
            f"{field.get('transform')!r:.80}",
            hint=f'write "content": "text" in {place}, without transform',
        )


def _reasoning(place: str, field: Mapping[str, Any]) -> TextField:
    _is_text(place, field)
    nodes = nodes_of(place, field, "open") or ()
    closings = cores(place, nodes_of(place, field, "close") or ())
    openings = cores(place, nodes)
    if not closings:
        raise TemplateError(f"{place} never ends", hint=f"""add "close" with a literal to {place}, like "</think>\"""")
    may_be_open = _has_zero_width(nodes)
    if not openings:
        # The prompt has written the opening. If the model writes one itself, it matches the closing mark.
        openings = tuple([closing.replace("</", "<", 1) for closing in closings if closing.startswith("</")])
    if not openings:
        raise TemplateError(f"{place} has no literal to open with", hint=f'add "open" with a literal to {place}')
    return TextField(openings, closings, _header(place, field, nodes), may_be_open)


def _content(place: str, field: Mapping[str, Any]) -> TextField:
    _is_text(place, field)
    nodes = nodes_of(place, field, "open")
    closings = cores(place, nodes_of(place, field, "close") or ())
    if nodes is None:
        return TextField((), closings)
    strips = bool((field.get("content_args") or {}).get("strip", True))
    return TextField(cores(place, nodes), closings, _header(place, field, nodes), strips=strips)


def _header(place: str, field: Mapping[str, Any], nodes: Sequence) -> Delimiter | None:
    """Return the whole opening if it consists of more than literals."""
    if "open_pattern" not in field or _has_zero_width(nodes) or all(map(_is_literal, without_space(nodes))):
        return None
    if any(True for _ in names(nodes)):
        raise TemplateError(f"{place} captures names, which only a transform could use", hint="remove the captures")
    return delimiter(place, field, "open")


def _is_literal(node: Node) -> bool:
    if isinstance(node, Choice):
        return all(len(branch) == 1 and isinstance(branch[0], Literal) for branch in node.branches)
    return isinstance(node, Literal)


def _has_zero_width(nodes: Sequence) -> bool:
    return any(isinstance(node, Edge | Ahead) or any(map(_has_zero_width, bodies(node))) for node in nodes)


def _calls(place: str, field: Mapping[str, Any]) -> CallField:
    opening = delimiter(place, field, "open")
    closing = delimiter(place, field, "close")
    assert opening is not None  # a field without it is content, which is checked
    return CallField(opening, closing, call_body(place, field, opening, closing))
