"""The tags of content `xml-inline`: one per parameter, described by a pattern with the groups key and value."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from hermes_parsers.declarative.bodies.values import ValueReader, value_reader
from hermes_parsers.declarative.errors import TemplateError, fault
from hermes_parsers.declarative.patterns.delimiters import Delimiter, is_space, pattern_nodes, tag_step
from hermes_parsers.declarative.patterns.first_sets import END, heads
from hermes_parsers.declarative.patterns.matchers import WAIT, Step, Subject
from hermes_parsers.declarative.patterns.syntax import Group, Literal, Run, Sequence, names
from hermes_parsers.engine.scanning.scan import Marks, Scan

_KNOWN = ("tag_pattern", "value_parser", "merge_duplicates")


class Tag(NamedTuple):
    """A parameter that was read: its name, the text of its value, and where it ended."""

    key: str
    value: str
    end: int
    is_closed: bool = True


class Around:
    """The text around a call's tags: what ends the call, and the marks by which tags and the end are found.

    Make one per call, since it remembers earlier searches.
    """

    __slots__ = ("_subject", "ends", "marks")

    def __init__(self, marks: Marks, ends: tuple[Delimiter, ...]) -> None:
        self.marks = marks
        self.ends = ends
        self._subject = Subject("", final=False)

    def subject(self, scan: Scan) -> Subject:
        """Return the current text, without captures."""
        held = self._subject
        if held.text is not scan.text or held.final != scan.final:
            self._subject = held = Subject(scan.text, final=scan.final)
        held.captures.clear()
        return held


class Tags(NamedTuple):
    """How the parameters are written.

    If the value may be any text, `head` matches a tag up to its value and `tail` what follows the value; otherwise
    `head` matches the whole tag and `tail` is None. `marks` and `tail_marks` are the literals they begin with. `spaced`
    says whether the pattern treats space before and after the value as framing.
    """

    nodes: Sequence
    head: Step
    marks: tuple[str, ...]
    tail: Step | None
    tail_marks: tuple[str, ...]
    spaced: tuple[bool, bool]
    values: ValueReader
    merges: bool

    def match(self, scan: Scan, at: int, around: Around) -> Generator[str, None, Tag | None]:
        """Read the tag that begins here, or return None.

        A value without a closing ends at the next tag or at the end of the call.
        """
        while True:
            subject = around.subject(scan)
            end = self.head(subject, at)
            if end != WAIT:
                break
            yield ""
        if end < 0:
            return None
        key = subject.capture("key").strip()
        if self.tail is None:
            return Tag(key, subject.capture("value"), end)
        return (yield from self._value(scan, key, end, around))

    def _value(self, scan: Scan, key: str, start: int, around: Around) -> Generator[str, None, Tag | None]:
        at = start
        while (found := (yield from around.marks.seek(scan, at))) is not None:
            place = found.start()
            after = yield from self._matches(scan, self.tail, place)
            if after >= 0:
                return Tag(key, self._strip_framing(scan.text[start:place]), after)
            if (yield from self._ends(scan, place, around.ends)):
                return Tag(key, self._strip_framing(scan.text[start:place]), place, is_closed=False)
            at = place + 1
        return Tag(key, self._strip_framing(scan.text[start:]), len(scan.text), is_closed=False)

    def _ends(self, scan: Scan, at: int, ends: tuple[Delimiter, ...]) -> Generator[str, None, bool]:
        if (yield from self._matches(scan, self.head, at)) >= 0:
            return True
        for end in ends:
            if (yield from end.match(scan, at)) >= 0:
                return True
        return False

    def _matches(self, scan: Scan, step: Step | None, at: int) -> Generator[str, None, int]:
        assert step is not None
        while (end := step(Subject(scan.text, final=scan.final), at)) == WAIT:
            yield ""
        return end

    def _strip_framing(self, text: str) -> str:
        """Remove the framing: one newline at each end, or the white space if there is no newline; indentation stays."""
        before, after = self.spaced
        if before:
            space = text[: len(text) - len(text.lstrip())]
            text = text[space.find("\n") + 1 if "\n" in space else len(space) :]
        if after:
            space = text[len(text.rstrip()) :]
            text = text[: len(text) - len(space) + max(space.rfind("\n"), 0)]
        return text


def read_tags(place: str, arguments: Mapping[str, Any]) -> Tags:
    """Read the arguments of content `xml-inline`.

    Raises:
        TemplateError: The pattern is missing, has no groups key and value, or cannot be matched in linear time.
    """
    for key in arguments:
        if key not in _KNOWN:
            raise fault(place, f"one of {', '.join(_KNOWN)}", key)
    pattern = arguments.get("tag_pattern")
    nodes = pattern_nodes(f"{place}.tag_pattern", pattern)
    if sorted(names(nodes)) != ["key", "value"]:
        raise TemplateError(
            f"{place}.tag_pattern: expected a group 'key' and a group 'value', once each, got {pattern!r:.200}",
            hint="write it like <parameter=(?P<key>\\w+)>(?P<value>.*?)</parameter>",
        )
    values = value_reader(f"{place}.value_parser", arguments.get("value_parser"))
    merges = bool(arguments.get("merge_duplicates"))
    split = _split(nodes)
    if split is None:
        head, tail, spaced = nodes, None, (False, False)
    else:
        head, tail, spaced = split
    return Tags(
        nodes,
        tag_step(f"{place}.tag_pattern", pattern, head, is_whole=tail is None),
        _marks(head),
        None if tail is None else tag_step(f"{place}.tag_pattern", pattern, tail, is_whole=False),
        () if tail is None else _marks(tail),
        spaced,
        values,
        merges,
    )


def _split(nodes: Sequence) -> tuple[Sequence, Sequence, tuple[bool, bool]] | None:
    """Split a pattern around a value that is anything up to a literal; None if the value has another form."""
    at = next((n for n, node in enumerate(nodes) if isinstance(node, Group) and node.name == "value"), -1)
    value = nodes[at]
    anything = at > 0 and isinstance(value, Group) and len(value.body) == 1 and isinstance(value.body[0], Run)
    if not anything or not _is_anything(value.body[0]):  # type: ignore[union-attr] # what `anything` says
        return None
    before, after = nodes[:at], nodes[at + 1 :]
    spaced = (bool(before) and is_space(before[-1]), bool(after) and is_space(after[0]))
    before, after = before[: -1 if spaced[0] else None], after[1 if spaced[1] else 0 :]
    if not after or not isinstance(after[0], Literal) or any(group in names(after) for group in ("key", "value")):
        return None
    return before, after, spaced


def _is_anything(run: Any) -> bool:
    return isinstance(run, Run) and run.lazy and run.high is None and run.chars in {r"[\s\S]", r"[\S\s]"}


def _marks(nodes: Sequence) -> tuple[str, ...]:
    return tuple(head.literal for head in heads(nodes) - {END} if head.literal)
