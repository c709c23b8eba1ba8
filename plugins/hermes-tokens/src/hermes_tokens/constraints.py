"""Find the sampling parameters that invalidate a trainer's importance ratio.

The ratio divides the policy's probability of a token by the probability that it was drawn with. A mask (a grammar, a
list of allowed tokens, a bias) changes the sampled distribution. Logprobs reported after the mask are not the policy's
(up to 9.1 nats off in measurements); logprobs reported before it (vLLM's raw ones) are the policy's, but the token was
drawn from another distribution. Either way the samples are marked.

Top-p, similar cut-offs and penalties are a choice of the run, and raw logprobs ignore them. They count only if the
server's logprobs are processed. Temperature never counts: a trainer divides by the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# All names that users write or servers read: vLLM's (also the older guided ones) and SGLang's.
_MASKS: Final = frozenset(
    {
        "structured_outputs", "allowed_token_ids", "bad_words", "logit_bias", "min_tokens", "thinking_token_budget",
        "guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding", "json_schema", "regex",
        "ebnf", "structural_tag", "min_new_tokens", "custom_params", "extra_args",
    }
)  # fmt: skip
# The neutral value of each; a top-k of 0 or -1 means all tokens.
_NEUTRAL: Final[Mapping[str, tuple[float, ...]]] = {
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
}


def constraints(sampling: Mapping[str, Any], *, logprobs_mode: str | None) -> tuple[str, ...]:
    """Return the names of the parameters that constrain sampling, in order; empty values do not count."""
    return tuple(name for name, value in sampling.items() if value is not None and _counts(name, value, logprobs_mode))


def _counts(name: str, value: Any, logprobs_mode: str | None) -> bool:
    if name in _NEUTRAL:
        return logprobs_mode == "processed" and value not in _NEUTRAL[name]
    return name in _MASKS and (bool(value) or name == "thinking_token_budget")
