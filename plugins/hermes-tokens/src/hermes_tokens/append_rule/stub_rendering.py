"""Render `[user, stub assistant, *new messages]`: appended text starts after the stub."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hermes_core.contracts.model import Message
from hermes_tokens.append_rule.placeholders import BODY
from hermes_tokens.chat_template.template import ChatTemplate, TemplateError

_USER: Final[Message] = {"role": "user", "content": "Hello"}
CONTENTS: Final = ("", BODY, None)
"""Texts beside a turn's calls, best first: with some of them, some templates leave out the text or the calls."""
_CALL: Final = {"id": "earlier01", "type": "function", "function": {"name": "look", "arguments": {"at": "it"}}}
_EARLIER: Final[tuple[Message, ...]] = (
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "earlier01", "content": "seen"},
)


class StubRenderer:
    """Renders messages in the form that a template accepts: content as text or parts, arguments as object or text.

    `declaration` is the text about the tools in the system prompt, for a template that does not list them.
    """

    def __init__(self, template: ChatTemplate, tools: Sequence[Any], *, declaration: str = "") -> None:
        self._template = template
        self._tools = tools
        self._declaration = ""
        self._in_parts = not self._shows_text()
        self._declaration = declaration

    def render(self, messages: Sequence[Message], *, prompt: bool = True) -> str:
        """Render in the form that the template accepts; raise `TemplateError` if there is none."""
        refusal: TemplateError | None = None
        for form, as_text in _forms(messages):
            try:
                return self.render_form(form, prompt=prompt, as_text=as_text)
            except TemplateError as error:
                refusal = refusal or error
        assert refusal is not None
        raise refusal

    def stub(self, calls: Sequence[Mapping[str, str]], new: Sequence[Message], *, after_tools: bool) -> Stub:
        """Return the first stub for this turn that the template accepts; raises its error for the best one."""
        refusal: TemplateError | None = None
        for history in ([_USER, *_EARLIER], [_USER]) if after_tools else ([_USER],):
            for message, as_text in _stubs(calls):
                stub = Stub(self, [*history, message], as_text=as_text)
                try:
                    if BODY in stub.render(new):
                        return stub  # the same rendering is used again later
                except TemplateError as error:
                    refusal = refusal or error
        raise refusal or TemplateError(
            "expected a template that renders assistant messages, got one that leaves them out",
            hint="use another template",
        )

    def adapt(self, messages: Sequence[Message], *, as_text: bool = False) -> list[Message]:
        """Return the messages in the form that the template accepts, with the declaration in the system prompt."""
        messages = _declaring(self._declaration, messages) if self._declaration else messages
        return [self._adapt_message(message, as_text=as_text) for message in messages]

    def render_form(self, messages: Sequence[Message], *, prompt: bool, as_text: bool) -> str:
        """Render in one form; `as_text`: arguments as JSON text."""
        adapted = self.adapt(messages, as_text=as_text)
        text = self._template.render(adapted, tools=self._tools, add_generation_prompt=prompt)
        if self._declaration not in text:
            raise TemplateError(
                "expected a chat template that writes the system prompt unchanged, so that it can declare the tools, "
                "got one that leaves it out or changes it",
                hint="use the model's template for tools, or run without tools",
            )
        return text

    def _adapt_message(self, message: Message, *, as_text: bool) -> Message:
        changed = dict(message)
        if self._in_parts and isinstance(message.get("content"), str):
            changed["content"] = [{"type": "text", "text": message["content"]}]
        if as_text and message.get("tool_calls"):
            changed["tool_calls"] = [_with_text_arguments(call) for call in message["tool_calls"]]
        return changed

    def _shows_text(self) -> bool:
        """Return whether the template accepts a string as content; templates of vision models need a list of parts."""
        self._in_parts = False
        try:
            return BODY in self.render([{"role": "user", "content": BODY}])
        except TemplateError:
            return True


class Stub:
    """A stub that the template accepts; any new messages can be rendered after it."""

    def __init__(self, renderer: StubRenderer, messages: Sequence[Message], *, as_text: bool) -> None:
        self._renderer = renderer
        self._messages = messages
        self._as_text = as_text
        self._last: tuple[Sequence[Message], str] | None = None

    @property
    def has_calls(self) -> bool:
        """Whether the stub's own text ends with a call, after the slot of its arguments."""
        return bool(self._messages[-1].get("tool_calls")) and BODY not in (self._messages[-1].get("content") or "")

    def render(self, new: Sequence[Message], *, prompt: bool = True) -> str:
        """Return the whole text."""
        if prompt and self._last is not None and self._last[0] is new:
            return self._last[1]
        text = self._renderer.render_form([*self._messages, *new], prompt=prompt, as_text=self._as_text)
        self._last = (new, text) if prompt else self._last
        return text

    def after(self, new: Sequence[Message], *, prompt: bool = True) -> str:
        """Return the text after the slot of the turn's body."""
        text = self.render(new, prompt=prompt)
        return text[text.rindex(BODY) + len(BODY) :]


def _declaring(declaration: str, messages: Sequence[Message]) -> list[Message]:
    """Return the messages with the declaration at the start of their leading system message.

    If the first message is not a system message, the declaration becomes one. A later system message is never used,
    because it may be part of what is appended to a turn.
    """
    if not messages or messages[0].get("role") != "system":
        return [{"role": "system", "content": declaration}, *messages]
    own = messages[0].get("content")
    text = f"{declaration}\n\n{own}" if isinstance(own, str) and own.strip() else declaration
    return [{**messages[0], "content": text}, *messages[1:]]


def _forms(messages: Sequence[Message]) -> Iterator[tuple[Sequence[Message], bool]]:
    """Yield forms of the same messages, best first: arguments as object, then as text.

    A turn without text gets "": for None, some templates write "None" and some fail. Others refuse "".
    """
    texts = [_with_text(message) for message in messages]
    for form in (texts,) if texts == list(messages) else (texts, messages):
        yield form, False
        if any(message.get("tool_calls") for message in messages):
            yield form, True


def _with_text(message: Message) -> Message:
    has_none = message.get("role") == "assistant" and message.get("content") is None
    return {**message, "content": ""} if has_none else message


def _stubs(calls: Sequence[Mapping[str, str]]) -> Iterator[tuple[Message, bool]]:
    """Yield assistant messages from the most to the least faithful, each with arguments as object and as text.

    A template that accepts only one call gets one; a template that does not render calls gets the body as content.
    """
    for some in dict.fromkeys((len(calls), min(len(calls), 1))):
        if some:
            made = [_call(call) for call in calls[:some]]
            for content in CONTENTS:
                yield {"role": "assistant", "content": content, "tool_calls": made}, False
                yield {"role": "assistant", "content": content, "tool_calls": made}, True
    yield {"role": "assistant", "content": BODY}, False


def _call(call: Mapping[str, str]) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": {"body": BODY}}
    return {"id": call["id"], "type": "function", "function": function}


def _with_text_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": text}}
