"""Check stop tokens against the template: what to report before a run, and which ids of a turn are text.

A stop token that the template does not write is removed before the conversation continues, so each turn that ends with
one starts a branch, and the training data grows with the square of the number of turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.parsing import StoppingParser, ToolCallParser
from hermes_tokens.generation import Generated

if TYPE_CHECKING:
    from hermes_tokens.append_rule.append import AppendRule
    from hermes_tokens.append_rule.turn_ends import TurnEnd
    from hermes_tokens.tokenizer import ChatTokenizer


def requested_stops(sampling: Mapping[str, Any]) -> frozenset[int]:
    """Return the stop ids of a sampling; raise `ConfigError` if they are not a list of ids."""
    return frozenset(_stop_token_ids(sampling))


def ending_stops(tokenizer: ChatTokenizer, sampling: Mapping[str, Any]) -> frozenset[int]:
    """Return the stop ids of a sampling that are not text; a stop at `</tool_call>`, for one, keeps it in the turn."""
    return frozenset(each for each in requested_stops(sampling) if tokenizer.is_special(each))


def family_stops(tokenizer: ChatTokenizer, parser: ToolCallParser | None) -> frozenset[int]:
    """Return the ids of a parser's stop tokens that the tokenizer knows but does not stop at by itself."""
    known = tokenizer.controls.by_text
    texts = parser.stop_tokens if isinstance(parser, StoppingParser) else ()
    return frozenset(known[text].id for text in texts if text in known) - tokenizer.stop_ids


def with_stops(sampling: Mapping[str, Any], stops: frozenset[int]) -> dict[str, Any]:
    """Return the sampling with additional stop ids, unless it requests to stop at none."""
    own = _stop_token_ids(sampling)
    added = [] if sampling.get("ignore_eos") else sorted(stops.difference(own))
    return {**sampling, "stop_token_ids": [*own, *added]} if added else {**sampling}


@dataclass(frozen=True, slots=True, kw_only=True)
class StopFault:
    """A stop that makes turns start branches; `is_certain`: it does so for every turn."""

    error: ConfigError
    is_certain: bool


def branching_stops(rule: AppendRule, sampling: Mapping[str, Any]) -> Iterator[StopFault]:
    """Yield the faults of a run's stop tokens."""
    asked = ending_stops(rule.tokenizer, sampling)
    stops = rule.stop_ids | asked
    if missing := [kind for kind in rule.ends.kinds if stops and stops.isdisjoint(kind.ids)]:
        yield _missing(rule, missing)
    openers = sorted(asked & rule.ends.openers - rule.tokenizer.stop_ids)
    if openers:
        error = ConfigError(
            f"a turn that ends with {token_names(rule.tokenizer, openers)} starts a branch: "
            "the chat template "
            "writes it after a turn",
            hint=f"remove {', '.join(map(str, openers))} from stop_token_ids",
        )
        yield StopFault(error=error, is_certain=False)


def text_ids(generated: Generated, rule: AppendRule, sampling: Mapping[str, Any]) -> Sequence[int]:
    """Return the sampled ids without the stop token, as vLLM's text has them.

    Not every server reports the stop token, and not every generation config contains it. A special token at the end
    counts as one, and so does a token at which the server stopped by itself. A token that only delimits a call is text.
    """
    last = generated.ids[-1] if generated.ids else None
    if last is None or generated.finish_reason != "stop":
        return generated.ids
    if last in rule.ends.marks - rule.ends.written:
        return generated.ids
    is_end = last in rule.stop_ids | rule.ends.written or rule.tokenizer.is_special(last)
    is_end = is_end or (last == generated.stop_id and last not in requested_stops(sampling))
    return generated.ids[:-1] if is_end else generated.ids


def token_names(tokenizer: ChatTokenizer, ids: Iterable[int]) -> str:
    """Return tokens by text and id."""
    return " or ".join(f"{tokenizer.decode([each])!r} (id {each})" for each in ids)


def _stop_token_ids(sampling: Mapping[str, Any]) -> Sequence[int]:
    found = sampling.get("stop_token_ids")
    if found is None:
        return ()
    if isinstance(found, list | tuple) and all(type(each) is int and each >= 0 for each in found):
        return found
    raise ConfigError(
        f"expected stop_token_ids to be a list of token ids, got {found!r}", hint="stop_token_ids: [2], for example"
    )


def _missing(rule: AppendRule, kinds: Sequence[TurnEnd]) -> StopFault:
    """Name the tokens to stop at: only those that also end a last turn, as gpt-oss ends thoughts with <|end|>."""
    ids = sorted(frozenset().union(*(kind.certain for kind in kinds)))
    written = f"{token_names(rule.tokenizer, ids)}, which the chat template writes" if ids else "one of the template's"
    error = ConfigError(
        f"expected turns to stop at {written}, got {token_names(rule.tokenizer, sorted(rule.stop_ids))}: "
        "every such turn starts a branch, and training context grows with the square of the turns",
        hint=_remedy(ids, is_written=any(kind.ids for kind in kinds)),
    )
    sure = [kind for kind in kinds if (kind.certain or not kind.ids) and (rule.tools or not kind.has_calls)]
    return StopFault(error=error, is_certain=bool(sure))


def _remedy(certain: Sequence[int], *, is_written: bool) -> str:
    if not is_written:
        return "use a chat template that closes turns with the model's stop token"
    if not certain:
        return "give the model's parser (--parser), or add the model's stop tokens to eos_token_id"
    ids = ", ".join(map(str, certain))
    return f"add {ids} to eos_token_id in generation_config.json, or stop_token_ids: [{ids}] to the sampling"
