"""A client for SGLang's own `/generate`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, final

from hermes_core.contracts.errors import ModelReplyError
from hermes_core.contracts.model import encode
from hermes_core.contracts.tokens import WeightSpan
from hermes_tokens.clients.generate import HttpGenerateClient, request_body
from hermes_tokens.clients.generate_response import (
    entries,
    member,
    only,
    read_echo,
    read_finish,
    read_ids,
    read_logprobs,
    read_usage,
    read_weight_spans,
    same_tokens,
)
from hermes_tokens.clients.sampling import SamplingNames
from hermes_tokens.generation import FinishReason, Generated, GenerateRequest

_MISSING: Final = (
    "return_logprob was sent and ignored; check what rewrites requests in between, or whether the server's "
    "speculative mode lacks logprobs"
)
_SAME: Final = (
    "temperature", "top_p", "top_k", "min_p", "stop", "stop_token_ids", "stop_regex", "ignore_eos", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "logit_bias", "skip_special_tokens", "spaces_between_special_tokens",
    "no_stop_trim", "json_schema", "regex", "ebnf", "structural_tag", "custom_params",
)  # fmt: skip
_RENAMED: Final = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens", "seed": "sampling_seed"}
_FIELDS: Final = ("priority", "lora_path", "extra_key", "cache_salt")
# `str()` of a finish reason, sent by old versions.
_OLD_FINISH: Final = re.compile(r"FINISH(?:ED)?_(MATCHED_\w+|LENGTH|ABORT)(?::\s*(.*))?", re.DOTALL)


@final
class SglangGenerateClient(HttpGenerateClient):
    """A client of an SGLang server's `POST /generate`, with ids instead of text."""

    protocol: ClassVar[str] = "sglang"
    path: ClassVar[str] = "/generate"
    names: ClassVar[SamplingNames] = SamplingNames(
        protocol="sglang",
        parameters={**{name: name for name in _SAME}, **_RENAMED},
        fields={name: name for name in _FIELDS},
    )

    def _body(
        self, request: GenerateRequest, request_id: str, parameters: Mapping[str, Any], fields: Mapping[str, Any]
    ) -> bytes:
        head: dict[str, Any] = {
            "rid": _rid(request_id),
            "sampling_params": parameters,
            "return_logprob": True,
            "return_text_in_logprobs": False,
            **fields,
        }
        if self.echo_prompt:
            head["return_prompt_token_ids"] = True
        return request_body(head, b'"input_ids":', request)

    def _read(self, data: Any) -> Generated:
        answer = only(data, "the answer") if isinstance(data, list) else data
        meta = member(answer, "meta_info", "the answer")
        finish, stop = _finish(member(meta, "finish_reason", "meta_info"))
        ids, logprobs = _tokens(answer.get("output_ids"), meta, finish)
        echo = answer.get("prompt_token_ids", meta.get("prompt_token_ids"))
        return Generated(
            ids=ids,
            logprobs=logprobs,
            finish_reason=finish,
            stop_id=stop,
            weight_versions=_weights(meta, len(ids)),
            prompt_echo=read_echo(echo, "prompt_token_ids"),
            usage=read_usage(meta.get("prompt_tokens"), meta.get("completion_tokens")),
        )

    def _abort_request(self, request_id: str) -> tuple[str, bytes]:
        return "/abort_request", encode({"rid": _rid(request_id)})


def _rid(request_id: str) -> str:
    """Return an id that is not a prefix of another: SGLang aborts every request whose id starts with the given one."""
    return f"{request_id}#"


def _finish(value: object) -> tuple[FinishReason, int | None]:
    """Return reason and stop id from the object of new versions or the text of old ones."""
    if isinstance(value, Mapping):
        matched = value.get("matched")
        stop = matched[-1] if isinstance(matched, list) and matched else matched
        return read_finish(value.get("type"), "finish_reason.type"), stop if type(stop) is int else None
    old = _OLD_FINISH.fullmatch(value) if isinstance(value, str) else None
    if old is None:
        return read_finish(value, "finish_reason"), None
    kind, rest = old[1].lower(), old[2] or ""
    if kind in {"length", "abort"}:
        return read_finish(kind, "finish_reason"), None
    return "stop", int(rest) if kind == "matched_token" and rest.isascii() and rest.isdigit() else None


def _tokens(
    output_ids: object, meta: Mapping[str, Any], finish: FinishReason
) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """Read ids and logprobs from the pairs, and compare them with the other fields about the ids."""
    pairs, counted = meta.get("output_token_logprobs"), meta.get("completion_tokens")
    wanted = counted if type(counted) is int else len(output_ids) if isinstance(output_ids, list) else None
    if wanted is None:
        wanted = len(pairs) if isinstance(pairs, list) and pairs else int(finish != "abort")
    listed = entries(pairs, wanted, "output_token_logprobs", missing=_MISSING)
    if not all(isinstance(pair, list) and len(pair) >= 2 for pair in listed):
        raise ModelReplyError("expected [logprob, token id, text] in output_token_logprobs, got something else")
    ids = read_ids([pair[1] for pair in listed], "output_token_logprobs", finish=finish)
    _compare(output_ids, ids)
    return ids, read_logprobs([pair[0] for pair in listed], "output_token_logprobs")


def _compare(output_ids: object, ids: Sequence[int]) -> None:
    """Compare `output_ids` of new versions with the pairs; the stop token may be missing in `output_ids`."""
    if not isinstance(output_ids, list):
        return
    if len(output_ids) not in {len(ids), len(ids) - 1}:
        raise ModelReplyError(
            f"expected as many output_ids as output_token_logprobs, got {len(output_ids)} and {len(ids)}"
        )
    same_tokens(output_ids, ids[: len(output_ids)], "output_token_logprobs")


def _weights(meta: Mapping[str, Any], count: int) -> tuple[WeightSpan, ...]:
    """Read spans; a single version covers all tokens, because servers without spans let requests finish first."""
    version = meta.get("weight_version")
    if meta.get("weight_versions") is None and isinstance(version, str) and count:
        return (WeightSpan(version=version, start=0, end=count),)
    return read_weight_spans(meta.get("weight_versions"), count, "weight_versions")
