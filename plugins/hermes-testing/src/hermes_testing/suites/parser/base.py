"""Code shared by the parts of the parser suite: the author's inputs, the sample calls, and reading them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest
from hypothesis import HealthCheck, settings

from hermes_core.contracts.parsing import ParseMode, ParseResult, ToolCallParser
from hermes_testing.registries import isolated_registry
from hermes_testing.suites.base import ComponentSuite
from hermes_testing.suites.parser.samples import schemas_of

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

Call = tuple[str, dict[str, Any]]

WEATHER: Final[Call] = ("get_weather", {"city": "Paris", "days": 3})
SEARCH: Final[Call] = ("web_search", {"query": "cats & dogs", "limit": 5})
CLOCK: Final[Call] = ("get_time", {"zone": "UTC", "exact": True})
PROSE: Final = 'I will look it up.\n\n  First {"a": [1, {}]}, then f(x) > 3 and "that".'
MODES: Final[tuple[ParseMode, ParseMode]] = ("strict", "lenient")
# Function-scoped fixtures are safe here: parsers are stateless, which the suite checks. One inherited test runs for
# many subclasses, and a third party's suite must not depend on a database of examples. A profile with fewer examples
# gets fewer.
PROPERTY: Final = settings(
    max_examples=min(25, settings().max_examples),
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)
_MARK: Final = re.compile(r"<[^<>=\"]*>|\[[A-Z_]+\]|[\[{(]|[^\w\s]*\w+")

_REGISTRY: Final = pytest.StashKey["Registry"]()


class ParserBase(ComponentSuite):
    """The author's inputs; `wire` and `block_marks` are enough for most formats.

    `block_marks` are the pairs of marks that only calls have: around one call, around all of them, or both.
    `fuzz_messages` and `long_text` (characters) set the size of the costly tests.
    """

    kind = "parser"
    reasoning_tags: ClassVar[tuple[str, str]] = ("<think>", "</think>")
    block_marks: ClassVar[Sequence[tuple[str, str]]] = ()
    fuzz_messages: ClassVar[int] = 1_000
    long_text: ClassVar[int] = 10_000_000

    def wire(self, calls: Sequence[Call], content: str = "") -> str:
        """Write a message as the model's template does: text, then calls of (name, arguments)."""
        raise NotImplementedError(f"{type(self).__qualname__} must implement wire(calls, content)")

    def answer(self, content: str) -> str:
        """Write a message without calls; by default the text itself."""
        return content

    def malformed_call(self) -> str:
        """Write one unreadable call of `get_weather`; by default it is cut off in its argument."""
        text = self.wire([("get_weather", {"city": "MARKER"})])
        broken = text.replace('"MARKER"', "MARKER") if "json_arguments" not in self.lacks else text
        return broken if broken != text else text[: text.index("MARKER") + 3]

    def mark(self) -> str:
        """Write the beginning of a call that may also occur in prose; by default the first token of `wire`."""
        found = _MARK.match(self.wire([WEATHER]))
        return found[0] if found else ""

    @pytest.fixture
    def registry(self, request: pytest.FixtureRequest) -> Registry:
        """A registry as in every suite, created once per class, since that takes longer than most parser tests."""
        stash: pytest.Stash = request.node.parent.stash
        return stash[_REGISTRY] if _REGISTRY in stash else stash.setdefault(_REGISTRY, isolated_registry(self.plugin))

    @pytest.fixture
    def parser(self, registry: Registry) -> ToolCallParser:
        """The parser, created by the registry."""
        parser: ToolCallParser = self.make(registry)
        return parser

    def tools(self, calls: Sequence[Call] = (WEATHER, SEARCH, CLOCK)) -> list[Mapping[str, Any]] | None:
        """Return the schemas of the calls if only a schema tells a value's type, else None."""
        return schemas_of(calls) if "typed_values" in self.lacks else None

    def read(
        self,
        parser: ToolCallParser,
        text: str,
        calls: Sequence[Call] = (WEATHER, SEARCH, CLOCK),
        mode: ParseMode = "strict",
    ) -> ParseResult:
        """Parse a text that may contain these calls."""
        return parser.parse(text, self.tools(calls), mode)

    def some_calls(self) -> list[Call]:
        """Return as many calls as a message of this format can hold, at most three."""
        return [WEATHER, SEARCH, CLOCK] if "many_calls" not in self.lacks else [WEATHER]

    def message(self, content: str = PROSE) -> str:
        """Write a complete message: text if allowed, and calls."""
        return self.wire(self.some_calls(), content if "text_before" not in self.lacks else "")

    def samples(self) -> list[str]:
        """Write texts of every kind, good and bad."""
        opening, closing = self.reasoning_tags
        whole = self.message("Some text.")
        thought = [] if "reasoning" in self.lacks else [f"{opening}hm {self.wire([SEARCH])}{closing}\n\n{whole}"]
        cut = whole[: len(whole) * 2 // 3]
        repairable = self.wire([WEATHER]).replace('"Paris"', "'Paris'")
        spoilt = [cut, self.malformed_call(), repairable]
        return ["", "plain text", whole, f"{whole}\nafter", f"{self.mark()} {whole}", *spoilt, *thought]
