"""Reading what a server sampled, strictly: one id and one logprob for each token, or an error that says what was found.

A trainer cannot see that a logprob belongs to another token or was made up; so nothing is filled in here, and nothing
is cut to fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hermes_core.contracts.errors import ModelReplyError
from hermes_core.contracts.model import Usage
from hermes_core.contracts.tokens import WeightSpan
from hermes_tokens.generation import FinishReason

# Rounding can lift the logprob of a certain token a little above 0; logits, which some modes send, go far above.
_MOST: Final = 0.01
# vLLM writes this where it has no number: NaN, -inf, or a token that it has no entry for.
_NO_NUMBER: Final = -9999.0
_LOGITS_HINT: Final = "the server must send logprobs and not logits: vllm serve --logprobs-mode raw_logprobs"


def read_ids(value: object, what: str, *, finish: FinishReason) -> tuple[int, ...]:
    """Return sampled ids; none at all is an answer only of an aborted request."""
    if value is None and finish == "abort":
        return ()
    if not isinstance(value, list) or not _are_all(value, int) or min(value, default=0) < 0:
        raise ModelReplyError(f"{what} must be the sampled token ids, found {_quote(value)}", hint=_hint_without_ids())
    if not value and finish != "abort":
        raise ModelReplyError(f"at least one sampled token was wanted in {what}, found none", hint=_hint_without_ids())
    return tuple(value)


def read_echo(value: object, what: str) -> tuple[int, ...] | None:
    """Return the prompt as the server saw it, None where it does not tell."""
    if value is None:
        return None
    if not isinstance(value, list) or not _are_all(value, int):
        raise ModelReplyError(f"{what} must be the prompt's token ids, found {_quote(value)}")
    return tuple(value)


def only(value: object, what: str) -> Any:
    """Return the one element of a list; a client asks for one completion."""
    if not isinstance(value, list) or len(value) != 1:
        found = f"{len(value)} elements" if isinstance(value, list) else _quote(value)
        raise ModelReplyError(f"one completion was asked for, so {what} must be a list of one, found {found}")
    return value[0]


def entries(value: object, count: int, what: str, *, missing: str) -> Sequence[Any]:
    """Return one logprob entry for each of `count` sampled tokens; `missing` says why there may be none."""
    if value is None and count == 0:
        return ()
    if not isinstance(value, list) or (not value and count):
        raise ModelReplyError(f"a logprob for each of {count} tokens was wanted in {what}, found none", hint=missing)
    if len(value) != count:
        raise ModelReplyError(f"{what} must have one logprob for each of {count} tokens, found {len(value)}")
    return value


def same_tokens(sampled: Sequence[int], named: Sequence[object], what: str) -> None:
    """Raise unless each entry is about the token that was sampled at its place."""
    if _are_all(named, int) and list(named) == list(sampled):
        return
    for position, (token, found) in enumerate(zip(sampled, named, strict=False)):
        if type(found) is not int or found != token:
            raise ModelReplyError(
                f"{what}[{position}] must be the logprob of token {token}, which was sampled there, "
                f"found one of {_quote(found)}"
            )


def read_logprobs(values: Sequence[object], what: str) -> tuple[float | None, ...]:
    """Return finite logprobs, and None where the server says by `null` that it has none."""
    return tuple([_logprob(value, position, what) for position, value in enumerate(values)])


def _logprob(value: object, position: int, what: str) -> float | None:
    if type(value) is float and _NO_NUMBER < value <= _MOST:  # false for NaN and the infinities too
        return value
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ModelReplyError(f"{what}[{position}] must be a finite logprob, found {_quote(value)}")
    if value <= _NO_NUMBER:
        raise ModelReplyError(
            f"{what}[{position}] must be a logprob, found {value}, which servers write for NaN and -inf"
        )
    if value > _MOST:
        raise ModelReplyError(f"{what}[{position}] must be a logprob, found {value}, above 0", hint=_LOGITS_HINT)
    return float(value)


def read_finish(value: object, what: str) -> FinishReason:
    """Return the finish reason, which all three protocols know under the same names."""
    if value == "stop" or value == "length" or value == "abort":  # noqa: PLR1714 - narrows the type as a set does not
        return value
    raise ModelReplyError(f"{what} must be stop, length or abort, found {_quote(value)}")


def read_weight_spans(value: object, count: int, what: str) -> tuple[WeightSpan, ...]:
    """Return spans that cover `count` tokens without gap or overlap; none at all where the server does not tell."""
    if value is None or count == 0:
        return ()
    if not isinstance(value, list):
        raise ModelReplyError(f"{what} must be a list of spans, found {_quote(value)}")
    spans = tuple(_span(item, what) for item in value)
    starts = [0, *(span.end for span in spans)]
    if [span.start for span in spans] != starts[:-1] or starts[-1] != count or any(s.end <= s.start for s in spans):
        found = ", ".join(f"[{span.start}, {span.end})" for span in spans) or "none"
        raise ModelReplyError(f"{what} must cover the {count} sampled tokens, found {found}")
    return spans


def read_usage(prompt: object, completion: object) -> Usage:
    """Return what the server counted, 0 where it did not."""
    return Usage(
        prompt_tokens=prompt if isinstance(prompt, int) else 0,
        completion_tokens=completion if isinstance(completion, int) else 0,
    )


def member(data: object, key: str, what: str) -> Any:
    """Return a member of a JSON object, None if it has none of that name."""
    if not isinstance(data, Mapping):
        raise ModelReplyError(f"{what} must be an object, found {_quote(data)}")
    return data.get(key)


def members(listed: Sequence[Any], keys: Sequence[str], what: str) -> list[list[Any]]:
    """Return one list for each key: its values in a list of objects."""
    if not _are_all(listed, dict):
        raise ModelReplyError(f"{what} must be a list of objects, found {_quote(listed)}")
    return [[entry.get(key) for entry in listed] for key in keys]


def _are_all(values: Sequence[object], kind: type) -> bool:
    """Whether all are of exactly this type (a bool is no int here); answers are long, and this is fast."""
    return set(map(type, values)) <= {kind}


def _span(item: object, what: str) -> WeightSpan:
    version, start, end = (member(item, key, f"a span of {what}") for key in ("version", "start", "end"))
    if not isinstance(version, str) or type(start) is not int or type(end) is not int:
        raise ModelReplyError(f"a span of {what} has a version, a start and an end, found {_quote(item)}")
    return WeightSpan(version=version, start=start, end=end)


def _hint_without_ids() -> str:
    return "the server must answer with token ids; is it the protocol that --model-protocol names?"


def _quote(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
