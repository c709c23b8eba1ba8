"""The tools of a conversation: whether the template lists them, and what declares them where it does not.

What tools say of themselves may come from anybody, a tool server for instance: none of it may become a control token.
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
"""What conversations begin with."""
PROBE: Final = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {}}}
"""A tool to ask whether a template lists any."""


def without_controls(tools: Sequence[Any], controls: ControlTokens, mark: str = BREAK) -> tuple[Any, ...]:
    """Return the tools with `mark` inside whatever would make a control token or a slot of their texts."""

    def part(text: str) -> str:
        return controls.part(SLOT.sub(lambda found: f"{found[0][:1]}{mark}{found[0][1:]}", text), mark)

    return tuple(map_texts(tool, part, part) for tool in tools)


def are_listed(template: ChatTemplate, tools: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether a template writes the name of each tool, whatever a conversation begins with.

    Names are replaced for that: one such as `user` may stand in a text that does not list it.
    """
    if not tools:
        return True
    renamed = [_with_name(tool, slot(_FIRST_NAME + number)) for number, tool in enumerate(tools)]
    renderer = StubRenderer(template, renamed)
    texts = [text for messages in OPENINGS if (text := _render(renderer, messages)) is not None]
    names = [slot(_FIRST_NAME + number) for number in range(len(renamed))]
    return bool(texts) and all(name in text for text in texts for name in names)


def declaration_of(parser: ToolCallParser | None, tools: Sequence[Any]) -> str:
    """Return what the parser says of the tools, "" if it says nothing of any."""
    if not isinstance(parser, DeclaringParser):
        return ""
    try:
        return parser.declare(tools).strip()
    except ValueError as error:
        raise ConfigError(
            f"expected a parser that declares the tools, got {parser_name(parser)}, which cannot: {error}",
            hint="name another parser: --parser NAME",
        ) from error


def parser_name(parser: ToolCallParser) -> str:
    """Name the parser by its class, as a plugin names its target."""
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
