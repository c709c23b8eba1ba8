"""Log the exchanges between a client and a model server as lines of JSON.

The log is independent evidence for a check of a run's samples. So it is read from the bytes themselves and shares no
code with the clients, and unreadable data is logged as empty, never as an error.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

_UNREADABLE: Final = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError, zlib.error)

Sampled: TypeAlias = tuple[list[int], list[float | None], str | None]
"""Ids, logprobs and finish reason of one completion."""


@dataclass(kw_only=True)
class Exchange:
    """One request and its answer; `status` is None if there was no answer."""

    method: str = "POST"
    path: str
    headers: Mapping[str, str]
    request: bytes
    status: int | None = None
    encoding: str = ""
    answer: bytearray = field(default_factory=bytearray)
    complete: bool = False
    aborted: bool = False
    logged: bool = False

    def lines(self) -> list[dict[str, Any]]:
        """Return a line per completion: without ids if none arrived; no line for a request that samples nothing."""
        body = _object(self.request)
        protocol = _protocol(self.path, body)
        if protocol is None or self.method != "POST":
            return []
        line: dict[str, Any] = {
            "protocol": protocol,
            "request_id": request_id(self.headers, body),
            "rollout_id": unquote(self.headers.get("X-Hermes-Rollout-Id", "")),
            "prompt_ids": _prompt(protocol, body),
            "sampling": _sampling(protocol, body),
            "ids": [],
            "logprobs": [],
            "finish_reason": None,
            "status": self.status,
            "aborted": self.aborted,
        }
        completions = self._completions(protocol) or [([], [], None)]
        return [{**line, "ids": i, "logprobs": p, "finish_reason": finish} for i, p, finish in completions]

    def _completions(self, protocol: str) -> list[Sampled]:
        if self.status != 200 or not self.complete:
            return []
        try:
            return list(_READERS[protocol](_values(_plain(bytes(self.answer), self.encoding))))
        except _UNREADABLE:
            return []


def request_id(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """Return a request's id: from the header, or from the body under either of its names."""
    found = headers.get("X-Request-Id") or body.get("request_id") or body.get("rid")
    return found if isinstance(found, str) else ""


def aborted_ids(path: str, body: bytes) -> list[str]:
    """Return the ids in an abort call, without the affixes of servers and clients."""
    data = _object(body)
    if path.endswith("/abort_requests"):
        named = data.get("request_ids")
        listed = named if isinstance(named, list) else []
    elif path.endswith("/abort_request"):
        listed = [data.get("rid")]
    else:
        return []
    return [one.removeprefix("generate-tokens-").removesuffix("#") for one in listed if isinstance(one, str)]


def _protocol(path: str, body: Mapping[str, Any]) -> str | None:
    path = path.partition("?")[0].rstrip("/")
    if path.endswith("/inference/v1/generate"):
        return "vllm"
    if path.endswith("/chat/completions"):
        return "chat"
    if path.endswith("/generate"):
        return "atropos" if isinstance(body.get("prompt"), dict) else "sglang"
    return None


def _prompt(protocol: str, body: Mapping[str, Any]) -> list[int]:
    prompt = body.get("prompt")
    found = {
        "vllm": body.get("token_ids"),
        "sglang": body.get("input_ids"),
        "atropos": prompt.get("prompt_token_ids") if isinstance(prompt, dict) else None,
    }.get(protocol)
    return found if isinstance(found, list) else []


def _sampling(protocol: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling parameters as the server read them; Atropos has them next to the prompt."""
    found = body.get("sampling_params") if protocol in {"vllm", "sglang"} else body
    left = {"prompt", "messages", "tools", "stream", "model"}
    return {name: value for name, value in found.items() if name not in left} if isinstance(found, dict) else {}


def _object(body: bytes) -> dict[str, Any]:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _plain(body: bytes, encoding: str) -> bytes:
    """Return the body without its `Content-Encoding`; unknown encodings cannot be read."""
    if encoding in {"", "identity"}:
        return body
    if encoding in {"gzip", "deflate"}:
        return zlib.decompress(body, zlib.MAX_WBITS | 32)
    raise ValueError(encoding)


def _values(body: bytes) -> list[Any]:
    """Return the JSON value of a body, or the values of a stream of events."""
    if not body.startswith(b"data:"):
        return [json.loads(body)]
    texts = [line[5:].strip() for line in body.splitlines() if line.startswith(b"data:")]
    return [json.loads(text) for text in texts if text != b"[DONE]"]


def _read_choices(values: list[Any]) -> Iterator[Sampled]:
    """Read vLLM's and OpenAI's form: one answer, or events that each hold a part of each choice."""
    found: dict[int, Sampled] = {}
    for choice in (choice for value in values for choice in value["choices"]):
        ids, logprobs, _ = found.setdefault(choice.get("index", 0), ([], [], None))
        ids += choice.get("token_ids") or []
        logprobs += [entry.get("logprob") for entry in (choice.get("logprobs") or {}).get("content") or []]
        finish = choice.get("finish_reason") or found[choice.get("index", 0)][2]
        found[choice.get("index", 0)] = (ids, logprobs, finish)
    yield from found.values()


def _read_sglang(values: list[Any]) -> Iterator[Sampled]:
    """Read SGLang's form; each event of a stream holds everything so far."""
    for answer in values[-1] if isinstance(values[-1], list) else values[-1:]:
        meta = answer["meta_info"]
        pairs = meta.get("output_token_logprobs") or []
        finish = meta.get("finish_reason")
        kind = finish.get("type") if isinstance(finish, dict) else finish
        if pairs:
            yield [pair[1] for pair in pairs], [pair[0] for pair in pairs], kind
        else:
            yield list(answer.get("output_ids") or []), [], kind


def _read_atropos(values: list[Any]) -> Iterator[Sampled]:
    answer = values[-1]
    for ids, entries, finish in zip(answer["token_ids"], answer["logprobs"], answer["finish_reasons"], strict=True):
        yield ids, [entry[0].get(str(token)) for token, entry in zip(ids, entries, strict=False)], finish


_READERS: Final = {
    "vllm": _read_choices,
    "chat": _read_choices,
    "sglang": _read_sglang,
    "atropos": _read_atropos,
}
