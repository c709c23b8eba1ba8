"""OpenAI's gpt-oss: Harmony, in which every message has a header, including the reasoning and the answer.

`<|start|>assistant<|channel|>analysis<|message|>…<|end|>` is reasoning; `commentary` and `final` are text. A header
with a recipient, `to=functions.f` before or after the channel, makes the message a call, which ends with `<|call|>`. A
turn usually begins inside its first header, because the prompt ends with `<|start|>assistant`. The source is the
format's documentation and the model's chat template.

Headers and end marks are not content: they belong to the segment of the reasoning or the call next to them. If there is
none, as in a message with only an answer, they form a segment of kind "reasoning" without reasoning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Final

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.engine.scanning.closed_blocks import ClosedBlocks
from hermes_parsers.engine.scanning.scan import Draft, Scan, Wait
from hermes_parsers.engine.scanning.stream import ScanStream
from hermes_parsers.families.special_tokens.harmony_stream import (
    CHANNEL,
    CUT_HEAD,
    ENDS,
    HEAD,
    MESSAGE,
    PATTERN,
    RECIPIENT,
    START,
    USUAL_HEAD,
    HarmonyStream,
)
from hermes_parsers.families.special_tokens.named_json import NamedJsonParser

_MESSAGES: Final = ClosedBlocks((START, CHANNEL), ENDS)


class HarmonyParser(NamedJsonParser):
    """Both orders of a call's header, with and without a constraint, on any channel."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|return|>", "<|call|>")
    stream_type: ClassVar[type[ScanStream]] = HarmonyStream
    openers: ClassVar[tuple[str, ...]] = ENDS
    pattern: ClassVar[str] = PATTERN
    head: ClassVar[str] = HEAD
    usual_head: ClassVar[str] = USUAL_HEAD
    cut_head: ClassVar[str] = CUT_HEAD
    closers: ClassVar[tuple[str, ...]] = ENDS
    breaks: ClassVar[tuple[str, ...]] = (START, CHANNEL)
    is_sure: ClassVar[bool] = True
    reasoning_tags: ClassVar[tuple[str, str] | None] = None

    def block_marks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return nothing: the headers show what a message is."""
        return (), ()

    def read(self, scan: Scan, at: int) -> Wait:
        """Read a call, and the text between it and the end of its message."""
        end = yield from super().read(scan, at)
        return (yield from _MESSAGES.close(scan, end)) if end >= 0 else -1

    def draft(self, scan: Scan, head: re.Match[str], end: int) -> Draft:  # noqa: ARG002 - the base's signature
        """Return the recipient's name; built-in tools of the model have no `functions.` prefix."""
        if head.re.groups > 1:
            recipient = head[2] or head[3]
        else:
            found = RECIPIENT(head[1])
            recipient = found[1] if found else ""
        return Draft(head.start(1), end, name=recipient.removeprefix("functions."))

    def finish(self, scan: Scan, draft: Draft) -> Draft:  # noqa: ARG002 - the base's signature
        """Report a recipient that is only the namespace."""
        if draft.name:
            return draft
        draft.name = None
        return draft.fail(AttemptStatus.MISSING_NAME, "the recipient is 'functions.' without a name")

    def write_turn(self, reasoning: str, content: str, calls: Sequence[WrittenCall]) -> str:
        """Write the messages as they follow a prompt that ends with `<|start|>assistant`."""
        messages = [f"{CHANNEL}analysis{MESSAGE}{reasoning}<|end|>"] if reasoning else []
        if content:
            messages.append(f"{CHANNEL}{'commentary' if calls else 'final'}{MESSAGE}{content}<|end|>")
        messages += [self.write_call(call, index) for index, call in enumerate(calls)]
        return f"{START}assistant".join(messages)

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write a call with its recipient after the role, as the chat template does."""
        return f" to=functions.{call.name}{CHANNEL}commentary json{MESSAGE}{call.arguments}{ENDS[0]}"
