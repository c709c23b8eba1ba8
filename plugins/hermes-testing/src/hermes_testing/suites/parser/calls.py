"""Parser tests of what is a call and what is text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_core.contracts.parsing import AttemptStatus, ToolCallParser
from hermes_core.discovery import contract_violations
from hermes_testing.suites.base import needs
from hermes_testing.suites.parser.base import MODES, PROSE, SEARCH, WEATHER, ParserBase
from hermes_testing.suites.parser.invariants import encode, meaning, statuses, value_problems, violations
from hermes_testing.suites.parser.mutation import nameless
from hermes_testing.suites.parser.samples import PLAIN, STRANGE_TOOLS, schema, schemas_of


class Calls(ParserBase):
    """Text, calls, reasoning, and unknown tools."""

    def test_it_has_the_contract_s_methods(self, parser: ToolCallParser) -> None:
        """They have the same parameters."""
        assert contract_violations(parser, ToolCallParser) == []

    @pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN)
    def test_plain_text_is_unchanged(self, parser: ToolCallParser, text: str) -> None:
        """Text without a call is content, to the last space, in both modes and with any tools."""
        for mode in MODES:
            result = parser.parse(text, [schema("get_weather")], mode)
            assert (result.content, result.reasoning, result.calls, result.attempts) == (text, None, (), ())
            assert violations(text, result) == []

    def test_no_text_is_no_content(self, parser: ToolCallParser) -> None:
        """Neither an empty string nor a segment."""
        assert (parser.parse("").content, parser.parse("").segments) == (None, ())

    def test_one_call_is_found(self, parser: ToolCallParser) -> None:
        """Name, arguments, one good attempt, no content: the template's framing is not content."""
        text = self.wire([WEATHER])
        result = self.read(parser, text)
        assert meaning(result) == encode([WEATHER])
        assert statuses(result) == [AttemptStatus.OK]
        assert result.content is None
        assert violations(text, result) == []

    def test_an_attempt_holds_its_arguments_as_text_and_value(self, parser: ToolCallParser) -> None:
        """Both mean the same, and so do those of the call."""
        text = self.wire(self.some_calls())
        for mode in MODES:
            attempts = self.read(parser, text, mode=mode).attempts
            assert encode([(attempt.name or "", attempt.value) for attempt in attempts]) == encode(self.some_calls())
            assert [json.loads(attempt.arguments or "null") for attempt in attempts] == [a.value for a in attempts]

    def test_an_attempt_to_call_an_unknown_tool_holds_its_arguments_too(self, parser: ToolCallParser) -> None:
        """Even without arguments: then the value is an empty object."""
        for arguments in ({"city": "Paris"}, {}):
            call = ("get_weather", arguments)
            result = parser.parse(self.wire([call]), tools=[schema("another_tool")])
            assert encode([(attempt.name or "", attempt.value) for attempt in result.attempts]) == encode([call])
            assert value_problems(result) == []

    @needs("end_mark")
    def test_an_attempt_without_its_end_mark_holds_its_arguments_too(self, parser: ToolCallParser) -> None:
        """If the call was read, its value says the same as its arguments."""
        text = self.wire([WEATHER]).rstrip()
        for end in range(text.index("Paris"), len(text)):
            result = self.read(parser, text[:end])
            values = [attempt.value for attempt in result.attempts if attempt.status is AttemptStatus.UNCLOSED]
            assert values in ([], [WEATHER[1]]), f"{text[:end]!a}"
            assert value_problems(result) == []

    @needs("reasoning")
    def test_an_attempt_in_reasoning_holds_its_arguments_too(self, parser: ToolCallParser) -> None:
        """So that drafts can be compared."""
        text = "{0}I could call\n{2}\nhere.{1}No need.".format(*self.reasoning_tags, self.wire([WEATHER]))
        result = self.read(parser, text)
        assert encode([(attempt.name or "", attempt.value) for attempt in result.attempts]) == encode([WEATHER])
        assert value_problems(result) == []

    @needs("many_calls")
    def test_many_calls_are_found_in_order(self, parser: ToolCallParser) -> None:
        """Each has its own id, even if two are equal; the text between them is not content."""
        calls = [WEATHER, SEARCH, WEATHER, *self.some_calls()]
        text = self.wire(calls)
        result = self.read(parser, text)
        assert meaning(result) == encode(calls)
        assert statuses(result) == [AttemptStatus.OK] * len(calls)
        assert result.content is None
        assert violations(text, result) == []

    @needs("text_before")
    @pytest.mark.parametrize("content", ["I will look it up.", "  First\n\n\tthis.", PROSE])
    def test_text_before_a_call_is_content(self, parser: ToolCallParser, content: str) -> None:
        """Verbatim, without the template's text between; braces, brackets and quotes are not calls."""
        text = self.wire([WEATHER], content)
        result = self.read(parser, text)
        assert result.content == content
        assert meaning(result) == encode([WEATHER])
        assert violations(text, result) == []

    @needs("text_after")
    def test_text_after_a_call_is_not_lost(self, parser: ToolCallParser) -> None:
        """It is content, as a separate segment."""
        text = self.wire([WEATHER]) + "\nThat was all."
        result = self.read(parser, text)
        assert (result.content or "").strip() == "That was all."
        assert meaning(result) == encode([WEATHER])
        assert violations(text, result) == []

    def test_a_mark_in_prose_is_text(self, parser: ToolCallParser) -> None:
        """Only a mark with a body is an attempt."""
        for prose in (f"A call begins with {self.mark()} and a name.", f"{self.mark()} is how a call begins."):
            result = parser.parse(prose)
            assert (result.content, result.attempts) == (prose, ())
            assert violations(prose, result) == []

    @needs("text_before")
    def test_a_mark_in_prose_does_not_cost_the_call_after_it(self, parser: ToolCallParser) -> None:
        """The prose is content, and the call is found."""
        prose = f"A call begins with {self.mark()} and a name."
        result = self.read(parser, self.wire([WEATHER], prose))
        assert (result.content, meaning(result)) == (prose, encode([WEATHER]))

    def test_the_beginning_of_a_call_is_no_call(self, parser: ToolCallParser) -> None:
        """If prose follows in place of the name."""
        text = self.wire([WEATHER])
        prose = text[: text.index("get_weather")] + " is how a call begins."
        result = parser.parse(prose)
        assert result.calls == ()
        assert violations(prose, result) == []

    def test_an_unknown_tool_is_kept_and_flagged(self, parser: ToolCallParser) -> None:
        """With the name as written, if the tools are known; without tools any name is accepted."""
        text = self.wire([WEATHER])
        result = parser.parse(text, tools=[schema("another_tool")])
        assert [(attempt.status, attempt.name) for attempt in result.attempts] == [
            (AttemptStatus.UNKNOWN_TOOL, "get_weather")
        ]
        assert [call.name for call in result.calls] == ["get_weather"]
        assert violations(text, result) == []
        assert statuses(parser.parse(text)) == [AttemptStatus.OK]

    @pytest.mark.parametrize("tools", STRANGE_TOOLS.values(), ids=STRANGE_TOOLS)
    def test_tools_that_are_no_schemas_do_not_raise(self, parser: ToolCallParser, tools: list[Any]) -> None:
        """And no call is lost."""
        for text in self.samples():
            assert violations(text, parser.parse(text, tools)) == []
        assert [call.name for call in parser.parse(self.wire([WEATHER]), tools).calls] == ["get_weather"]

    def test_a_call_without_a_name_is_no_call(self, parser: ToolCallParser) -> None:
        """With no name, white space, or a value that is not text; with and without arguments."""
        name, arguments = WEATHER
        for call in ((name, arguments), (name, {})):
            for text in nameless(self.wire([call]), name):
                for mode in MODES:
                    for tools in (None, schemas_of([call]), [schema(""), schema(" ")]):
                        result = parser.parse(text, tools, mode)
                        assert violations(text, result) == [], f"{text!a} in mode {mode}"
                        # A format with names in its ids may find the tool by the arguments.
                        assert tools or result.calls == (), f"{text!a} in mode {mode}"

    @needs("reasoning")
    def test_a_call_drafted_in_reasoning_is_an_attempt(self, parser: ToolCallParser) -> None:
        """It does not run; reasoning has its own field."""
        opening, closing = self.reasoning_tags
        text = f"{opening}I could call\n{self.wire([WEATHER])}\nhere.{closing}No need."
        result = self.read(parser, text)
        assert (result.calls, result.content) == ((), "No need.")
        assert "I could call" in (result.reasoning or "")
        assert statuses(result) == [AttemptStatus.IN_REASONING]
        assert violations(text, result) == []

    @needs("reasoning")
    def test_a_call_after_reasoning_is_a_call(self, parser: ToolCallParser) -> None:
        """The reasoning is not in the content."""
        opening, closing = self.reasoning_tags
        text = f"{opening}hm{closing}\n{self.wire([WEATHER])}"
        result = self.read(parser, text)
        assert (meaning(result), (result.reasoning or "").strip()) == (encode([WEATHER]), "hm")
        assert "hm" not in (result.content or "")
        assert violations(text, result) == []

    @needs("reasoning", "own_marks")
    def test_reasoning_marks_in_an_argument_are_text(self, parser: ToolCallParser) -> None:
        """A call that writes about reasoning is a call."""
        call = ("write", {"text": "{0}hm{1} and {1}".format(*self.reasoning_tags)})
        result = self.read(parser, self.wire([call]), [call])
        assert (meaning(result), result.reasoning) == (encode([call]), None)
