"""A model's chat template: messages to text, as transformers renders them."""

from __future__ import annotations

import copy
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.model import Message

INSTALL_HINT: Final = "pip install hermes-tokens"
REASONING_FIELDS: Final = ("reasoning_content", "thinking", "reasoning")


class TemplateError(ConfigError):
    """The chat template is not valid or refuses a conversation; `line` is the line in the template, if known."""

    def __init__(self, message: str, *, line: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.line = line


class ChatTemplate:
    """Renders conversations in a Jinja sandbox; the template sees the time at which the object was created."""

    def __init__(
        self,
        text: str,
        *,
        special_tokens: Mapping[str, Any] | None = None,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.text = text
        self._compiled = _compile(text)
        self.variables = {"strftime_now": clock().strftime, **(special_tokens or {})}

    def using(self, kwargs: Mapping[str, Any], *, clock: Callable[[], datetime] = datetime.now) -> ChatTemplate:
        """Return the template with additional arguments and the current time, without compiling it again."""
        other = copy.copy(self)
        other.variables = {**self.variables, "strftime_now": clock().strftime, **kwargs}
        return other

    def reads(self, field: str) -> bool:
        """Return whether the template may read a field of messages, that is, whether it contains the name."""
        return re.search(rf"\b{re.escape(field)}\b", self.text) is not None

    def render(
        self, messages: Sequence[Message], *, tools: Sequence[Any] = (), add_generation_prompt: bool = True
    ) -> str:
        """Render the conversation as text; raise `TemplateError` with the template's own error message."""
        variables = {
            **self.variables,
            "messages": [_with_reasoning(message) for message in messages],
            "tools": list(tools) or None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return str(self._compiled.render(variables))
        except Exception as error:  # the template is foreign code: any exception is a refusal
            raise _refusal(error, messages) from error


def variables_of(text: str) -> frozenset[str]:
    """Return the undeclared variables of a template."""
    from jinja2 import meta

    return frozenset(meta.find_undeclared_variables(_compile(text).environment.parse(text)))


def _compile(text: str) -> Any:
    try:
        from jinja2 import TemplateSyntaxError

        from hermes_tokens.chat_template.jinja import environment
    except ImportError as error:
        raise ConfigError("chat templates need jinja2, which is not installed", hint=INSTALL_HINT) from error
    try:
        return environment().from_string(text)
    except TemplateSyntaxError as error:
        raise TemplateError(
            f"expected a chat template in Jinja, got a syntax error in line {error.lineno}: {error.message}",
            line=error.lineno,
            hint="correct chat_template.jinja, or chat_template in tokenizer_config.json",
        ) from error


def _refusal(error: Exception, messages: Sequence[Message]) -> TemplateError:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"]
    line = lines[-1] if lines else None
    where = "" if line is None else f" in line {line}"
    roles = ", ".join(str(message.get("role")) for message in messages)
    return TemplateError(
        f"the chat template refuses the messages ({roles}){where}: {type(error).__name__}: {error}",
        line=line,
        hint="use a template that supports such a conversation, or change the agent loop to avoid it",
    )


def _with_reasoning(message: Message) -> Message:
    """Return the message with its reasoning under every name that templates use."""
    reasoning = next((message[key] for key in REASONING_FIELDS if message.get(key) is not None), None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}
