"""The tools of a conversation: whether the template lists them, and otherwise the text that declares them.

Tool descriptions are untrusted (a tool server may write them), so no text in them may become a control token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.model import Message
from hermes_core.contracts.parsing import DeclaringParser, ToolCallParser
from hermes_tokens.append_rule.placeholders import BREAK, SLOT, map_texts, slot
from hermes_tokens.append_rule.stub_rendering import StubRenderer
from hermes_tokens.chat_template.template import ChatTemplate, TemplateError
from hermes_tokens.vocabulary import ControlTokens

_FIRST_NAME: Final = 90_000
_USER: Final[Message] = {"role": "user", "content": "Hello"}
_SYSTEM: Final[Message] = {"role": "system", "content": "You help."}
OPENINGS: Final = ((_USER,), (_SYSTEM, _USER))
"""Openings of conversations."""
PROBE: Final = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {}}}
"""A tool to test whether a template lists tools at all."""


def without_controls(tools: Sequence[Any], controls: ControlTokens, mark: str = BREAK) -> tuple[Any, ...]:
    """Return the tools with `mark` inserted into every text that would make a control token or a slot."""

    def part(text: str) -> str:
        return controls.part(SLOT.sub(lambda found: f"{found[0][:1]}{mark}{found[0][1:]}", text), mark)

    return tuple(map_texts(tool, part, part) for tool in tools)


def are_listed(template: ChatTemplate, tools: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a template writes the name of each tool, for every opening of a conversation.

    The names are replaced by unique ones, because a name such as `user` may occur in other text.
    """
    if not tools:
        return True
    renamed = [_with_name(tool, slot(_FIRST_NAME + number)) for number, tool in enumerate(tools)]
    renderer = StubRenderer(template, renamed)
    texts = [text for messages in OPENINGS if (text := _render(renderer, messages)) is not None]
    names = [slot(_FIRST_NAME + number) for number in range(len(renamed))]
    return bool(texts) and all(name in text for text in texts for name in names)


def declaration_of(parser: ToolCallParser | None, tools: Sequence[Any]) -> str:
    """Return the parser's declaration of the tools, or "" if it has none."""
    if not isinstance(parser, DeclaringParser):
        return ""
    try:
        return parser.declare(tools).strip()
    except ValueError as error:
        raise ConfigError(
            f"expected a parser that declares the tools, got {parser_name(parser)}, which fails: {error}",
            hint="use another parser: --parser NAME",
        ) from error


def parser_name(parser: ToolCallParser) -> str:
    """Return the parser's class in the form of a plugin target."""
    return f"{type(parser).__module__}:{type(parser).__qualname__}"


def _with_name(tool: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    if isinstance(tool.get("function"), Mapping):
        return {**tool, "function": {**tool["function"], "name": name}}
    return {**tool, "name": name}


def _render(renderer: StubRenderer, messages: Sequence[Message]) -> str | None:
    try:
        return renderer.render(messages)
    except TemplateError:
        return None
