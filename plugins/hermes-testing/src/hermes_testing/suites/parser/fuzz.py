"""Parser tests with a thousand broken messages."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from hermes_core.contracts.errors import HermesError
from hermes_core.contracts.parsing import ParseMode, ToolCallParser
from hermes_testing.suites.parser.base import MODES, ParserBase
from hermes_testing.suites.parser.invariants import value_problems, violations
from hermes_testing.suites.parser.mutation import spoilt
from hermes_testing.suites.parser.samples import STRANGE_TOOLS, schemas_of
from hermes_testing.suites.parser.streams import stream_result

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

OPTIONS: Final = ("reasoning_opened", "promote_drafts")
_COMMON = ['"', "'", "\\", "\\u12", "{", "}", "[", "]", ", ", ": ", "\n", " ", "<", ">", "|", "NaN", "1e9", "True", "é"]
_ODD = ["\ud800", "\0", "\u2028", "🎉", "```", "</", '{"a":', '"}', "}}", "]]", "((("]
PIECES = [*_COMMON, *_ODD]
"""Texts inserted into messages of every format."""


class Fuzz(ParserBase):
    """The same messages in every run: the generator's seed is fixed."""

    def test_a_thousand_spoilt_messages_keep_every_promise(self, parser: ToolCallParser, registry: Registry) -> None:
        """No exception, only JSON objects as arguments, nothing lost, and the same result in random pieces.

        A third of them is read with those options of hermes-parsers' families that the parser also has.
        """
        others = [made for option in OPTIONS if (made := self.make_with(registry, option)) is not None]
        chance = random.Random(20261120)  # noqa: S311 - a reproducible fuzz, no secret
        messages = [*self.samples(), self.message(), self.wire([("f", {"text": self.mark(), "n": -1.5e3})])]
        pieces = [*PIECES, self.mark(), *self.reasoning_tags, *_parts(self.message())]
        declared = schemas_of(self.some_calls())
        choices = [None, declared, declared, *STRANGE_TOOLS.values()]
        for _ in range(self.fuzz_messages):
            text = spoilt(chance, messages, pieces)
            target = chance.choice([parser, parser, chance.choice(others or [parser])])
            try:
                problems = problems_of(target, text, chance.choice(choices), chance.choice(MODES), chance)
                if "render" not in self.lacks and target.render(target.parse(text)) != text:
                    problems.append("rendering gives a different text")
            except Exception as error:
                error.add_note(f"It was raised for {text!a}.")
                raise
            assert not problems, f"{problems} for {text!a}"

    def make_with(self, registry: Registry, option: str) -> ToolCallParser | None:
        """Create the parser with an option set; None if it does not have the option, or refuses it for this format."""
        model = getattr(registry.load(self.kind, self.component), "Options", None)
        if option not in getattr(model, "model_fields", {}):
            return None
        with suppress(HermesError):
            made: ToolCallParser = registry.create(self.kind, self.component, {**self.options, option: True})
            return made
        return None


def problems_of(
    parser: ToolCallParser,
    text: str,
    tools: Sequence[Mapping[str, Any]] | None,
    mode: ParseMode,
    chance: random.Random,
    *,
    is_streamed: bool = True,
) -> list[str]:
    """Return the invariants that a parser violates for a text; in random pieces the result must be the same."""
    result = parser.parse(text, tools, mode)
    problems = [*violations(text, result), *value_problems(result)]
    if is_streamed and stream_result(parser, _cut(chance, text), tools, mode) != result:
        problems.append("a stream gives a different result")
    return problems


def _parts(text: str) -> list[str]:
    """Return the pieces between a format's words: mostly its marks."""
    parts, part = [], ""
    for character in text:
        if character.isspace() and part:
            parts.append(part)
            part = ""
        part += character
    return [*parts, part]


def _cut(chance: random.Random, text: str) -> list[str]:
    pieces, at = [], 0
    longest = chance.choice([3, 10, 50, 400])
    while at < len(text):
        length = chance.randint(1, longest)
        pieces.append(text[at : at + length])
        at += length
    return pieces
