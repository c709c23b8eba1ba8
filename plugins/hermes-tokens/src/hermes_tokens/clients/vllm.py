"""A client for vLLM's token-in, token-out endpoint, which `vllm serve --enable-scale-out` offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final, final

from hermes_core.contracts.model import encode
from hermes_models import RequestRefusal, check_listed
from hermes_tokens.clients.generate import HttpGenerateClient, request_body
from hermes_tokens.clients.generate_response import (
    entries,
    member,
    members,
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
from hermes_tokens.generation import Generated, GenerateRequest

_ABORT: Final = "/inference/v1/abort_requests"
_FLAG_HINT: Final = "restart the server with it: vllm serve MODEL --enable-scale-out"
_MISSING: Final = (
    "sampling_params.logprobs=0 was sent and ignored; vLLM 0.33 supports it, so check what rewrites requests in between"
)
_PARAMETERS: Final = (
    "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids",
    "ignore_eos", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "allowed_token_ids",
    "bad_words", "include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens", "detokenize",
    "structured_outputs", "thinking_token_budget", "repetition_detection", "extra_args",
)  # fmt: skip


@final
class VllmGenerateClient(HttpGenerateClient):
    """A client of `POST /inference/v1/generate` of a stock vLLM server."""

    protocol: ClassVar[str] = "vllm"
    path: ClassVar[str] = "/inference/v1/generate"
    names: ClassVar[SamplingNames] = SamplingNames(
        protocol="vllm",
        parameters={name: name for name in _PARAMETERS},
        fields={"priority": "priority", "cache_salt": "cache_salt"},
    )

    def _body(
        self, request: GenerateRequest, request_id: str, parameters: Mapping[str, Any], fields: Mapping[str, Any]
    ) -> bytes:
        # No client reads the text, so the server need not detokenize, except to match stop strings.
        wanted = {"logprobs": 0, **({} if "stop" in parameters else {"detokenize": False}), **parameters}
        head: dict[str, Any] = {"request_id": request_id, "sampling_params": wanted, **fields}
        if self.model_name:
            head["model"] = self.model_name
        if self.echo_prompt:
            head["return_token_ids"] = True
        return request_body(head, b'"token_ids":', request)

    def _read(self, data: Any) -> Generated:
        choice = only(member(data, "choices", "the answer"), "choices")
        finish = read_finish(member(choice, "finish_reason", "choices[0]"), "finish_reason")
        ids = read_ids(choice.get("token_ids"), "token_ids", finish=finish)
        stop = choice.get("stop_reason")
        usage = data.get("usage") or {}
        return Generated(
            ids=ids,
            logprobs=_logprobs(choice.get("logprobs"), ids),
            finish_reason=finish,
            stop_id=stop if type(stop) is int else None,
            weight_versions=read_weight_spans(choice.get("weight_versions"), len(ids), "weight_versions"),
            prompt_echo=read_echo(data.get("prompt_token_ids"), "prompt_token_ids"),
            usage=read_usage(member(usage, "prompt_tokens", "usage"), usage.get("completion_tokens")),
        )

    def _abort_request(self, request_id: str) -> tuple[str, bytes]:
        # The server prefixes the request id; which of the two forms an abort needs depends on the version.
        return _ABORT, encode({"request_ids": [f"generate-tokens-{request_id}", request_id]})

    def _explain(self, refusal: RequestRefusal, status: int) -> RequestRefusal:
        if status == 403 and "scale-out" in refusal.message:
            return replace(refusal, hint=_FLAG_HINT)
        if status == 404 and "does not exist" in refusal.message:
            return replace(refusal, hint=f"--model-name NAME; curl {self.address.shown}/v1/models lists the names")
        if status in {404, 405}:
            return replace(refusal, hint=f"{refusal.hint}; a vLLM older than 0.33 may not have it; {_FLAG_HINT}")
        return refusal

    async def _check_endpoint(self) -> None:
        """Check by an empty abort: one flag enables this path and the sampling one, and nothing is logged or run."""
        outcome = await self._probe("POST", _ABORT, encode({"request_ids": []}))
        if outcome.status in {401, 403}:
            raise self._explain(self._http.refusal(*outcome), outcome.status).error()
        if outcome.status != 200:
            await super()._check_endpoint()
        if self.model_name:
            models, allow = self.address.at("/v1/models"), self.allow_unlisted_model
            await check_listed(self._http, models, self.model_name, allow_unlisted=allow)


def _logprobs(value: object, ids: tuple[int, ...]) -> tuple[float | None, ...]:
    content = None if value is None else member(value, "content", "logprobs")
    listed = entries(content, len(ids), "logprobs.content", missing=_MISSING)
    named, logprobs = members(listed, ("token_id", "logprob"), "logprobs.content")
    same_tokens(ids, named, "logprobs.content")
    return read_logprobs(logprobs, "logprobs.content")
