"""Stop tokens against the template: what must be said before a run, and what of a turn is its text.

A stop token that the template does not write is taken back before the conversation goes on, so that each turn which
ends so begins a branch: what is sent to the trainer grows with the square of the turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.parsing import StoppingParser, ToolCallParser
from hermes_core.contracts.tokens import Generated

if TYPE_CHECKING:
    from hermes_tokens.append_rule.append import AppendRule
    from hermes_tokens.tokenizer import ChatTokenizer


def requested_stops(sampling: Mapping[str, Any]) -> frozenset[int]:
    """Return the ids that a sampling asks the server to stop at."""
    found = sampling.get("stop_token_ids") or ()
    return frozenset(each for each in found if type(each) is int) if isinstance(found, Iterable) else frozenset()


def ending_stops(tokenizer: ChatTokenizer, sampling: Mapping[str, Any]) -> frozenset[int]:
    """Return the stop ids of a sampling that are no text: a stop at `</tool_call>`, say, leaves it in the turn."""
    return frozenset(each for each in requested_stops(sampling) if tokenizer.is_special(each))


def family_stops(tokenizer: ChatTokenizer, parser: ToolCallParser | None) -> frozenset[int]:
    """Return the ids of a parser's stop tokens that the tokenizer has and does not stop at by itself."""
    known = tokenizer.controls.by_text
    texts = parser.stop_tokens if isinstance(parser, StoppingParser) else ()
    return frozenset(known[text].id for text in texts if text in known) - tokenizer.stop_ids


def with_stops(sampling: Mapping[str, Any], stops: frozenset[int]) -> dict[str, Any]:
    """Return the sampling with further stop ids beside its own."""
    added = sorted(stops - requested_stops(sampling))
    return {**sampling, "stop_token_ids": [*(sampling.get("stop_token_ids") or ()), *added]} if added else {**sampling}


def branching_stops(rule: AppendRule, sampling: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Yield an error for each way to end turns so that every one of them begins a branch."""
    known, asked = rule.tokenizer.stop_ids, requested_stops(sampling)
    if known and not (rule.stop_ids | asked) & rule.ends.written:
        yield _error(rule, sorted(known), _remedy(rule))
    foreign = sorted(ending_stops(rule.tokenizer, sampling) - rule.ends.written - rule.ends.marks - known)
    if foreign:
        yield _error(rule, foreign, f"take {', '.join(map(str, foreign))} out of stop_token_ids")


def text_ids(generated: Generated, rule: AppendRule, sampling: Mapping[str, Any]) -> Sequence[int]:
    """Return the sampled ids without the stop token, as vLLM's text has them.

    Not every server says which token that was, and not every generation config has it. A special token that a turn
    stops at is one; so is what the server stopped at of its own accord. What only sets a call apart is text.
    """
    last = generated.ids[-1] if generated.ids else None
    if last is None or generated.finish_reason != "stop":
        return generated.ids
    is_end = last in rule.tokenizer.stop_ids or last in rule.ends.written
    is_no_text = last in rule.stop_ids or rule.tokenizer.is_special(last)
    is_end = is_end or (is_no_text and last not in rule.ends.marks)
    is_end = is_end or (last == generated.stop_id and last not in requested_stops(sampling) | rule.stop_ids)
    return generated.ids[:-1] if is_end else generated.ids


def named(tokenizer: ChatTokenizer, ids: Iterable[int]) -> str:
    """Return tokens by text and id."""
    return " or ".join(f"{tokenizer.decode([each])!r} (id {each})" for each in ids)


def _error(rule: AppendRule, stops: Sequence[int], hint: str) -> ConfigError:
    written = sorted(rule.ends.written)
    wanted = f"{named(rule.tokenizer, written)}, which the chat template writes" if written else "one of the template's"
    return ConfigError(
        f"expected turns to stop at {wanted}, got {named(rule.tokenizer, stops)}: "
        "every turn that ends so begins a branch, and training context grows with the square of the turns",
        hint=hint,
    )


def _remedy(rule: AppendRule) -> str:
    written = sorted(rule.ends.written)
    if not written:
        return "use a chat template that closes turns with the model's stop token"
    ids = ", ".join(map(str, written))
    return f"add {ids} to eos_token_id in generation_config.json, or stop_token_ids: [{ids}] to the sampling"
