"""Inkling: every part of a turn is a message between marks, with the kind of its content after the first.

`<|message_model|><|content_thinking|>…<|end_message|>` is reasoning, `<|content_text|>` the answer, and
`<|message_model|>f<|content_invoke_tool_json|>{"name":"f","args":{…}}<|end_message|>` a call. A prompt ends with
`<|message_model|>`, so a turn begins after it. The source is vLLM's documentation of the format. The scanner for
response templates reads it, because its content stands between marks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from hermes_core.contracts.parsing import ParseResult
from hermes_parsers.declarative.parser import TemplateParser
from hermes_parsers.declarative.template import read_template
from hermes_parsers.engine.rendering import WrittenCall, read_message, refuse_unless_same
from hermes_parsers.writing import dumps

if TYPE_CHECKING:
    from hermes_parsers.engine.options import ParserOptions

_MESSAGE: Final = "<|message_model|>"
_END: Final = "<|end_message|>"
_TURN_END: Final = "<|content_model_end_sampling|>"
_BEFORE: Final = r"(?:<\|message_model\|>)?"
_CLOSE: Final = r"<\|end_message\|>|<\|content_model_end_sampling\|>"
# The next message ends one whose end mark is missing; otherwise the end mark of a call would close it after the call.
_CLOSE_TEXT: Final = rf"{_CLOSE}|<\|message_model\|>"


class InklingParser(TemplateParser):
    """Reasoning, answer and calls, each a message.

    Args:
        options: Options validated by a registry, in place of the keyword arguments.
        promote_drafts: Turn calls that were drafted in reasoning into calls when no call follows.
        reasoning_opened: Refused, because no prompt of this format opens the reasoning.
    """

    spec: ClassVar[Mapping[str, Any]] = {
        "start_anchor": _MESSAGE,
        "fields": {
            "thinking": {"open_pattern": rf"{_BEFORE}<\|content_thinking\|>", "close_pattern": _CLOSE_TEXT},
            "content": {
                "open_pattern": rf"{_BEFORE}<\|content_text\|>",
                "close_pattern": _CLOSE_TEXT,
                "content_args": {"strip": False},
            },
            "tool_calls": {
                "open_pattern": rf"{_BEFORE}[\w.\-]*<\|content_invoke_tool_json\|>",
                "close_pattern": _CLOSE,
                "repeats": True,
                "content": "json",
                "transform": {
                    "type": "function",
                    "function": {"name": "{content.name}", "arguments": "{content.args}"},
                },
            },
        },
    }

    def __init__(
        self, options: ParserOptions | None = None, *, promote_drafts: bool = False, reasoning_opened: bool = False
    ) -> None:
        if options is not None:
            promote_drafts, reasoning_opened = options.promote_drafts, options.reasoning_opened
        super().__init__(
            read_template(self.spec, "inkling"),
            end_marks=(_TURN_END,),
            promote_drafts=promote_drafts,
            reasoning_opened=reasoning_opened,
        )

    def render(self, message: ParseResult | Mapping[str, Any]) -> str:
        """Write a message back: byte for byte what was parsed, otherwise as the model does after its prompt.

        Raises:
            ValueError: It cannot be written so that it reads back the same.
        """
        if isinstance(message, ParseResult):
            return super().render(message)
        reasoning, content, calls = read_message(message)
        text = self.write_turn(reasoning, content, calls)
        refuse_unless_same(self.parse(text), reasoning, content, calls)
        return text

    def write_turn(self, reasoning: str, content: str, calls: Sequence[WrittenCall]) -> str:
        """Write the messages of a turn."""
        messages = [f"<|content_thinking|>{reasoning}{_END}"] if reasoning else []
        messages += [f"<|content_text|>{content}{_END}"] if content else []
        messages += [self.write_call(call, index) for index, call in enumerate(calls)]
        return _MESSAGE.join(messages)

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write a call with its name before the mark of its kind, as the model does."""
        body = f'{{"name":{dumps(call.name)},"args":{call.arguments}}}'
        return f"{call.name}<|content_invoke_tool_json|>{body}{_END}"
