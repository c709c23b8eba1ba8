"""Tool-call parsers: turn the text that a model wrote into segments and calls, and messages back into text.

    >>> from hermes_parsers import get_parser
    >>> result = get_parser("hermes").parse('<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>')
    >>> [(call.name, call.arguments) for call in result.calls]
    [('f', '{"a": 1}')]

Importing this package imports no parser; a family is imported when its first parser is requested.
"""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_core.contracts.parsing import ToolCallParser
    from hermes_parsers.catalog import FAMILIES
    from hermes_parsers.declarative import from_response_template
    from hermes_parsers.detection import detect
    from hermes_parsers.engine.scanning.parser import ScanningParser
    from hermes_parsers.engine.scanning.scan import Scan, seek, sees, skip_space
    from hermes_parsers.families.json.json_array import JsonArrayParser
    from hermes_parsers.families.json.tagged_json import TaggedJsonParser
    from hermes_parsers.families.special_tokens.named_json import NamedJsonParser
    from hermes_parsers.markup.dialect import Dialect
    from hermes_parsers.markup.parser import MarkupParser
    from hermes_parsers.models import parser_for

__version__ = "0.1.0"

__all__ = [
    "FAMILIES",
    "Dialect",
    "JsonArrayParser",
    "MarkupParser",
    "NamedJsonParser",
    "Scan",
    "ScanningParser",
    "TaggedJsonParser",
    "__version__",
    "detect",
    "from_response_template",
    "get_parser",
    "list_parsers",
    "parser_for",
    "seek",
    "sees",
    "skip_space",
]

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".catalog": "FAMILIES",
            ".declarative": "from_response_template",
            ".detection": "detect",
            ".engine.scanning.parser": "ScanningParser",
            ".engine.scanning.scan": "Scan seek sees skip_space",
            ".families.json.json_array": "JsonArrayParser",
            ".families.json.tagged_json": "TaggedJsonParser",
            ".families.special_tokens.named_json": "NamedJsonParser",
            ".markup.dialect": "Dialect",
            ".markup.parser": "MarkupParser",
            ".models": "parser_for",
        },
    )


def get_parser(name: str, **options: Any) -> ToolCallParser:
    """Return a new parser by its name; installed third-party parsers are found as well.

    Args:
        name: One of `list_parsers()`, or of `hermes-core parsers list`.
        options: `promote_drafts` turns calls that were drafted in reasoning into calls when no call follows;
            `reasoning_opened` says that the prompt has opened the reasoning, so the text begins inside it.

    Raises:
        UnknownComponentError: No installed package provides it; the error lists similar names and the package to
            install.
        TypeError: The name is not a str.
    """
    if not isinstance(name, str):
        raise TypeError(f"expected a parser's name such as 'hermes', got {type(name).__name__}: {name!r:.80}")
    from hermes_parsers.catalog import BY_NAME

    family = BY_NAME.get(name)
    if family is not None:
        from importlib import import_module

        module, _, attribute = family.target.partition(":")
        parser: ToolCallParser = getattr(import_module(module), attribute)(**options)
        return parser
    from hermes_core.discovery import load_plugins

    found: ToolCallParser = load_plugins().create("parser", name, options)
    return found


def list_parsers() -> list[str]:
    """Return the names that this package provides, sorted; one format can have several names.

    To include those of other packages, call `hermes_core.discovery.load_plugins().names("parser")`.
    """
    from hermes_parsers.catalog import BY_NAME

    return sorted(BY_NAME)
