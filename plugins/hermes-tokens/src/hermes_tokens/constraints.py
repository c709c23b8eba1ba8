"""Which sampling parameters make samples that a trainer's importance ratio does not hold for.

The ratio divides the policy's probability of a token by the probability that it was drawn with. A mask (a grammar, a
list of allowed tokens, a bias) changes what is drawn from. A server that reports logprobs after its masks then reports
probabilities that the policy never had, up to 9.1 nats off in measurements; one that reports them before (vLLM's raw
ones) reports the policy's, and the token was drawn from something else. Either way the samples are marked.

Top-p, its like and penalties are a choice of the run, and raw logprobs do not see them. They count only where the
server says that its logprobs are processed by them. Temperature is the policy's own: a trainer divides by the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# Under every name that users write or servers read: vLLM's (also the older guided ones) and SGLang's.
_MASKS: Final = frozenset(
    {
        "structured_outputs", "allowed_token_ids", "bad_words", "logit_bias", "min_tokens", "thinking_token_budget",
        "guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding", "json_schema", "regex",
        "ebnf", "structural_tag", "min_new_tokens", "custom_params", "extra_args",
    }
)  # fmt: skip
# What each is where it changes nothing; a top-k of 0 or -1 means all tokens.
_NEUTRAL: Final[Mapping[str, tuple[float, ...]]] = {
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
}


def constraints(sampling: Mapping[str, Any], *, logprobs_mode: str | None) -> tuple[str, ...]:
    """Return the names of the parameters that constrain what is sampled, in their order; an empty value is none."""
    return tuple(name for name, value in sampling.items() if value is not None and _counts(name, value, logprobs_mode))


def _counts(name: str, value: Any, logprobs_mode: str | None) -> bool:
    if name in _NEUTRAL:
        return logprobs_mode == "processed" and value not in _NEUTRAL[name]
    return name in _MASKS and (bool(value) or name == "thinking_token_budget")
