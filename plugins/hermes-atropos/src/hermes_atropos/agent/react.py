"""The text protocol of `AtroposAgent`: tools in the system prompt, `<tool_call>` in the model's text.

A turn thinks in `<think>`, then calls tools or gives the final answer. The results come back as one user message of
`<tool_response>` blocks. An unreadable call gets an error result and never counts as a final answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hermes_core.contracts.model import ModelReply
from hermes_core.rollout import truncation_notice
from hermes_tools.agent_tools import ToolCall, ToolResult

_INSTRUCTIONS: Final = """\
You solve a task by working with tools. The tools you have, as JSON:
<tools>{tools}</tools>

How to answer, in every turn:
1. Think once, inside <think> and </think>: what is known, what is missing, what to do next.
2. Then call one tool or several. Each call is one JSON object with "name" and "arguments" inside its own tags:
   <tool_call>{{"name": "NAME", "arguments": {{"PARAMETER": "VALUE"}}}}</tool_call>
3. After your calls, stop. Their answers arrive in the next message, one <tool_response> for each call in the same
   order, as JSON with "success", "output" and, where something went wrong, "error". Never write one yourself.
4. When the task is done, answer in plain text without any tool call. That ends the task.

Commands are run by a shell without a person at it: nothing can be confirmed, typed or paged. Use options that do not
ask (-y, --no-pager), give here-documents and quotes their ends, and look at what a command printed before you go on.
Files written in one call are there in the next.

Examples of turns:
<think>I have to know which files there are.</think>
<tool_call>{{"name": "terminal", "arguments": {{"command": "ls -la"}}}}</tool_call>

<think>Both files matter, and neither depends on the other.</think>
<tool_call>{{"name": "read_file", "arguments": {{"path": "a.txt"}}}}</tool_call>
<tool_call>{{"name": "read_file", "arguments": {{"path": "b.txt"}}}}</tool_call>

<think>The tests pass now, so the task is done.</think>
The error was in parse(): an empty line was taken for a header. It is fixed, and all tests pass.
"""
_MARK: Final = re.compile(r"<think>|</think>|<tool_call>\s*")
_CLOSER: Final = re.compile(r"\s*</tool_call>")
_NAME: Final = re.compile(r"([\w.:-]+)\s*(?=\{)")
_MOST_PROBLEMS: Final = 16  # in a row; more of them do not help the model
_MOST_IN_ALL: Final = 64  # each costs a scan of the whole text before it
_DECODER: Final = json.JSONDecoder(strict=False)  # models write raw line breaks in strings


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactTurn:
    """A parsed turn. `problems` answer the unreadable calls; `answer` is the text without calls.

    `is_truncated`: the token limit cut it off within a call, which is the last of the problems.
    """

    message: str
    calls: Sequence[ToolCall] = ()
    problems: Sequence[ToolResult] = ()
    answer: str = ""
    is_truncated: bool = False


def system_prompt(definitions: str, own: str | None = None) -> str:
    """Return the system prompt for tool definitions in JSON; `own` instructions replace the built-in ones.

    `<tools>` is added to instructions without it.
    """
    if own is None:
        return _INSTRUCTIONS.format(tools=definitions)
    return own if "<tools>" in own else f"{own}\n\n<tools>{definitions}</tools>"


def read_turn(reply: ModelReply, step: int) -> ReactTurn:
    """Parse a reply: its content, its reasoning if the content is empty, or the calls that a server parsed."""
    text = reply.content or ""
    if reply.tool_calls:  # a server that parses <tool_call> itself; the turn is written in the model's format again
        text = "\n".join([text, *(_render_call(call.name, call.arguments) for call in reply.tool_calls)]).strip("\n")
    elif not text.strip():
        text = reply.reasoning or ""
    reader = _Reader(text)
    reader.run()
    calls: list[ToolCall] = []
    problems: list[ToolResult] = []
    for number, found in enumerate(reader.found, 1):
        uniq_id = f"call_{step}_{number}"
        if isinstance(found, ToolCall):
            calls.append(replace(found, uniq_id=found.uniq_id or uniq_id))
        else:
            error = f"This tool call could not be read: {found}. Write it again."
            problems.append(ToolResult(success=False, error=error, uniq_id=uniq_id))
    is_cut = reply.finish_reason == "length" and bool(reader.found) and isinstance(reader.found[-1], _UnreadableError)
    if is_cut:
        problems[-1] = replace(problems[-1], error=truncation_notice(reply))
    answer = "".join(reader.spoken).strip()
    return ReactTurn(message=text, calls=calls, problems=problems, answer=answer, is_truncated=is_cut)


def observation(results: Sequence[ToolResult], *, with_metadata: bool = False) -> str:
    """Return the user message with the results of a turn's calls."""
    return "\n".join(result.to_xml(with_metadata=with_metadata) for result in results)


class _UnreadableError(Exception):
    """A call cannot be parsed; the text is the reason."""


class _Reader:
    """Parses a turn in one pass, from mark to mark; a mark inside a call's JSON or a thought is text.

    A closing mark without an opening one ends a thought that the prompt opened, so everything before it is discarded. A
    thought that never ends is parsed like other text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._last_closer = text.rfind("</think>")
        self._has_thought = False
        self._problems = self._problems_in_a_row = 0
        self.found: list[ToolCall | _UnreadableError] = []
        self.spoken: list[str] = []

    def run(self) -> None:
        """Fill `found` with the calls in order, and `spoken` with the text around them."""
        while (mark := _MARK.search(self._text, self._at)) is not None:
            self.spoken.append(self._text[self._at : mark.start()])
            self._at = mark.end()
            if mark.group() == "<think>":
                self._skip_thought()
            elif mark.group() == "</think>":
                self._take_back()
            else:
                self._read_call(mark.start())
            if self._problems == _MOST_IN_ALL or self._problems_in_a_row == _MOST_PROBLEMS:
                return
        self.spoken.append(self._text[self._at :])

    def _skip_thought(self) -> None:
        self._has_thought = True
        if self._at <= self._last_closer:
            self._at = self._text.index("</think>", self._at) + len("</think>")

    def _take_back(self) -> None:
        if not self._has_thought:
            self.found.clear()
            self.spoken.clear()
            self._problems = self._problems_in_a_row = 0
        self._has_thought = True

    def _read_call(self, start: int) -> None:
        try:
            name, value, self._at = _body(self._text, self._at)
            closer = _CLOSER.match(self._text, self._at)
            if closer is None:
                raise _UnreadableError("it has no </tool_call> after its JSON")  # noqa: TRY301 - recorded below
            self._at = closer.end()
            self.found.append(_call(name, value, self._text[start : self._at]))
            self._problems_in_a_row = 0
        except _UnreadableError as problem:
            self.found.append(problem)
            self._problems += 1
            self._problems_in_a_row += 1


def _body(text: str, at: int) -> tuple[str | None, Any, int]:
    """Return the name before the braces (if any), the decoded JSON, and its end."""
    name = _NAME.match(text, at)
    at = at if name is None else name.end()
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError:
        raise _UnreadableError("its JSON is nested too deep") from None
    except ValueError:
        wanted = '{"name": …, "arguments": {…}}'
        raise _UnreadableError(f"expected {wanted}, got {text[at : at + 40]!r}") from None
    return (name.group(1) if name else None), value, end


def _call(name: str | None, value: Any, raw: str) -> ToolCall:
    if not isinstance(value, dict):
        raise _UnreadableError(f"expected a JSON object, got {type(value).__name__}")
    if name is not None:
        return ToolCall(name=name, arguments=value, raw_text=raw)
    if not isinstance(value.get("name"), str) or not value["name"]:
        raise _UnreadableError('it has no "name"')
    given = value.get("uniq_id") or value.get("id")
    own_id = given if isinstance(given, str) else ""
    return ToolCall(name=value["name"], arguments=_arguments(value), raw_text=raw, uniq_id=own_id)


def _arguments(value: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = value.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = _DECODER.decode(arguments)
        except (ValueError, RecursionError) as error:
            raise _UnreadableError('its "arguments" are text that is not JSON') from error
    if not isinstance(arguments, dict):
        raise _UnreadableError(f'expected a JSON object as "arguments", got {type(arguments).__name__}')
    return arguments


def _render_call(name: str, arguments: str) -> str:
    try:
        value: Any = json.loads(arguments or "{}")
    except ValueError:
        value = arguments
    return f"<tool_call>{json.dumps({'name': name, 'arguments': value}, ensure_ascii=False)}</tool_call>"
