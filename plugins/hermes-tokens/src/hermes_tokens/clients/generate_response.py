"""Parse sampled tokens strictly: one id and one logprob for each token, or an error.

A trainer cannot see that a logprob is invented or belongs to another token, so nothing is filled in or truncated here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hermes_core.contracts.errors import ModelReplyError
from hermes_core.contracts.model import Usage
from hermes_core.contracts.tokens import WeightSpan
from hermes_tokens.generation import FinishReason

# Rounding can lift the logprob of a certain token slightly above 0; logits, which some modes send, are far above.
_MOST: Final = 0.01
# vLLM writes this for NaN, -inf, or a token without an entry.
_NO_NUMBER: Final = -9999.0
_LOGITS_HINT: Final = "the server must send logprobs and not logits: vllm serve --logprobs-mode raw_logprobs"


def read_ids(value: object, what: str, *, finish: FinishReason) -> tuple[int, ...]:
    """Return sampled ids; only an aborted request may have none."""
    if value is None and finish == "abort":
        return ()
    if not isinstance(value, list) or not _are_all(value, int) or min(value, default=0) < 0:
        raise ModelReplyError(f"expected sampled token ids in {what}, got {_quote(value)}", hint=_hint_without_ids())
    if not value and finish != "abort":
        raise ModelReplyError(f"expected at least one sampled token in {what}, got none", hint=_hint_without_ids())
    return tuple(value)


def read_echo(value: object, what: str) -> tuple[int, ...] | None:
    """Return the prompt as the server saw it, or None if it does not send it."""
    if value is None:
        return None
    if not isinstance(value, list) or not _are_all(value, int):
        raise ModelReplyError(f"expected the prompt's token ids in {what}, got {_quote(value)}")
    return tuple(value)


def only(value: object, what: str) -> Any:
    """Return the only element of a list; a client requests one completion."""
    if not isinstance(value, list) or len(value) != 1:
        found = f"{len(value)} elements" if isinstance(value, list) else _quote(value)
        raise ModelReplyError(f"expected {what} to be a list with the one requested completion, got {found}")
    return value[0]


def entries(value: object, count: int, what: str, *, missing: str) -> Sequence[Any]:
    """Return one logprob entry for each of `count` sampled tokens; `missing` is the hint if there are none."""
    if value is None and count == 0:
        return ()
    if not isinstance(value, list) or (not value and count):
        raise ModelReplyError(f"expected a logprob for each of {count} tokens in {what}, got none", hint=missing)
    if len(value) != count:
        raise ModelReplyError(f"expected one logprob for each of {count} tokens in {what}, got {len(value)}")
    return value


def same_tokens(sampled: Sequence[int], named: Sequence[object], what: str) -> None:
    """Raise unless each entry is about the token sampled at its position."""
    if _are_all(named, int) and list(named) == list(sampled):
        return
    for position, (token, found) in enumerate(zip(sampled, named, strict=False)):
        if type(found) is not int or found != token:
            raise ModelReplyError(
                f"expected {what}[{position}] to be the logprob of sampled token {token}, got one of {_quote(found)}"
            )


def read_logprobs(values: Sequence[object], what: str) -> tuple[float | None, ...]:
    """Return finite logprobs, and None for each `null` of the server."""
    return tuple([_logprob(value, position, what) for position, value in enumerate(values)])


def _logprob(value: object, position: int, what: str) -> float | None:
    if type(value) is float and _NO_NUMBER < value <= _MOST:  # also false for NaN and the infinities
        return value
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ModelReplyError(f"expected a finite logprob in {what}[{position}], got {_quote(value)}")
    if value <= _NO_NUMBER:
        raise ModelReplyError(
            f"expected a logprob in {what}[{position}], got {value}, which servers write for NaN and -inf"
        )
    if value > _MOST:
        raise ModelReplyError(f"expected a logprob in {what}[{position}], got {value}, above 0", hint=_LOGITS_HINT)
    return float(value)


def read_finish(value: object, what: str) -> FinishReason:
    """Return the finish reason; all three protocols use the same names."""
    if value == "stop" or value == "length" or value == "abort":  # noqa: PLR1714 - narrows the type as a set does not
        return value
    raise ModelReplyError(f"expected stop, length or abort in {what}, got {_quote(value)}")


def read_weight_spans(value: object, count: int, what: str) -> tuple[WeightSpan, ...]:
    """Return spans that cover `count` tokens without gap or overlap; none if the server does not send them."""
    if value is None or count == 0:
        return ()
    if not isinstance(value, list):
        raise ModelReplyError(f"expected a list of spans in {what}, got {_quote(value)}")
    spans = tuple(_span(item, what) for item in value)
    starts = [0, *(span.end for span in spans)]
    if [span.start for span in spans] != starts[:-1] or starts[-1] != count or any(s.end <= s.start for s in spans):
        found = ", ".join(f"[{span.start}, {span.end})" for span in spans) or "none"
        raise ModelReplyError(f"expected {what} to cover the {count} sampled tokens, got {found}")
    return spans


def read_usage(prompt: object, completion: object) -> Usage:
    """Return the server's token counts, 0 where it sends none."""
    return Usage(
        prompt_tokens=prompt if isinstance(prompt, int) else 0,
        completion_tokens=completion if isinstance(completion, int) else 0,
    )


def member(data: object, key: str, what: str) -> Any:
    """Return a member of a JSON object, or None if it is missing."""
    if not isinstance(data, Mapping):
        raise ModelReplyError(f"expected {what} to be an object, got {_quote(data)}")
    return data.get(key)


def members(listed: Sequence[Any], keys: Sequence[str], what: str) -> list[list[Any]]:
    """Return, for each key, the list of its values in a list of objects."""
    if not _are_all(listed, dict):
        raise ModelReplyError(f"expected {what} to be a list of objects, got {_quote(listed)}")
    return [[entry.get(key) for entry in listed] for key in keys]


def _are_all(values: Sequence[object], kind: type) -> bool:
    """Return whether all values are of exactly this type (a bool is not an int); fast, because answers are long."""
    return set(map(type, values)) <= {kind}


def _span(item: object, what: str) -> WeightSpan:
    version, start, end = (member(item, key, f"a span of {what}") for key in ("version", "start", "end"))
    if not isinstance(version, str) or type(start) is not int or type(end) is not int:
        raise ModelReplyError(f"expected a span of {what} with a version, a start and an end, got {_quote(item)}")
    return WeightSpan(version=version, start=start, end=end)


def _hint_without_ids() -> str:
    return "the server must answer with token ids; check --model-protocol"


def _quote(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
