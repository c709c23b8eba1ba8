"""MiniMax-M3: a special token precedes every tag; parameters are tags with the parameter's name and may nest.

`<shipping><city>Oslo</city></shipping>` is an object, `<tags><item>a</item><item>b</item></tags>` an array. Since only
the token makes a tag, values may contain any text, including markup.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from hermes_parsers.coercion import coerce_text
from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.markup.call import Call, Parameter
from hermes_parsers.markup.dialect import ATTRIBUTES, QUOTED, Dialect
from hermes_parsers.markup.parser import MarkupParser
from hermes_parsers.markup.reader import Schemas
from hermes_parsers.markup.source import IncompleteError, Source, Tag, text_without
from hermes_parsers.schemas import allowed_types, subschema
from hermes_parsers.writing import dumps

_TOKEN: Final = "]<]minimax[>["  # noqa: S105 - no secret, a mark of the format
_TAG: Final = re.compile(re.escape(_TOKEN) + r"<(/?)([^<>\n]+)>")
_OPENING: Final = f"{_TOKEN}<"
_TEXT: Final = text_without(_TOKEN)
_SPACE: Final = r"[ \t\n\r]*"


def _usual(name: str, value: str) -> str:
    """Return a pattern for an element with its own closing tag, from what its value looks like."""
    opening, begins = re.escape(_OPENING), r"(?!invoke name=|tool_call>|\s*>)"
    return rf"{opening}{begins}(?P<{name}>[^<>\n/]+)>{value}{re.escape(_TOKEN)}</(?P={name})>"


# Its members or items, if any, are plain text.
_ELEMENT: Final = _usual("outer", f"((?:{_SPACE}{_usual('inner', _TEXT)})+{_SPACE}|{_TEXT})")
_MEMBERS: Final = re.compile(rf"{_SPACE}{_usual('inner', f'({_TEXT})')}{_SPACE}|[\s\S]+").findall
_ITEM: Final = "item"
_OUTER: Final = frozenset({"invoke", "tool_call"})
_STRUCTURES: Final = frozenset({"object", "array"})
_MAX_DEPTH: Final = 32
_MAX_NOTES: Final = 3


class MinimaxM3Parser(MarkupParser):
    """`<tool_call>` around any number of `<invoke name="…">`."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("[e~[",)
    dialects: ClassVar[tuple[Dialect, ...]] = (
        Dialect(
            Tag(f'{_TOKEN}<invoke name="', QUOTED, '"', ATTRIBUTES, ">"),
            f"{_TOKEN}</invoke>",
            Tag(f"{_TOKEN}<", re.compile(r"([^<>\n/]+)"), ">"),
            f"{_TOKEN}</",
            blocks=((f"{_TOKEN}<tool_call>", f"{_TOKEN}</tool_call>"),),
            element=_ELEMENT,
        ),
    )
    openers: ClassVar[tuple[str, ...]] = dialects[0].openers
    reasoning_tags: ClassVar = ("<mm:think>", "</mm:think>")
    reasoning_framing: ClassVar = ("", "")
    reasoning_end: ClassVar[str] = ""

    def read_body(self, source: Source, call: Call, at: int) -> None:
        """Read elements up to the end of the call."""
        if call.reading is None:
            call.reading, call.at = _Elements(call, at), at
        reading: _Elements = call.reading
        reading.text = source.text
        for tag in _TAG.finditer(source.text, call.at):
            call.at = tag.end()
            if reading.take(tag):
                return
        if not source.final:
            raise IncompleteError(">")
        reading.end(len(source.text), is_cut=True)

    def arguments_of(self, parameters: Sequence[Parameter], schemas: Schemas) -> tuple[dict[str, Any], list[str]]:
        """Return the arguments: an element's text by its schema, or its nested elements."""
        arguments: dict[str, Any] = {}
        notes: list[str] = []
        for name, _, text, _ in parameters:
            schema = None if schemas is None else schemas.get(name)
            if schema is None and _TOKEN not in text:
                arguments[name] = text
                continue
            inner: list[str] = []
            arguments[name] = _value(text, schema, schema, inner, 0)
            notes += [f"{name}: {note}" for note in inner[:_MAX_NOTES]]
        return arguments, notes

    def write_calls(self, calls: Sequence[WrittenCall]) -> str:
        """Write the calls in one block."""
        (opening, closing), *_ = self.dialects[0].blocks
        written = [self.write_call(call, index) for index, call in enumerate(calls)]
        return f"{opening}\n{''.join(written)}{closing}"

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write one call of a block."""
        values = [_element(name, self.write_value(value)) for name, value in call.value.items()]
        return f'{_TOKEN}<invoke name="{call.name}">{"".join(values)}{_TOKEN}</invoke>\n'

    def write_value(self, value: Any) -> str:
        """Write members and items as elements, a string unchanged, anything else as JSON."""
        if isinstance(value, dict) and value:
            return "".join([_element(name, self.write_value(member)) for name, member in value.items()])
        if isinstance(value, list) and value:
            return "".join([_element(_ITEM, self.write_value(item)) for item in value])
        return value if isinstance(value, str) else dumps(value)

    def read_back(self, value: Any) -> Any:
        """Return the value as it will be read back without a schema."""
        if isinstance(value, dict) and value:
            return {name: self.read_back(member) for name, member in value.items()}
        if isinstance(value, list) and value:
            return [self.read_back(item) for item in value]
        return self.write_value(value)


def _element(name: str, text: str) -> str:
    return f"{_TOKEN}<{name}>{text}{_TOKEN}</{name}>"


class _Nesting:
    """The names of the open elements; a closing tag also ends those inside without a closing tag."""

    __slots__ = ("_count", "names")

    def __init__(self) -> None:
        self.names: list[str] = []
        # Kept in addition to the list, so that a closing tag without an opening one needs no search.
        self._count: dict[str, int] = {}

    def open(self, name: str) -> None:
        """Open an element."""
        self.names.append(name)
        self._count[name] = self._count.get(name, 0) + 1

    def has(self, name: str) -> bool:
        """Whether such an element is open."""
        return bool(self._count.get(name))

    def close(self, name: str) -> bool:
        """Close the innermost such element; return whether no element is open."""
        while True:
            last = self.names.pop()
            self._count[last] -= 1
            if last == name:
                return not self.names


class _Elements:
    """The elements of a call, built from its tags as they arrive."""

    __slots__ = ("_behind", "_call", "_last", "_nesting", "_start", "text")

    def __init__(self, call: Call, at: int) -> None:
        self.text = ""
        self._nesting = _Nesting()
        self._start = self._behind = at
        self._last = ""
        self._call = call

    def take(self, tag: re.Match[str]) -> bool:
        """Consume the next tag; return whether the call has ended."""
        name, nesting = tag[2], self._nesting
        if not tag[1]:
            return self._opening(name, tag)
        if name in _OUTER and not nesting.has(name):
            is_closed = name == "invoke"
            self.end(tag.start(), tag.end() if is_closed else tag.start(), is_closed=is_closed)
            return True
        if nesting.has(name):
            if nesting.close(name):
                self._commit(name, tag.start(), is_closed=True)
            self._last = name
        elif name == self._last and not self.text[self._behind : tag.start()].strip():
            self._call.repair_end(name)
        else:
            self._call.junk = self._call.junk or tag[0]
        self._behind = tag.end()
        return False

    def _opening(self, name: str, tag: re.Match[str]) -> bool:
        if name.startswith("invoke name=") or name == "tool_call":
            self.end(tag.start(), is_cut=bool(self._nesting.names))
            return True
        self._last = ""
        if not self._nesting.names:
            self._start = tag.end()
        self._nesting.open(name)
        return False

    def end(self, at: int, behind: int = -1, *, is_closed: bool = False, is_cut: bool = False) -> None:
        """End the call, and the element that is open because its closing tag is missing."""
        if self._nesting.names:
            self._end_open(self._nesting.names[0], at)
        self._call.finish(max(at, behind), is_closed=is_closed, is_cut=is_cut)

    def _end_open(self, name: str, stop: int) -> None:
        """Commit an element without a closing tag: it ends at the text before the next opening tag."""
        nesting, last = _Nesting(), self._start
        nesting.open(name)
        tags = list(_TAG.finditer(self.text, self._start, stop))
        closed_at = {tag[2]: tag.start() for tag in tags if tag[1]}
        for tag in tags:
            is_outer = len(nesting.names) == 1
            if tag[1]:
                if nesting.has(tag[2]) and nesting.close(tag[2]):
                    self._commit(tag[2], tag.start(), is_closed=True)
            else:
                has_text = is_outer and last == self._start and self.text[last : tag.start()].strip()
                if has_text and closed_at.get(nesting.names[0], -1) < tag.start():
                    self._commit(nesting.names[0], tag.start(), is_closed=False)
                    nesting.close(nesting.names[0])
                if not nesting.names:
                    self._start = tag.end()
                nesting.open(tag[2])
            last = tag.end()
        if nesting.names:
            self._commit(nesting.names[0], stop, is_closed=False)

    def _commit(self, name: str, at: int, *, is_closed: bool) -> None:
        self._call.parameters.append((name, "", self.text[self._start : at], is_closed))


def _value(text: str, schema: Any, root: Any, notes: list[str], depth: int) -> Any:
    """Return the value of an element: its nested elements, or its text if the schema asks for text or text is there."""
    if _OPENING not in text or depth > _MAX_DEPTH:
        return _text(text, schema, root, notes)
    allowed = allowed_types(schema, root)
    children, around = _children(text)
    is_text = "string" in allowed and not allowed & _STRUCTURES
    if is_text or not children or (around and not (allowed and allowed <= _STRUCTURES)):
        return _text(text, schema, root, notes)
    if around:
        notes.append(f"left out text around the nested elements: {around!r:.80}")
    names = {name for name, _ in children}
    if allowed != {"object"} and (names == {_ITEM} or (allowed == {"array"} and len(names) == 1)):
        return _items([inner for _, inner in children], schema, root, notes, depth)
    members: dict[str, list[str]] = {}
    for name, inner in children:
        members.setdefault(name, []).append(inner)
    return {name: _member(inner, subschema(schema, root, name), root, notes, depth) for name, inner in members.items()}


def _text(text: str, schema: Any, root: Any, notes: list[str]) -> Any:
    if _TOKEN in text:
        # With the token a tag is not text; if the schema asks for text, keep the tags as text without the token.
        text = text.replace(_TOKEN, "")
        notes.append("got tags where the schema asks for text; kept them as text, without the format's token")
    allowed = allowed_types(schema, root)
    if "string" not in allowed and not text.strip():
        # The template writes each item or member, so an empty value is the empty text.
        if "array" in allowed:
            return []
        if "object" in allowed:
            return {}
    value, note = coerce_text(text, _with_definitions(schema, root))
    if note:
        notes.append(note)
    return value


def _items(texts: Sequence[str], schema: Any, root: Any, notes: list[str], depth: int) -> list[Any]:
    return [_value(text, subschema(schema, root, index), root, notes, depth + 1) for index, text in enumerate(texts)]


def _member(texts: Sequence[str], schema: Any, root: Any, notes: list[str], depth: int) -> Any:
    """Return a member's value; a repeated name gets a list of all its values."""
    if len(texts) == 1:
        return _value(texts[0], schema, root, notes, depth + 1)
    if allowed_types(schema, root) == {"array"}:
        return _items(texts, schema, root, notes, depth)
    return [_value(text, schema, root, notes, depth + 1) for text in texts]


def _with_definitions(schema: Any, root: Any) -> Any:
    """Add to a nested schema the definitions that its references point into."""
    if schema is root or not isinstance(schema, dict) or not isinstance(root, dict):
        return schema
    return {**schema, **{key: root[key] for key in ("$defs", "definitions") if key in root}}


def _children(text: str) -> tuple[list[tuple[str, str]], str]:
    """Return the outermost elements of a text, as name and inner text, and the text around them."""
    members = _MEMBERS(text)
    if "" not in {name for name, _ in members}:
        return members, ""
    found: list[tuple[str, str]] = []
    around = []
    nesting = _Nesting()
    start = behind = 0
    for tag in _TAG.finditer(text):
        name = tag[2]
        if not tag[1]:
            if not nesting.names:
                around.append(text[behind : tag.start()].strip())
                start = tag.end()
            nesting.open(name)
        elif nesting.has(name) and nesting.close(name):
            found.append((name, text[start : tag.start()]))
            behind = tag.end()
        elif not nesting.names and found and name == found[-1][0] and not text[behind : tag.start()].strip():
            # If written twice, the first one ends the element.
            behind = tag.end()
    if nesting.names:
        found.append((nesting.names[0], text[start:]))
    else:
        around.append(text[behind:].strip())
    return found, " ".join(filter(None, around))
