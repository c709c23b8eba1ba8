"""Give spoilt messages to every parser of hermes-parsers: nothing may raise, and no promise may be broken.

Messages are written by the parsers themselves and then spoilt, by characters and by tokens: marks shuffled, repeated,
dropped and cut, names left out. A share of the texts is also streamed, in random pieces, and must mean the same.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from hermes_core.contracts.errors import HermesError
from hermes_core.contracts.parsing import ParseMode, ToolCallParser
from hermes_parsers import FAMILIES, from_response_template, get_parser
from hermes_testing.suites.parser.fuzz import PIECES, problems_of
from hermes_testing.suites.parser.mutation import nameless, spoilt
from hermes_testing.suites.parser.samples import STRANGE_TOOLS, schema

MOST_SHOWN: Final = 20
_CALLS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("get_weather", {"city": "Paris", "days": 3}),
    ("web_search", {"query": "cats & dogs", "limit": 5, "exact": True}),
    ("write", {"text": "a\nb 'c'", "more": ["x", 1], "map": {"k": None}}),
    ("get_time", {}),
)
_TOOLS: Final = [
    schema("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}}),
    schema("web_search", {"query": {"type": "string"}, "limit": {"type": "number"}, "exact": {"type": "boolean"}}),
    schema("write", {"text": {"type": "string"}, "more": {"type": "array"}, "map": {"type": "object"}}),
    schema("get_time"),
]
_TEXT: Final = {"type": "string"}
_OF_TEXTS: Final = [
    schema("get_weather", {"city": _TEXT, "days": _TEXT}),
    schema("web_search", {"query": _TEXT, "limit": {"type": ["string", "null"]}, "exact": _TEXT}),
    schema("write", {"text": _TEXT, "more": {"type": "array", "items": _TEXT}, "map": {"additionalProperties": _TEXT}}),
]
"""The same tools, whose numbers and words are declared to be texts: formats with quotes write them without any."""
_TEMPLATE: Final = {
    "start_anchor": "<|model|>",
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open": "<call>",
            "close": "</call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close": "<|end|>"},
    },
}


class Target(NamedTuple):
    """A parser, and whole messages in its format."""

    name: str
    parser: ToolCallParser
    messages: Sequence[str]


class Failure(NamedTuple):
    """A text that broke a promise, and how."""

    target: str
    problem: str
    text: str


def targets() -> list[Target]:
    """Return every format once with each set of options, and messages that its own parser writes."""
    found = []
    for name in [family.names[0] for family in FAMILIES]:
        messages = list(_messages(_make_parser(name)))
        found += [
            Target(f"{name}{_option_words(options)}", _make_parser(name, **options), messages) for options in _OPTIONS
        ]
    return found


def _make_parser(name: str, *, reasoning_opened: bool = False, promote_drafts: bool = False) -> ToolCallParser:
    make = partial(from_response_template, _TEMPLATE) if name == _DECLARED else partial(get_parser, name)
    try:
        return make(reasoning_opened=reasoning_opened, promote_drafts=promote_drafts)
    except HermesError:
        # No prompt opens the reasoning of this format.
        return _make_parser(name)


def _option_words(options: Mapping[str, bool]) -> str:
    return f" ({', '.join(options)})" if options else ""


_DECLARED: Final = "response_template"
_OPTIONS: Final[tuple[dict[str, bool], ...]] = ({}, {"reasoning_opened": True}, {"promote_drafts": True})


def _messages(parser: ToolCallParser) -> Iterator[str]:
    """Write messages with one call and with several, text and reasoning; leave out what a format cannot write."""
    for count in (1, 2, 4):
        for content, reasoning in (("", ""), ("Some text.", ""), ("", "hm"), ("I look.", "hm, and so")):
            calls = [{"id": f"call{n:05d}", "function": {"name": f, "arguments": a}} for n, (f, a) in enumerate(_CALLS)]
            message = {"role": "assistant", "content": content, "tool_calls": calls[:count]}
            try:
                text = parser.render({**message, "reasoning_content": reasoning} if reasoning else message)
            except ValueError:
                continue
            yield text
            yield from nameless(text, "get_weather")
            if count == 4:
                yield from nameless(text, "get_time")
                yield from nameless(text, "city")


def run_texts(texts: int, seed: int, *, streamed: float, some: Sequence[Target]) -> tuple[Counter[str], list[Failure]]:
    """Give so many texts to the targets in turn; return how many each got, and what failed."""
    chance = random.Random(seed)
    modes: tuple[ParseMode, ...] = ("strict", "lenient")
    tools: list[Sequence[Mapping[str, Any]] | None] = [
        None,
        None,
        _TOOLS,
        _TOOLS,
        _OF_TEXTS,
        _OF_TEXTS,
        *STRANGE_TOOLS.values(),
    ]
    counts: Counter[str] = Counter()
    failures: list[Failure] = []
    for number in range(texts):
        target = some[number % len(some)]
        text = spoilt(chance, target.messages, PIECES)
        is_streamed = chance.random() < streamed
        counts[target.name] += 1
        try:
            problems = problems_of(
                target.parser, text, chance.choice(tools), chance.choice(modes), chance, is_streamed=is_streamed
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not come out of a parser
            problems = [f"raised {type(error).__name__}: {error}"]
        failures += [Failure(target.name, problem, text) for problem in problems]
    return counts, failures


def main(arguments: Sequence[str]) -> int:
    """Run, and print the seed and the counts; 1 if anything failed."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--texts", type=int, default=1_000_000, help="how many texts over all parsers together")
    options.add_argument("--seed", type=int, default=None, help="repeat a run; a new seed by default")
    options.add_argument("--streamed", type=float, default=0.1, help="the share of texts that are streamed as well")
    options.add_argument("--only", nargs="*", default=(), help="test these parsers alone")
    given = options.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    some = [target for target in targets() if not given.only or target.name.partition(" ")[0] in given.only]
    began = time.monotonic()
    counts, failures = run_texts(given.texts, seed, streamed=given.streamed, some=some)
    raised = sum(failure.problem.startswith("raised") for failure in failures)
    print(f"{counts.total():,} texts over {len(counts)} parsers in {time.monotonic() - began:.0f} s")
    print(f"{raised} exceptions, {len(failures) - raised} other broken promises")
    for failure in failures[:MOST_SHOWN]:
        print(f"{failure.target}: {failure.problem}\n    {failure.text!a}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
