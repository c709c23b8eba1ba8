"""Tokens for supervised learning: render a conversation with the chat template, with loss on the model's text."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hermes_atropos.compat import BaseEnvConfig
from hermes_atropos.config import HermesAgentEnvConfig
from hermes_atropos.groups.sequences import Item
from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.tokens import IGNORED

logger = logging.getLogger(__name__)

# An atomic match through a look-ahead, so that a text of `<thinkthink…` is scanned in one pass.
_OPENING: Final = r"(?:<(?=[^<>\s/]*think)[^<>\s/]*+>|\[THINK\]|<\|channel>thought)"
_CLOSING: Final = r"(?:<[^<>\s/]*+/(?=[^<>\s/]*think)[^<>\s/]*+>|<\|END_THINKING\|>|\[/THINK\]|<channel\|>)"
# The opening mark may already be in the prompt, or the template writes none.
_EMPTY_REASONING: Final = re.compile(rf"\s*(?:{_OPENING}\s*)?{_CLOSING}", re.IGNORECASE)
_SPACE: Final = re.compile(r"\s*")
_BEGINS_WITH_MARK: Final = re.compile(rf"\s*(?:{_OPENING}|{_CLOSING})", re.IGNORECASE)


class SftTokens:
    """Adds tokens and masks to rollouts without recorded tokens.

    They are the template's tokens, not sampled ones: fit for supervised learning, never for a policy gradient, and the
    items stay marked as not trainable. Without a tokenizer, or if its template does not support the conversation, the
    item keeps only its messages and the reason.
    """

    def __init__(self, config: HermesAgentEnvConfig, load: Callable[[], Any]) -> None:
        self._load = load
        # The default tokenizer would have to be downloaded, which the user did not request.
        self._is_named = config.tokenizer_name != BaseEnvConfig.model_fields["tokenizer_name"].default
        self._problem = "" if self._is_named else "no tokenizer_name"
        self._loading = asyncio.Lock()
        self._tokenizer: Any = None

    async def fill(self, item: Item, tools: Sequence[Mapping[str, Any]] = ()) -> Item:
        """Return the item with tokens and masks if possible."""
        tokenizer = await self._load_once()
        if tokenizer is None:
            return _without(item, self._problem)
        try:
            tokens, masks = await asyncio.to_thread(assistant_only, tokenizer, item["messages"], tools)
        except Exception as error:  # noqa: BLE001 - a template is a program of somebody else's; it may raise anything
            return _without(item, f"the chat template cannot render it: {error}")
        return {**item, "tokens": tokens, "masks": masks}

    async def _load_once(self) -> Any:
        async with self._loading:
            if self._tokenizer is None and not self._problem:
                try:
                    self._tokenizer = await asyncio.to_thread(self._load)
                except ConfigError as error:
                    self._problem = error.message
                    logger.warning("conversations are written without tokens: %s", error.message)
        return self._tokenizer


def assistant_only(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
) -> tuple[list[int], list[int]]:
    """Return tokens and masks of a conversation; raise `ValueError` if the template rewrites an earlier turn.

    An empty block of reasoning that the template puts before a turn has no loss: the model never wrote it.
    """
    rendered = [_for_template(message) for message in messages]

    def text(count: int, *, is_prompt: bool) -> str:
        return str(
            tokenizer.apply_chat_template(
                rendered[:count], tools=list(tools) or None, tokenize=False, add_generation_prompt=is_prompt
            )
        )

    full = text(len(rendered), is_prompt=False)
    spans = []
    for index, message in enumerate(rendered):
        if message["role"] != "assistant":
            continue
        before, after = text(index, is_prompt=True), text(index + 1, is_prompt=False)
        if not (after.startswith(before) and full.startswith(after.rstrip())):
            raise ValueError(f"it writes turn {index} differently in the whole conversation")
        begin = len(before) + _unwritten(message, after[len(before) :])
        spans.append((begin, len(after.rstrip())))  # text after a turn's end belongs to the next turn's header
    encoded = tokenizer(full, add_special_tokens=False, return_offsets_mapping=True)
    pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    tokens = [int(token) for token in encoded["input_ids"]]
    return tokens, [int(token) if _is_within(offsets, spans) else IGNORED for token, offsets in pairs]


def _unwritten(message: Mapping[str, Any], turn: str) -> int:
    """Return the length of the template's empty reasoning block at the start of a turn."""
    content = str(message["content"])
    block = _EMPTY_REASONING.match(turn)
    if block is None or _BEGINS_WITH_MARK.match(content):
        return 0
    return block.end() + _space_before(content, turn[block.end() :])


def _space_before(content: str, rendered: str) -> int:
    """Return the length of the template's white space before a content, which may start with the model's own.

    If the template changes the content, only newlines count as the template's.
    """
    space = _SPACE.match(rendered)
    assert space is not None
    if not content:
        return space.end()
    text = content.rstrip()  # templates strip the end
    begins = (count for count in range(space.end() + 1) if text and rendered.startswith(text, count))
    return next(begins, len(rendered) - len(rendered.lstrip("\n")))


def _is_within(offsets: Sequence[int], spans: Sequence[tuple[int, int]]) -> bool:
    start, end = offsets
    return start < end and any(low <= start and end <= high for low, high in spans)


def _for_template(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message in the templates' form: arguments of calls as objects, if their text is a JSON object."""
    calls = message.get("tool_calls")
    made = {**message, "content": message.get("content") or ""}
    if calls:
        made["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": _parse_arguments(call["function"]["arguments"])}}
            for call in calls
        ]
    return made


def _parse_arguments(arguments: Any) -> Any:
    try:
        value = json.loads(arguments)
    except (TypeError, ValueError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _without(item: Item, why: str) -> Item:
    return {**item, "overrides": {**(item.get("overrides") or {}), "without_tokens": why}}
