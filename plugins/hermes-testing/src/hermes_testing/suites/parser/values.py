"""Parser tests of arguments: every value arrives as it was meant."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.contracts.parsing import ToolCallParser
from hermes_testing.suites.base import needs
from hermes_testing.suites.parser.base import PROPERTY, SEARCH, Call, ParserBase
from hermes_testing.suites.parser.invariants import encode, is_json_object, meaning, violations
from hermes_testing.suites.parser.samples import NESTED_VALUES, SCALARS, TRICKY_TEXTS, objects, schema, schemas_of


class Values(ParserBase):
    """Tricky values, and types by schema."""

    def test_a_call_without_arguments_has_an_empty_object(self, parser: ToolCallParser) -> None:
        """Neither null nor an empty text."""
        assert [(call.name, call.arguments) for call in self.read(parser, self.wire([("f", {})])).calls] == [
            ("f", "{}")
        ]

    @pytest.mark.parametrize("text", TRICKY_TEXTS.values(), ids=TRICKY_TEXTS)
    def test_a_tricky_text_arrives_unchanged(self, parser: ToolCallParser, text: str) -> None:
        """Braces, quotes, unicode, newlines, foreign tags; as the only argument and before another."""
        for arguments in ({"text": text}, {"text": text, "more": 1}):
            call = ("f", arguments)
            assert meaning(self.read(parser, self.wire([call]), [call])) == encode([call])

    @needs("nested_values")
    @pytest.mark.parametrize("value", NESTED_VALUES.values(), ids=NESTED_VALUES)
    def test_a_nested_value_arrives_unchanged(self, parser: ToolCallParser, value: Any) -> None:
        """Objects in lists in objects."""
        call = ("f", {"value": value, "more": "text"})
        assert meaning(self.read(parser, self.wire([call]), [call])) == encode([call])

    @needs("any_names")
    @pytest.mark.parametrize("name", ["", "grüße 你好", 'a "b" \\', "}{][", "</a>", "a.b-c"])
    def test_any_name_of_an_argument_arrives_unchanged(self, parser: ToolCallParser, name: str) -> None:
        """It may be any text."""
        call = ("f", {name: 1})
        assert meaning(self.read(parser, self.wire([call]), [call])) == encode([call])

    @needs("own_marks")
    def test_the_format_s_own_marks_inside_a_string_are_text(self, parser: ToolCallParser) -> None:
        """A call that writes about calls is one call."""
        call: Call = ("write", {"text": self.wire([SEARCH]), "more": self.message("text"), "end": self.mark()})
        assert meaning(self.read(parser, self.wire([call]), [call])) == encode([call])

    @PROPERTY
    @given(data=st.data(), content=st.sampled_from(["", "Some text."]))
    def test_any_arguments_arrive_unchanged(self, parser: ToolCallParser, data: st.DataObject, content: str) -> None:
        """Every JSON object that the format can write."""
        call = ("f", data.draw(objects(self.lacks)))
        text = self.wire([call], content if "text_before" not in self.lacks else "")
        result = self.read(parser, text, [call])
        assert meaning(result) == encode([call])
        assert violations(text, result) == []

    @pytest.mark.parametrize(("declared", "value"), SCALARS.values(), ids=SCALARS)
    def test_a_value_has_the_type_its_schema_declares(self, parser: ToolCallParser, declared: Any, value: Any) -> None:
        """A text that looks like another type stays text; a number keeps its kind."""
        call = ("f", {"value": value, "more": value})
        tools = [schema("f", {"value": {"type": declared}, "more": {"type": declared}})]
        assert meaning(parser.parse(self.wire([call]), tools)) == encode([call])

    @pytest.mark.parametrize("value", ["03106", "text", None, "None of these"])
    def test_an_optional_text_has_the_type_its_schema_declares(self, parser: ToolCallParser, value: Any) -> None:
        """With the schema as pydantic writes it."""
        call = ("f", {"value": value})
        tools = [schema("f", {"value": {"anyOf": [{"type": "string"}, {"type": "null"}]}})]
        assert meaning(parser.parse(self.wire([call]), tools)) == encode([call])

    @needs("nested_values")
    @pytest.mark.parametrize(
        ("declared", "value"),
        [("array", [1, "two", None, 3.0]), ("object", {"a": {"b": [1.5, "03106"]}}), (["array", "null"], [])],
    )
    def test_a_nested_value_has_the_type_its_schema_declares(
        self, parser: ToolCallParser, declared: Any, value: Any
    ) -> None:
        """And so do its members."""
        call = ("f", {"value": value})
        tools = [schema("f", {"value": {"type": declared}})]
        assert meaning(parser.parse(self.wire([call]), tools)) == encode([call])

    def test_a_value_that_no_schema_declares_is_what_the_text_says(self, parser: ToolCallParser) -> None:
        """Its type if values carry one, else text: a guess would be wrong for zip codes."""
        call: Call = ("f", {"days": 3, "zip": "03106"})
        as_text: Call = ("f", {"days": "3", "zip": "03106"})
        wanted = as_text if "typed_values" in self.lacks else call
        for tools in (None, [schema("f", {"other": {"type": "integer"}})]):
            assert meaning(parser.parse(self.wire([call]), tools)) == encode([wanted])

    @pytest.mark.parametrize("declared", ["integer", "number", "boolean", "object", "array", ["integer", "null"]])
    def test_a_value_that_does_not_fit_its_schema_stays_as_it_is(self, parser: ToolCallParser, declared: Any) -> None:
        """No value is invented; if only the schema knows types, the attempt reports it."""
        for value in ("many", "1,2", "NaN", "[1, 2", "3 days"):
            call = ("f", {"value": value})
            result = parser.parse(self.wire([call]), [schema("f", {"value": {"type": declared}})])
            assert meaning(result) == encode([call])
            assert "typed_values" not in self.lacks or result.attempts[0].reason

    @pytest.mark.parametrize(
        ("declared", "text", "value"),
        [("boolean", "True", True), ("boolean", "False", False), (["integer", "null"], "None", None)],
    )
    def test_python_s_spellings_are_accepted_where_only_the_schema_knows_types(
        self, parser: ToolCallParser, declared: Any, text: str, value: Any
    ) -> None:
        """Templates of Qwen3.5 write True, False and None (vllm#38885)."""
        wanted = value if "typed_values" in self.lacks else text
        result = parser.parse(self.wire([("f", {"value": text})]), [schema("f", {"value": {"type": declared}})])
        assert meaning(result) == encode([("f", {"value": wanted})])

    @pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "1e999999", "0" * 5000])
    def test_a_number_that_cannot_be_read_does_not_raise(self, parser: ToolCallParser, number: str) -> None:
        """Python reads integers of at most 4,300 digits; every returned value can be read."""
        text = self.wire([("get_weather", {"days": 12345})]).replace("12345", number)
        for tools in (None, [schema("get_weather", {"days": {"type": "integer"}})]):
            result = parser.parse(text, tools)
            assert violations(text, result) == []
            assert len(result.attempts) == 1

    @needs("nested_values")
    @pytest.mark.parametrize("pair", ["[]", "{}"])
    def test_nesting_that_cannot_be_read_does_not_raise(self, parser: ToolCallParser, pair: str) -> None:
        """Twenty thousand nested lists are not a valid argument."""
        opening, closing = {"[]": ("[", "]"), "{}": ('{"a":', "}")}[pair]
        text = self.wire([("f", {"value": [12345]})]).replace("12345", opening * 20_000 + "1" + closing * 20_000)
        result = parser.parse(text, [schema("f", {"value": {"type": "array"}})])
        assert violations(text, result) == []
        assert all(is_json_object(call.arguments) for call in result.calls)

    @needs("json_arguments")
    def test_of_two_equal_names_the_last_counts(self, parser: ToolCallParser) -> None:
        """As in every JSON reader; the first is neither another call nor an error."""
        text = self.wire([("f", {"city": "Paris"})]).replace('"city"', '"city": "Rome", "city"')
        assert meaning(self.read(parser, text)) == encode([("f", {"city": "Paris"})])

    @needs("typed_values")
    def test_known_tools_change_nothing(self, parser: ToolCallParser) -> None:
        """If values carry their types; ids included."""
        text = self.message()
        assert parser.parse(text, schemas_of(self.some_calls())) == parser.parse(text)
