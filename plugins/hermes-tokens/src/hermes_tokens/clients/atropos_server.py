"""A client for the vLLM server of Atropos' example trainer (`vllm_api_server.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, final

from hermes_core.contracts.errors import ModelReplyError
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
    same_tokens,
)
from hermes_tokens.clients.sampling import SamplingNames
from hermes_tokens.generation import Generated, GenerateRequest

_MISSING: Final = (
    "logprobs: 0 was sent and ignored; Atropos' example_trainer/vllm_api_server.py supports it, so check what "
    "rewrites requests in between"
)
_PARAMETERS: Final = (
    "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids",
    "ignore_eos", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "allowed_token_ids",
    "bad_words", "include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens", "extra_args",
)  # fmt: skip


@final
class AtroposGenerateClient(HttpGenerateClient):
    """A client of `POST /generate` of Atropos' server; sampling parameters are next to the prompt.

    A request can only be aborted by closing its connection, and the server always echoes the prompt.
    """

    protocol: ClassVar[str] = "atropos"
    path: ClassVar[str] = "/generate"
    names: ClassVar[SamplingNames] = SamplingNames(protocol="atropos", parameters={name: name for name in _PARAMETERS})

    def _body(
        self,
        request: GenerateRequest,
        request_id: str,  # noqa: ARG002 - the protocol has no place for it
        parameters: Mapping[str, Any],
        fields: Mapping[str, Any],
    ) -> bytes:
        head = {"logprobs": 0, **parameters, **fields}
        return request_body(head, b'"prompt":{"prompt_token_ids":', request, b"}")

    def _read(self, data: Any) -> Generated:
        finish = read_finish(only(member(data, "finish_reasons", "the answer"), "finish_reasons"), "finish_reasons[0]")
        if data.get("logprobs") is None:
            # This server omits ids and logprobs together.
            raise ModelReplyError("expected token ids and logprobs, got neither", hint=_MISSING)
        ids = read_ids(only(data.get("token_ids"), "token_ids"), "token_ids[0]", finish=finish)
        echo = read_echo(data.get("prompt_token_ids"), "prompt_token_ids")
        return Generated(
            ids=ids,
            logprobs=_logprobs(only(data["logprobs"], "logprobs"), ids),
            finish_reason=finish,
            prompt_echo=echo,
            usage=read_usage(None if echo is None else len(echo), len(ids)),
        )


def _logprobs(value: object, ids: tuple[int, ...]) -> tuple[float | None, ...]:
    """Read `[[{"<token id>": logprob, …}], …]`; the sampled token is one of each object's keys."""
    listed = [_candidates(entry) for entry in entries(value, len(ids), "logprobs[0]", missing=_MISSING)]
    same_tokens(ids, [_candidate_for(token, found) for token, found in zip(ids, listed, strict=True)], "logprobs[0]")
    return read_logprobs([found[str(token)] for token, found in zip(ids, listed, strict=True)], "logprobs[0]")


def _candidates(entry: object) -> Mapping[str, Any]:
    found = entry[0] if isinstance(entry, list) and len(entry) == 1 else entry
    if not isinstance(found, Mapping):
        raise ModelReplyError(f"expected logprobs[0] to hold an object for each token, got {found!r:.60}")
    return found


def _candidate_for(token: int, candidates: Mapping[str, Any]) -> object:
    """Return the token if it is among the candidates, or else a candidate in its place."""
    if str(token) in candidates:
        return token
    first = next(iter(candidates), None)
    return int(first) if first is not None and first.isascii() and first.isdigit() else first
