"""Find how a template marks reasoning: what opens it and what closes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from hermes_core.contracts.model import Message
from hermes_tokens.append_rule.placeholders import BODY, common_start, slot
from hermes_tokens.append_rule.stub_rendering import StubRenderer
from hermes_tokens.append_rule.template_skeleton import ContextSpan, Scaffold
from hermes_tokens.chat_template.template import TemplateError
from hermes_tokens.tokenizer import ChatTokenizer

_USER: Final[Message] = {"role": "user", "content": "Hello"}
_TAG: Final = re.compile(r"<[^<>\s]+>|\[[A-Z_/]+\]")
# The last tag of a text, optionally followed by a word such as Gemma's `thought`.
_LAST_TAG: Final = re.compile(r"(?:<[^<>\s]+>|\[[A-Z_]+\])\w*(?=\s*\Z)")
_OPENED: Final = re.compile(r"(?:<(?P<tag>(?:\w+:)?think(?:ing)?)>|\[(?P<word>THINK)\])\s*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """The marks of reasoning: `opening` and `closing` (such as `<think>`) are "" for a separate message or none.

    `marker` is the template's text between the reasoning and what follows.
    """

    opening: str = ""
    closing: str = ""
    marker: str = ""

    @classmethod
    def of(cls, renderer: StubRenderer) -> Reasoning:
        """Find the marks in the rendering of a turn with reasoning."""
        prompt = _prompt(renderer)
        opened = _OPENED.search(prompt)
        if opened:
            closing = f"</{opened['tag']}>" if opened["tag"] else f"[/{opened['word']}]"
            known = cls(opening=opened.group().strip(), closing=closing, marker=f"\n{closing}\n\n")
        else:
            known = cls()
        parts = _probe(renderer)
        return known if parts is None else _read(*parts, prompt, known)

    def is_opened_by(self, text: str) -> bool:
        """Return whether a prompt ends with open reasoning."""
        return bool(self.opening) and text.rstrip().endswith(self.opening)

    def is_open(self, sampled: str, *, opened: bool) -> bool:
        """Return whether a sampled turn ended inside its reasoning; `opened`: the prompt had opened it."""
        if not self.opening:
            return False
        last_opening, last_closing = sampled.rfind(self.opening), sampled.rfind(self.closing)
        return last_opening > last_closing or (opened and last_closing < 0)

    def marker_spans(self, tokenizer: ChatTokenizer) -> tuple[ContextSpan, ...]:
        """Return the ids that close open reasoning."""
        return tuple(Scaffold(tokenizer, self.marker, treatments={}).spans(()))


def _prompt(renderer: StubRenderer) -> str:
    """Return the generation prompt."""
    try:
        text = renderer.render([_USER])
        return text[common_start(text, renderer.render([_USER], prompt=False)) :]
    except TemplateError:
        return ""


def _probe(renderer: StubRenderer) -> tuple[str, str] | None:
    """Return the texts before, between and after reasoning and answer; None if the template omits reasoning."""
    thought = slot(99998)
    answer: Message = {"role": "assistant", "reasoning_content": thought, "content": BODY}
    try:
        text = renderer.render([_USER, answer], prompt=False)
    except TemplateError:
        return None
    before, found, rest = text.partition(thought)
    between, answered, _ = rest.partition(BODY)
    return (before, between) if found and answered else None


def _read(before: str, between: str, prompt: str, known: Reasoning) -> Reasoning:
    opening, closing, header = _LAST_TAG.search(before), _TAG.search(between), _TAG.search(prompt)
    if opening is None or closing is None:
        return known
    if header is not None and header.group() in between:
        return Reasoning()
    return Reasoning(opening=opening.group(), closing=closing.group(), marker=between)
