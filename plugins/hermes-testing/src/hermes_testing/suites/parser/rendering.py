"""Parser tests of writing messages."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import pytest

from hermes_core.contracts.parsing import ToolCallParser
from hermes_testing.suites.base import needs
from hermes_testing.suites.parser.base import MODES, PROSE, WEATHER, Call, ParserBase
from hermes_testing.suites.parser.invariants import encode, meaning
from hermes_testing.suites.parser.samples import HOSTILE, PLAIN, RENDERED, UNWRITABLE, whole_schemas_of

_TOKEN: Final = re.compile(r"</?[^<>]*>|[^\w\s]+|\w+")


class Render(ParserBase):
    """A result renders to its text; an OpenAI message becomes text that reads back."""

    @needs("render")
    def test_rendering_a_result_gives_the_text_back(self, parser: ToolCallParser) -> None:
        """Byte for byte, including bad attempts and their order, in both modes."""
        for text in [*self.samples(), *PLAIN.values(), *HOSTILE.values()]:
            for mode in MODES:
                assert parser.render(self.read(parser, text, mode=mode)) == text

    @needs("render")
    def test_rendering_any_prefix_gives_it_back(self, parser: ToolCallParser) -> None:
        """A cut message is written as it was cut."""
        text = self.message("Some text.")
        for end in range(len(text)):
            assert parser.render(self.read(parser, text[:end])) == text[:end]

    @needs("render")
    @pytest.mark.parametrize("as_text", [True, False])
    def test_a_rendered_message_reads_back(self, parser: ToolCallParser, as_text: bool) -> None:  # noqa: FBT001 - parametrised
        """From an OpenAI message, with its arguments as text or as a mapping."""
        calls = self.some_calls()
        result = self.read(parser, parser.render(_message(calls, as_text=as_text)))
        assert meaning(result) == encode(calls)
        assert result.content is None

    @needs("render", "text_before")
    def test_a_rendered_message_reads_back_with_its_text(self, parser: ToolCallParser) -> None:
        """The template's text between does not become part of it."""
        for content in ("Some text.", PROSE):
            text = parser.render(_message(self.some_calls(), content=content))
            result = self.read(parser, text)
            assert (result.content, meaning(result)) == (content, encode(self.some_calls()))

    @needs("render")
    def test_a_rendered_answer_is_its_text(self, parser: ToolCallParser) -> None:
        """A message without calls."""
        content = "That was all."
        text = parser.render({"role": "assistant", "content": content})
        assert (text, self.read(parser, text).content) == (self.answer(content), content)

    @needs("render")
    def test_a_call_without_arguments_is_written(self, parser: ToolCallParser) -> None:
        """However their absence is expressed."""
        spellings: tuple[dict[str, Any] | str, ...] = ({}, "{}")
        for arguments in spellings:
            call = {"id": "call00000", "type": "function", "function": {"name": "f", "arguments": arguments}}
            text = parser.render({"role": "assistant", "content": None, "tool_calls": [call]})
            assert meaning(self.read(parser, text)) == encode([("f", {})])

    @needs("render")
    @pytest.mark.parametrize("arguments", UNWRITABLE)
    def test_what_cannot_be_written_is_refused(self, parser: ToolCallParser, arguments: Any) -> None:
        """Arguments that are not JSON objects, and values that are not valid numbers."""
        name, _ = WEATHER
        call = {"id": "call00000", "type": "function", "function": {"name": name, "arguments": arguments}}
        with pytest.raises(ValueError, match=r"\w"):
            parser.render({"role": "assistant", "content": None, "tool_calls": [call]})

    @needs("render")
    @pytest.mark.parametrize("as_text", [True, False])
    def test_what_is_rendered_reads_back_with_its_tools(self, parser: ToolCallParser, as_text: bool) -> None:  # noqa: FBT001 - parametrised
        """A reader may or may not know the tools: booleans, null, and texts that look like them."""
        for name, arguments in RENDERED.items():
            call: Call = ("f", arguments)
            text = parser.render(_message([call], as_text=as_text))
            assert meaning(parser.parse(text, whole_schemas_of([call]))) == encode([call]), f"{name}: {text!a}"

    @needs("render")
    def test_what_is_rendered_with_marks_in_it_reads_back_with_its_tools_or_is_refused(
        self, parser: ToolCallParser
    ) -> None:
        """In a text and inside an object or list; it never reads back differently."""
        tokens = dict.fromkeys([*_TOKEN.findall(self.message("")), *self.reasoning_tags, self.mark()])
        pieces = [*tokens, *(f"{one}{two}" for one, two in pairwise(tokens)), self.wire([WEATHER])]
        for piece in pieces:
            for text in (piece, f"a {piece} b", f"a\n{piece}\nb"):
                for arguments in ({"value": text}, {"value": [text], "more": 1}, {"value": {"k": text}, "more": "x"}):
                    self._check_read_back(parser, ("f", arguments))

    def _check_read_back(self, parser: ToolCallParser, call: Call) -> None:
        try:
            text = parser.render(_message([call]))
        except ValueError:
            return
        assert meaning(parser.parse(text, whole_schemas_of([call]))) == encode([call]), f"{text!a}"


def _message(calls: Sequence[Call], content: str | None = None, *, as_text: bool = False) -> dict[str, Any]:
    made = [
        {
            "id": f"call{n:05d}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments) if as_text else arguments},
        }
        for n, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": content, "tool_calls": made}
