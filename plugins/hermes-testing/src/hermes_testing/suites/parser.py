"""The suite every tool-call parser passes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_core.contracts.parsing import AttemptStatus, ParseResult, ToolCallParser
from hermes_core.discovery.conformance import complaints
from hermes_testing.suites.base import ComponentSuite, needs
from hermes_testing.suites.parser_texts import HOSTILE, PLAIN, TRICKY_VALUES, json_objects, meaning, violations

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

Call = tuple[str, dict[str, Any]]

_WEATHER: Call = ("get_weather", {"city": "Paris", "days": 3})
_SEARCH: Call = ("web_search", {"query": "cats & dogs", "limit": 5})
# Function-scoped fixtures are safe here: parsers are stateless, which the suite checks. One inherited test runs for
# many subclasses, and a third party's suite must not depend on a database of examples beside it.
_PROPERTY = settings(
    max_examples=25,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


class ParserSuite(ComponentSuite):
    """Behaviour of a tool-call parser.

    Set `plugin` and `component`, and implement `wire`. Capabilities that may be named in `lacks`: `text_before`,
    `text_after`, `many_calls`, `reasoning`, `nested_values`, `json_arguments`, `render`.
    """

    kind = "parser"
    reasoning_tags: ClassVar[tuple[str, str]] = ("<think>", "</think>")

    def wire(self, calls: Sequence[Call], content: str = "") -> str:
        """Write a message as the model does: text, then calls of (name, arguments)."""
        raise NotImplementedError(f"{type(self).__qualname__} must implement wire(calls, content)")

    def malformed(self) -> str:
        """Write a call of `get_weather` whose JSON is broken in the middle."""
        return self.wire([("get_weather", {"city": "MARKER"})]).replace('"MARKER"', '"MARKER')

    @pytest.fixture
    def parser(self, registry: Registry) -> ToolCallParser:
        """The parser, made by the registry."""
        parser: ToolCallParser = self.make(registry)
        return parser

    def test_it_has_the_contract_s_methods(self, parser: ToolCallParser) -> None:
        """With the same parameters."""
        assert complaints(parser, ToolCallParser) == []

    @pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN)
    def test_plain_text_is_unchanged(self, parser: ToolCallParser, text: str) -> None:
        """Text without a call is content, to the last space."""
        result = parser.parse(text)
        assert (result.content, result.calls, result.attempts) == (text, (), ())
        assert violations(text, result) == []

    def test_no_text_is_no_content(self, parser: ToolCallParser) -> None:
        """Neither an empty string nor a segment."""
        assert (parser.parse("").content, parser.parse("").segments) == (None, ())

    def test_one_call_is_found(self, parser: ToolCallParser) -> None:
        """Its name, its arguments, one attempt that went well, no content."""
        text = self.wire([_WEATHER])
        result = parser.parse(text)
        assert meaning(result) == [_WEATHER]
        assert [attempt.status for attempt in result.attempts] == [AttemptStatus.OK]
        assert not (result.content or "").strip()
        assert violations(text, result) == []

    @needs("many_calls")
    def test_many_calls_are_found_in_order(self, parser: ToolCallParser) -> None:
        """Each with an id of its own, also when two are equal."""
        text = self.wire([_WEATHER, _SEARCH, _WEATHER])
        result = parser.parse(text)
        assert meaning(result) == [_WEATHER, _SEARCH, _WEATHER]
        assert violations(text, result) == []

    @needs("text_before")
    def test_text_before_a_call_is_content(self, parser: ToolCallParser) -> None:
        """Whatever the template puts between."""
        result = parser.parse(self.wire([_WEATHER], "I will look it up."))
        assert (result.content or "").strip() == "I will look it up."
        assert meaning(result) == [_WEATHER]

    @needs("text_after")
    def test_text_after_a_call_is_not_lost(self, parser: ToolCallParser) -> None:
        """It is content, as a segment of its own."""
        text = self.wire([_WEATHER]) + "\nThat was all."
        result = parser.parse(text)
        assert "That was all." in (result.content or "")
        assert meaning(result) == [_WEATHER]
        assert violations(text, result) == []

    @needs("nested_values")
    @pytest.mark.parametrize("arguments", TRICKY_VALUES.values(), ids=TRICKY_VALUES)
    def test_tricky_arguments_arrive_unchanged(self, parser: ToolCallParser, arguments: dict[str, Any]) -> None:
        """Braces, quotes, unicode, newlines, nesting, big numbers, foreign tags."""
        assert meaning(parser.parse(self.wire([("f", arguments)]))) == [("f", arguments)]

    @needs("nested_values")
    def test_the_format_s_own_marks_inside_a_string_are_text(self, parser: ToolCallParser) -> None:
        """A call that writes about calls is one call."""
        arguments = {"text": self.wire([_SEARCH]), "more": self.wire([_WEATHER, _SEARCH], "text")}
        assert meaning(parser.parse(self.wire([("write", arguments)]))) == [("write", arguments)]

    @needs("nested_values")
    @_PROPERTY
    @given(arguments=json_objects, content=st.sampled_from(["", "Some text."]))
    def test_any_arguments_arrive_unchanged(
        self, parser: ToolCallParser, arguments: dict[str, Any], content: str
    ) -> None:
        """Every JSON object there is."""
        text = self.wire([("f", arguments)], content)
        result = parser.parse(text)
        assert meaning(result) == [("f", arguments)]
        assert violations(text, result) == []

    def test_a_mark_in_prose_is_no_call(self, parser: ToolCallParser) -> None:
        """Only what has a body is one."""
        text = self.wire([_WEATHER])
        prose = text[: text.index("get_weather")] + " is how a call begins."
        assert parser.parse(prose).calls == ()
        assert violations(prose, parser.parse(prose)) == []

    def test_no_truncation_raises_or_invents(self, parser: ToolCallParser) -> None:
        """Each prefix of a call is no call, or the whole one when only its end mark is missing."""
        text = self.wire([_WEATHER])
        for end in range(len(text)):
            result = parser.parse(text[:end])
            assert violations(text[:end], result) == []
            assert meaning(result) in ([], [_WEATHER])

    @needs("json_arguments")
    def test_a_call_cut_in_its_arguments_is_an_attempt(self, parser: ToolCallParser) -> None:
        """It is not handed on, and not silently text either."""
        text = self.wire([_WEATHER])
        result = parser.parse(text[: text.index("Paris") + 3])
        assert result.calls == ()
        assert [attempt.status for attempt in result.attempts] == [AttemptStatus.TRUNCATED]

    @pytest.mark.parametrize("mode", ["strict", "lenient"])
    def test_no_deletion_of_one_character_raises(self, parser: ToolCallParser, mode: Any) -> None:
        """And whatever is handed on stays well formed."""
        text = self.wire([_WEATHER, _SEARCH] if "many_calls" not in self.lacks else [_WEATHER])
        for at in range(len(text)):
            broken = text[:at] + text[at + 1 :]
            assert violations(broken, parser.parse(broken, mode=mode)) == []

    @pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
    @pytest.mark.parametrize("place", ["alone", "before", "inside", "after"])
    def test_hostile_text_does_not_raise(self, parser: ToolCallParser, text: str, place: str) -> None:
        """Wherever it stands."""
        call = self.wire([_WEATHER])
        middle = call.index("Paris")
        inside = call[:middle] + text + call[middle:]
        whole = {"alone": text, "before": text + call, "inside": inside, "after": call + text}[place]
        for mode in ("strict", "lenient"):
            assert violations(whole, parser.parse(whole, mode=mode)) == []

    @_PROPERTY
    @given(data=st.data())
    def test_any_mixture_of_marks_does_not_raise(self, parser: ToolCallParser, data: st.DataObject) -> None:
        """Pieces of the format in any order."""
        text = self.wire([_WEATHER], "text")
        cuts = st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))
        pieces = data.draw(st.lists(cuts.map(lambda cut: text[min(cut) : max(cut)]) | st.text(max_size=5), max_size=8))
        mixed = "".join(pieces)
        assert violations(mixed, parser.parse(mixed)) == []

    @needs("json_arguments")
    def test_broken_json_is_an_attempt_with_a_reason(self, parser: ToolCallParser) -> None:
        """Not a call, not an exception, not silence."""
        result = parser.parse(self.malformed())
        assert result.calls == ()
        statuses = {attempt.status for attempt in result.attempts}
        assert statuses & {AttemptStatus.INVALID_JSON, AttemptStatus.TRUNCATED}
        assert violations(self.malformed(), result) == []

    @needs("json_arguments", "many_calls")
    def test_a_bad_call_does_not_cost_the_good_one(self, parser: ToolCallParser) -> None:
        """The good one is handed on, the bad one reported."""
        bad_and_good = self.wire([("get_weather", {"city": "MARKER"}), _SEARCH]).replace('"MARKER"', "MARKER")
        result = parser.parse(bad_and_good)
        assert meaning(result) == [_SEARCH]
        assert AttemptStatus.INVALID_JSON in {attempt.status for attempt in result.attempts}

    def test_an_unknown_tool_is_flagged(self, parser: ToolCallParser) -> None:
        """With the name the model wrote, when the tools are known."""
        result = parser.parse(self.wire([_WEATHER]), tools=[_schema("another_tool")])
        found = [(attempt.status, attempt.name) for attempt in result.attempts]
        assert found == [(AttemptStatus.UNKNOWN_TOOL, "get_weather")]

    def test_known_tools_change_nothing(self, parser: ToolCallParser) -> None:
        """Nor does a tool list that is no valid schema."""
        text = self.wire([_WEATHER])
        assert parser.parse(text, tools=[_schema("get_weather")]) == parser.parse(text)
        strange: list[list[dict[str, Any]]] = [[], [{}], [{"type": "function", "function": {"name": 3}}]]
        for tools in strange:
            assert violations(text, parser.parse(text, tools=tools)) == []

    def test_lenient_reads_what_strict_reads(self, parser: ToolCallParser) -> None:
        """The same calls from a well-formed text."""
        text = self.wire([_WEATHER], "text" if "text_before" not in self.lacks else "")
        assert parser.parse(text, mode="lenient") == parser.parse(text)

    @needs("reasoning")
    def test_a_call_drafted_in_reasoning_is_an_attempt(self, parser: ToolCallParser) -> None:
        """It is not run; reasoning has its own field."""
        opening, closing = self.reasoning_tags
        text = f"{opening}I could call\n{self.wire([_WEATHER])}\nhere.{closing}No need."
        result = parser.parse(text)
        assert (result.calls, result.content) == ((), "No need.")
        assert "I could call" in (result.reasoning or "")
        assert [attempt.status for attempt in result.attempts] == [AttemptStatus.IN_REASONING]
        assert violations(text, result) == []

    @needs("reasoning")
    def test_a_call_after_reasoning_is_a_call(self, parser: ToolCallParser) -> None:
        """And the reasoning is not in the content."""
        opening, closing = self.reasoning_tags
        result = parser.parse(f"{opening}hm{closing}\n{self.wire([_WEATHER])}")
        assert (meaning(result), (result.reasoning or "").strip()) == ([_WEATHER], "hm")
        assert "hm" not in (result.content or "")

    def test_parsing_twice_gives_the_same(self, parser: ToolCallParser, registry: Registry) -> None:
        """Ids included, whatever was parsed between and by which object."""
        text = self.wire([_WEATHER], "text" if "text_before" not in self.lacks else "")
        first = parser.parse(text)
        parser.parse(self.malformed())
        assert parser.parse(text) == first
        assert self.make(registry).parse(text) == first

    def test_a_stream_is_a_parse_however_it_is_cut(self, parser: ToolCallParser) -> None:
        """In pieces of any one size."""
        for text in self._samples():
            whole = parser.parse(text)
            for size in (1, 2, 3, 5, 8, 13, len(text) or 1):
                assert _streamed(parser, [text[at : at + size] for at in range(0, len(text), size)]) == whole

    @_PROPERTY
    @given(data=st.data())
    def test_a_stream_is_a_parse_for_any_cuts(self, parser: ToolCallParser, data: st.DataObject) -> None:
        """Empty pieces included; two streams at once do not mix."""
        text = data.draw(st.sampled_from(self._samples()))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
        edges = [0, *cuts, len(text)]
        pieces = [text[start:end] for start, end in pairwise(edges)]
        other = parser.stream()
        other.feed(text[: len(text) // 2])
        assert _streamed(parser, pieces) == parser.parse(text)

    def test_a_stream_s_events_tell_the_whole_text(self, parser: ToolCallParser) -> None:
        """The calls in order, and the same text however it is cut."""
        text = self.wire([_WEATHER], "text" if "text_before" not in self.lacks else "")
        told = [_events(parser, [text]), _events(parser, list(text))]
        assert told[0] == told[1]
        assert told[0][1] == list(parser.parse(text).calls)

    @needs("render")
    def test_rendering_a_result_gives_the_text_back(self, parser: ToolCallParser) -> None:
        """Byte for byte, bad attempts and order included."""
        for text in [*self._samples(), *PLAIN.values()]:
            assert parser.render(parser.parse(text)) == text

    @needs("render")
    @pytest.mark.parametrize("as_text", [True, False])
    def test_a_rendered_message_reads_back(self, parser: ToolCallParser, as_text: bool) -> None:  # noqa: FBT001 - parametrised
        """From an OpenAI message, with its arguments as text or as a mapping."""
        names = [_WEATHER, _SEARCH] if "many_calls" not in self.lacks else [_WEATHER]
        result = parser.parse(parser.render(_message(names, as_text=as_text)))
        assert meaning(result) == names

    @needs("render")
    def test_what_cannot_be_written_is_refused(self, parser: ToolCallParser) -> None:
        """Arguments that are no JSON object cannot be a call."""
        for arguments in ("not json", "[1]"):
            call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
            with pytest.raises(ValueError, match=r"\w"):
                parser.render({"role": "assistant", "content": None, "tool_calls": [call]})

    def test_a_megabyte_of_marks_is_parsed(self, parser: ToolCallParser) -> None:
        """In reasonable time: the test's own timeout is the limit, quadratic work would miss it by far."""
        text = self.wire([_WEATHER])
        opening = text[: text.index("get_weather")] or text[:4]
        for unit in (opening, opening + '{"a":', '{["\\'):
            pathological = unit * (1_000_000 // len(unit))
            parser.parse(pathological)

    def _samples(self) -> list[str]:
        content = "Some text.\n" if "text_before" not in self.lacks else ""
        many = [_WEATHER, _SEARCH] if "many_calls" not in self.lacks else [_WEATHER]
        whole = self.wire(many, content)
        return ["", "plain text", whole, whole[: len(whole) * 2 // 3], self.malformed(), whole + "\nafter"]


def _schema(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def _message(calls: Sequence[Call], *, as_text: bool) -> dict[str, Any]:
    written = [
        {
            "id": f"call{n:05d}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments) if as_text else arguments},
        }
        for n, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": None, "tool_calls": written}


def _streamed(parser: ToolCallParser, pieces: Sequence[str]) -> ParseResult:
    stream = parser.stream()
    for piece in pieces:
        stream.feed(piece)
    stream.finish()
    return stream.result()


def _events(parser: ToolCallParser, pieces: Sequence[str]) -> tuple[str, list[Any]]:
    stream = parser.stream()
    events = [event for piece in pieces for event in stream.feed(piece)]
    events += stream.finish()
    text = "".join(event.text for event in events if event.kind == "text")
    return text, [event.call for event in events if event.call is not None]
