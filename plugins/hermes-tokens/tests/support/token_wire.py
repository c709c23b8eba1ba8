"""The wire formats of three token-level servers, field by field after their own code, independent of the clients.

Fields that the real servers do not have are refused, also where a real one would only ignore them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """The result of a test's sampler; `weight_versions` as `{"version", "start", "end"}`, None for "default"."""

    ids: Sequence[int]
    logprobs: Sequence[float | None]
    finish_reason: str = "stop"
    stop_id: int | None = None
    weight_versions: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request as it was understood; `sampling` has OpenAI's names, `sent` those of the wire."""

    prompt: list[int]
    sampling: Mapping[str, Any]
    request_id: str
    logprobs: bool
    echo: bool
    sent: Mapping[str, Any] = field(default_factory=dict)


class RefusedError(Exception):
    """A request that the real server answers with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SAMPLING = _words(
    "n presence_penalty frequency_penalty repetition_penalty temperature top_p top_k min_p seed stop stop_token_ids "
    "ignore_eos max_tokens min_tokens logprobs prompt_logprobs detokenize skip_special_tokens "
    "spaces_between_special_tokens include_stop_str_in_output structured_outputs logit_bias allowed_token_ids "
    "extra_args bad_words thinking_token_budget repetition_detection"
)


@dataclass
class VllmWire:
    """vLLM 0.33; `tokens_only` is the server that refuses stop strings."""

    name: str = "vllm"
    path: str = "/inference/v1/generate"
    abort_path: str = "/inference/v1/abort_requests"
    refusal: int = 400
    tokens_only: bool = False
    fields: frozenset[str] = _words(
        "request_id token_ids sampling_params model cache_salt priority stream return_token_ids"
    )

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Asked:
        _check_known(body, self.fields, 400)
        sampling = _object(body.get("sampling_params"), "sampling_params", 400)
        _check_known(sampling, _SAMPLING, 400)
        if sampling.get("stop") and (self.tokens_only or sampling.get("detokenize") is False):
            raise RefusedError(400, "stop strings are not supported because detokenization is disabled")
        return Asked(
            prompt=_prompt(body.get("token_ids"), "token_ids"),
            sampling=sampling,
            request_id=headers.get("X-Request-Id") or body.get("request_id", ""),
            logprobs=sampling.get("logprobs") is not None,
            echo=bool(body.get("return_token_ids")),
            sent=dict(sampling),
        )

    def answer(self, asked: Asked, drawn: Sampled) -> dict[str, Any]:
        logprobs = {"content": [_vllm_entry(i, lp) for i, lp in zip(drawn.ids, drawn.logprobs, strict=True)]}
        choice = {
            "index": 0,
            "logprobs": logprobs if asked.logprobs else None,
            "finish_reason": drawn.finish_reason,
            "stop_reason": drawn.stop_id,
            "token_ids": list(drawn.ids),
            "routed_experts": None,
            "sampling_mask": None,
            "weight_versions": _spans(drawn),
        }
        return {
            "request_id": f"generate-tokens-{asked.request_id}",
            "model": "m",
            "created": 0,
            "usage": _usage(asked, drawn),
            "prompt_logprobs": None,
            "prompt_token_ids": asked.prompt if asked.echo else None,
            "kv_transfer_params": None,
            "output_mode": "tokens",
            "choices": [choice],
        }

    def aborted_ids(self, body: Mapping[str, Any]) -> list[str]:
        ids = body.get("request_ids")
        if ids is None:
            raise RefusedError(400, "Missing 'request_ids' in request body")
        # The engine knows a request under the prefixed id alone.
        return [one.removeprefix("generate-tokens-") for one in ids if one.startswith("generate-tokens-")]

    def logprob_list(self, answer: dict[str, Any]) -> list[Any]:
        return answer["choices"][0]["logprobs"]["content"]

    def without_logprobs(self, answer: dict[str, Any]) -> None:
        answer["choices"][0]["logprobs"] = None

    def without_ids(self, answer: dict[str, Any]) -> None:
        answer["choices"][0]["token_ids"] = None

    def with_other_ids(self, answer: dict[str, Any]) -> None:
        ids = answer["choices"][0]["token_ids"]
        ids[0] += 1

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": "BadRequestError", "param": None, "code": status}}


@dataclass
class SglangWire:
    """SGLang; `old` versions send the finish reason as text, one weight version and no `output_ids`."""

    name: str = "sglang"
    path: str = "/generate"
    abort_path: str = "/abort_request"
    refusal: int = 400
    old: bool = False
    fields: frozenset[str] = _words(
        "rid input_ids sampling_params return_logprob logprob_start_len top_logprobs_num return_text_in_logprobs "
        "stream priority lora_path extra_key cache_salt return_prompt_token_ids"
    )
    sampling: frozenset[str] = _words(
        "max_new_tokens stop stop_token_ids stop_regex temperature top_p top_k min_p frequency_penalty "
        "presence_penalty repetition_penalty min_new_tokens n json_schema regex ebnf structural_tag ignore_eos "
        "skip_special_tokens spaces_between_special_tokens no_stop_trim custom_params logit_bias sampling_seed"
    )
    names: Mapping[str, str] = field(
        default_factory=lambda: {
            "max_new_tokens": "max_tokens",
            "min_new_tokens": "min_tokens",
            "sampling_seed": "seed",
        }
    )

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Asked:
        _check_known(body, self.fields, 400)
        sampling = _object(body.get("sampling_params"), "sampling_params", 400)
        _check_known(sampling, self.sampling, 400)
        return Asked(
            prompt=_prompt(body.get("input_ids"), "input_ids"),
            sampling={self.names.get(name, name): value for name, value in sampling.items()},
            request_id=body.get("rid", ""),
            logprobs=bool(body.get("return_logprob")),
            echo=bool(body.get("return_prompt_token_ids")),
            sent=dict(sampling),
        )

    def answer(self, asked: Asked, drawn: Sampled) -> dict[str, Any]:
        usage = _usage(asked, drawn)
        meta = {
            "id": asked.request_id,
            "finish_reason": self._finish(drawn),
            "prompt_tokens": usage["prompt_tokens"],
            "completion_tokens": usage["completion_tokens"],
            "cached_tokens": 0,
            "e2e_latency": 0.1,
        }
        if asked.logprobs:
            meta["output_token_logprobs"] = [[lp, i, None] for i, lp in zip(drawn.ids, drawn.logprobs, strict=True)]
        if self.old:
            return {"text": "", "meta_info": {**meta, "weight_version": "default"}}
        spans = _spans(drawn)
        meta |= {"weight_versions": spans, "weight_version": spans[-1]["version"] if spans else "default"}
        answer = {"text": "", "output_ids": list(drawn.ids), "meta_info": meta}
        return answer | ({"prompt_token_ids": asked.prompt} if asked.echo else {})

    def _finish(self, drawn: Sampled) -> Any:
        kind = drawn.finish_reason
        if self.old:
            texts = {"stop": f"FINISH_MATCHED_TOKEN: {drawn.stop_id}", "length": f"FINISH_LENGTH: {len(drawn.ids)}"}
            return texts.get(kind, "FINISH_ABORT")
        details = {
            "stop": {"matched": drawn.stop_id},
            "length": {"length": len(drawn.ids)},
            "abort": {"message": "Aborted", "status_code": None, "err_type": None},
        }
        return {"type": kind, **details[kind]}

    def aborted_ids(self, body: Mapping[str, Any]) -> list[str]:
        if _check_known(body, frozenset({"rid", "abort_all"}), 422) and not isinstance(body.get("rid"), str):
            raise RefusedError(422, "rid")
        return [body["rid"]]

    def logprob_list(self, answer: dict[str, Any]) -> list[Any]:
        return answer["meta_info"]["output_token_logprobs"]

    def without_logprobs(self, answer: dict[str, Any]) -> None:
        answer["meta_info"].pop("output_token_logprobs", None)

    def without_ids(self, answer: dict[str, Any]) -> None:
        answer.pop("output_ids", None)
        self.without_logprobs(answer)

    def with_other_ids(self, answer: dict[str, Any]) -> None:
        answer["output_ids"][0] += 1

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"message": message}}


@dataclass
class AtroposWire:
    """Atropos' `vllm_api_server.py`: every fault is an Internal Server Error."""

    name: str = "atropos"
    path: str = "/generate"
    abort_path: str = ""
    refusal: int = 500

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Asked:
        sampling = {name: value for name, value in body.items() if name not in {"prompt", "stream"}}
        _check_known(sampling, _SAMPLING, 500)
        prompt = _object(body.get("prompt"), "prompt", 500)
        _check_known(prompt, frozenset({"prompt_token_ids"}), 500)
        return Asked(
            prompt=_prompt(prompt.get("prompt_token_ids"), "prompt_token_ids"),
            sampling=sampling,
            request_id=headers.get("X-Request-Id", ""),
            logprobs=body.get("logprobs") is not None,
            echo=True,
            sent=dict(sampling),
        )

    def answer(self, asked: Asked, drawn: Sampled) -> dict[str, Any]:
        answer = {"text": [""], "prompt": "", "finish_reasons": [drawn.finish_reason]}
        if not asked.logprobs:
            return answer
        pairs = zip(drawn.ids, drawn.logprobs, strict=True)
        return answer | {
            "logprobs": [[[{str(token): logprob}] for token, logprob in pairs]],
            "prompt_token_ids": asked.prompt,
            "token_ids": [list(drawn.ids)],
        }

    def aborted_ids(self, body: Mapping[str, Any]) -> list[str]:
        raise RefusedError(404, "Not Found")

    def logprob_list(self, answer: dict[str, Any]) -> list[Any]:
        return answer["logprobs"][0]

    def without_logprobs(self, answer: dict[str, Any]) -> None:
        for name in ("logprobs", "prompt_token_ids", "token_ids"):
            answer.pop(name, None)

    def without_ids(self, answer: dict[str, Any]) -> None:
        answer["token_ids"] = [None]

    def with_other_ids(self, answer: dict[str, Any]) -> None:
        answer["token_ids"][0][0] += 1

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"detail": "Internal Server Error" if status == 500 else message}


Wire = VllmWire | SglangWire | AtroposWire
WIRES: Mapping[str, type[Wire]] = {"vllm": VllmWire, "sglang": SglangWire, "atropos": AtroposWire}


def _check_known(found: Mapping[str, Any], known: frozenset[str], status: int) -> bool:
    unknown = sorted(found.keys() - known)
    if unknown:
        raise RefusedError(status, f"unknown fields: {', '.join(unknown)}")
    return True


def _object(value: Any, name: str, status: int) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise RefusedError(status, f"{name}: an object is required")
    return value


def _prompt(value: Any, name: str) -> list[int]:
    if not isinstance(value, list) or not value or not all(type(one) is int and one >= 0 for one in value):
        raise RefusedError(400, f"{name}: a list of at least one token id is required")
    return value


def _vllm_entry(token: int, logprob: float | None) -> dict[str, Any]:
    own = {"token_id": token, "logprob": logprob, "rank": 1}
    return {**own, "top_logprobs": [own]}


def _spans(drawn: Sampled) -> list[dict[str, Any]]:
    if drawn.weight_versions is not None:
        return [dict(span) for span in drawn.weight_versions]
    return [{"version": "default", "start": 0, "end": len(drawn.ids)}] if drawn.ids else []


def _usage(asked: Asked, drawn: Sampled) -> dict[str, int]:
    prompt, completion = len(asked.prompt), len(drawn.ids)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
