"""vLLM's tool parsers and SGLang's function-call detectors, called in place the way their servers do.

Both are called through the objects their servers build per request: vLLM's `ParserManager.get_parser` (whose `parse`
and `parse_delta` call the tool parser's `extract_tool_calls` and `extract_tool_calls_streaming`), and SGLang's
`FunctionCallParser` and `ReasoningParser`. The tokenizer is made of the tokens of the texts and the model's marks: the
parsers only look up ids in it. Standard library and the peers only; every import of a peer is inside a function.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.parsers.peer_names import FAMILIES

Timed = tuple[Callable[[], object], Callable[[], object]]


class Missing(Exception):  # noqa: N818 - it is an answer, not a failure
    """A peer is not available; the message says why."""


def installed(peer: str) -> str:
    """Return the version of a peer in this environment, or raise Missing."""
    try:
        return version(peer)
    except PackageNotFoundError:
        raise Missing(f"{peer} is not installed in {sys.prefix}") from None


def _load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Missing(f"{name} cannot be imported: {error}") from error


class VLLM:
    """A family's parser as vLLM's chat endpoint builds it, for one tokenizer."""

    def __init__(self, family: str, tokens: Iterable[str], *, reasoning: bool = False) -> None:
        installed("vllm")
        names = FAMILIES[family]
        self._protocol = _load("vllm.entrypoints.openai.chat_completion.protocol")
        self._tokenizer = _tokenizer(names.tokens, tokens)
        self._ids: dict[str, int] = self._tokenizer.get_vocab()
        manager = _load("vllm.parser.parser_manager").ParserManager
        self._parser_class = manager.get_parser(
            tool_parser_name=names.vllm,
            reasoning_parser_name=names.vllm_reasoning if reasoning else None,
            enable_auto_tools=True,
            tokenizer=self._tokenizer,
        )

    def request(self, tools: Sequence[Any]) -> Any:
        """Return a request with these tools."""
        messages = [{"role": "user", "content": "Go on."}]
        return self._protocol.ChatCompletionRequest(model="m", messages=messages, tools=tools, tool_choice="auto")

    def parser(self, request: Any) -> Any:
        """Return a parser for one request; thinking is switched on, as the texts with reasoning need it."""
        thinking = {"thinking": True, "enable_thinking": True}
        return self._parser_class(self._tokenizer, request.tools, chat_template_kwargs=thinking)

    def whole(self, text: str, tools: Sequence[Any]) -> dict[str, Any]:
        """Parse a complete text."""
        request = self.request(tools)
        _, content, calls = self.parser(request).parse(text, request, enable_auto_tools=True)
        return {"content": content, "calls": [[call.name, call.arguments] for call in calls or ()]}

    def streamed(self, deltas: Sequence[Sequence[str]], tools: Sequence[Any]) -> dict[str, Any]:
        """Parse the deltas one after the other and put the pieces together as a client would."""
        request = self.request(tools)
        parser = self.parser(request)
        content: list[str] = []
        calls: dict[int, list[str]] = {}
        for number, delta in enumerate(deltas, 1):
            message = parser.parse_delta(
                "".join(delta),
                [self._ids[token] for token in delta],
                request,
                prompt_token_ids=[0],
                finished=number == len(deltas),
            )
            if message is None:
                continue
            content.append(message.content or "")
            for call in message.tool_calls or ():
                entry = calls.setdefault(call.index, ["", ""])
                entry[0] += (call.function and call.function.name) or ""
                entry[1] += (call.function and call.function.arguments) or ""
        return {"content": "".join(content), "calls": [calls[index] for index in sorted(calls)]}

    def timed(self, text: str, tools: Sequence[Any]) -> Timed:
        """Return what parses on a ready tool parser, and what builds one first."""
        request = self.request(tools)
        ready = self.parser(request).tool_parser
        return lambda: ready.extract_tool_calls(text, request), lambda: self.parser(request).parse(
            text, request, enable_auto_tools=True
        )


class SGLang:
    """A family's detector as SGLang's chat endpoint builds it."""

    def __init__(self, family: str, _tokens: Iterable[str], *, reasoning: bool = False) -> None:
        installed("sglang")
        names = FAMILIES[family]
        self._name = names.sglang
        self._reasoning = names.sglang_reasoning if reasoning or names.channels else None
        self._protocol = _load("sglang.srt.entrypoints.openai.protocol")
        self._module = _load("sglang.srt.function_call.function_call_parser")

    def parser(self, tools: Sequence[Any]) -> Any:
        """Return a parser for one request."""
        typed = [self._protocol.Tool.model_validate(tool) for tool in tools]
        return self._module.FunctionCallParser(typed, self._name)

    def splitter(self, *, stream: bool) -> Any:
        """Return a parser that takes the reasoning off first, or None."""
        if self._reasoning is None:
            return None
        module = _load("sglang.srt.parser.reasoning_parser")
        return module.ReasoningParser(self._reasoning, stream_reasoning=stream, tool_call_parser_active=True)

    def whole(self, text: str, tools: Sequence[Any]) -> dict[str, Any]:
        """Parse a complete text."""
        if splitter := self.splitter(stream=False):
            text = splitter.parse_non_stream(text)[1] or ""
        parser = self.parser(tools)
        if not parser.has_tool_call(text):
            return {"content": text, "calls": []}
        content, calls = parser.parse_non_stream(text)
        return {"content": content, "calls": [[call.name, call.parameters] for call in calls]}

    def streamed(self, deltas: Sequence[Sequence[str]], tools: Sequence[Any]) -> dict[str, Any]:
        """Parse the deltas one after the other and put the pieces together as a client would."""
        parser = self.parser(tools)
        content: list[str] = []
        calls: dict[int, list[str]] = {}
        for delta in self._normal(deltas):
            text, items = parser.parse_stream_end() if delta is None else parser.parse_stream_chunk(delta)
            content.append(text or "")
            for item in items:
                entry = calls.setdefault(item.tool_index, ["", ""])
                entry[0] += item.name or ""
                entry[1] += item.parameters or ""
        _add_unstreamed(parser.detector, calls)
        return {"content": "".join(content), "calls": [calls[index] for index in sorted(calls)]}

    def _normal(self, deltas: Sequence[Sequence[str]]) -> Iterator[str | None]:
        """Yield the deltas without reasoning, and None for the end."""
        splitter = self.splitter(stream=True)
        for delta in deltas:
            text = "".join(delta)
            yield (splitter.parse_stream_chunk(text)[1] or "") if splitter else text
        if splitter:
            yield splitter.parse_stream_end()[1] or ""
        yield None

    def timed(self, text: str, tools: Sequence[Any]) -> Timed:
        """Return what parses on a ready parser, and what builds one first."""
        ready = self.parser(tools)
        return lambda: ready.parse_non_stream(text), lambda: self.parser(tools).parse_non_stream(text)


def _add_unstreamed(detector: Any, calls: dict[int, list[str]]) -> None:
    """Add the arguments the server sends at the end: what was parsed of the last call and not streamed."""
    parsed, streamed = detector.prev_tool_call_arr, detector.streamed_args_for_tool
    last = len(parsed) - 1
    if not parsed or last >= len(streamed):
        return
    arguments = parsed[last].get("arguments", {})
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    if text.startswith(streamed[last]) and last in calls:
        calls[last][1] += text[len(streamed[last]) :]


def _tokenizer(special: Sequence[str], tokens: Iterable[str]) -> Any:
    """Return a tokenizer with these tokens; marks are whole tokens, but not "special", which some engines leave out."""
    tokenizers = _load("tokenizers")
    words = ["<unk>", *sorted({*tokens} - {*special})]
    model = tokenizers.models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>")
    fast = _load("transformers").PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(model), unk_token="<unk>"
    )
    fast.add_tokens(list(special), special_tokens=False)
    return fast
