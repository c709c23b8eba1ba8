"""One rollout's conversation at token level."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from hermes_core.contracts.errors import ConfigError, ModelReplyError, ModelRequestError, ModelServerError
from hermes_core.contracts.model import Message, ModelReply, ModelRequest, RequestedCall, Usage, encode
from hermes_core.contracts.tokens import Exactness, TrainingSample
from hermes_tokens.clients.rule_book import RuleBook
from hermes_tokens.clients.sampling import with_bound
from hermes_tokens.clients.stop_tokens import ending_stops, text_ids, with_stops
from hermes_tokens.exactness import report
from hermes_tokens.generation import FinishReason, GenerateClient, Generated, GenerateRequest
from hermes_tokens.history.edit import Edit, History, first_difference
from hermes_tokens.trajectory import ROOT, BreakReason, Trajectory

if TYPE_CHECKING:
    from hermes_tokens.append_rule.append import Appended, AppendRule, ClosedTurn
    from hermes_tokens.chat_template.parity import Parity
    from hermes_tokens.tokenizer import ChatTokenizer

_CONTINUATIONS: Final = 3
"""How often a turn that the server aborts (for example for new weights) is continued where it stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """A sampled turn: it answers the first `messages` messages and ends with the node `after`."""

    messages: int
    after: int
    sampled: str
    opened: bool
    last_id: int | None
    finish_reason: FinishReason
    reasoning_open: bool
    stop_ids: frozenset[int]
    is_cut: bool = False
    """Whether the last id is a stop token that the template does not write, and so stays behind in its own branch."""
    message: Message | None = None
    """The message that the caller made of the turn, if it was recorded."""

    def unread_field(self, rule: AppendRule, message: Message) -> str:
        """Return the first field in which a message differs from this turn, or "" if none does."""
        if message.get("role") != "assistant":
            return "role"
        told = None if self.message is None else first_difference(self.message, message, rule.template.reads)
        if told == "":
            return ""
        from hermes_tokens.history.reading import unread_field

        # An agent may parse a turn in its own way, for example keep the plain text, whatever was recorded.
        field = unread_field(rule, message, self.sampled, opened=self.opened)
        return (told or field) if field else ""

    def describe_end(self, message: Message) -> ClosedTurn:
        """Describe the end of the turn for the append rule."""
        from hermes_tokens.append_rule.append import ClosedTurn

        told = (self.message or {}).get("tool_calls") or ()
        wire_ids = {call.get("id"): call.get("wire_id") for call in told}  # clients with OpenAI's types may drop it
        return ClosedTurn(
            last_id=self.last_id,
            finish_reason=self.finish_reason,
            calls=tuple(_request_of(call, wire_ids) for call in message.get("tool_calls") or ()),
            reasoning_open=self.reasoning_open,
            stop_ids=self.stop_ids,
        )


class TokenSession:
    """Keeps one rollout's tokens; implements `ModelSession`. Used by one task at a time."""

    def __init__(
        self, client: GenerateClient, tokenizer: ChatTokenizer, rules: RuleBook, rollout_id: str, *, max_tokens: int
    ) -> None:
        self._client = client
        self._tokenizer = tokenizer
        self._rules = rules
        self._max_tokens = max_tokens
        self._rollout_id = rollout_id
        self._nonce = secrets.token_hex(4)
        self._requests = 0
        self._trajectory = Trajectory()
        self._history = History()
        self._edit: Edit | None = None
        self._is_unfinished = False
        self._turns: list[_Turn] = []
        self._opens_reasoning = False
        self._rule: AppendRule | None = None
        self._is_proved = False

    async def chat(self, request: ModelRequest) -> ModelReply:
        """Append the new messages of the conversation and sample the next turn."""
        history = self._history.next(request.conversation)
        rule, is_proved = self._rules.rule(request.tools)
        try:
            bounded = with_bound(request.sampling, self._max_tokens)
            sampling = with_stops(bounded, self._rules.family_stops(rule))
            self._continue(rule, history, is_proved=is_proved)
        except ConfigError as error:
            # The template passed the check, so it only refuses this conversation; other rollouts may work. Same for
            # sampling.
            raise ModelRequestError(error.message, hint=error.hint) from error
        generated = await self._sample(request, sampling)
        # Only now: the turns follow answered conversations, never one that got no answer.
        self._history, self._rule, self._is_proved = history, rule, is_proved
        return self._reply(generated, request, rule)

    def record_message(self, message: Message) -> None:
        """Record the message that the caller made of the last reply, to tell a later edit from its own parsing."""
        if self._turns:
            self._turns[-1] = replace(self._turns[-1], message=copy.deepcopy(message))

    def samples(self) -> Sequence[TrainingSample]:
        """Return the training samples so far."""
        return self._trajectory.samples()

    def exactness(self) -> Exactness:
        """Return the report so far; the last prompt is compared with the template's own rendering."""
        found = report(self._trajectory, self.samples())
        parity = self._parity()
        if parity is None:
            return found
        return replace(
            found,
            parity_checked=1,
            parity_equal=int(not parity.fault),
            foreign_control_tokens=parity.foreign,
            faults=(*found.faults, *([f"turn {found.turns - 1}: {parity.fault}"] if parity.fault else [])),
        )

    def _parity(self) -> Parity | None:
        """Compare the last prompt; return None if there is nothing to compare it with."""
        if not self._turns or not self._is_proved or self._rule is None:
            return None
        from hermes_tokens.chat_template.parity import compare
        from hermes_tokens.chat_template.template import TemplateError

        try:
            return compare(
                self._rule, self._history.messages, self._trajectory.spans_before_turn(self._turns[-1].after)
            )
        except TemplateError:
            # Some templates refuse a whole conversation that they accept in pieces, such as two calls in a turn.
            return None

    def managed_state(self) -> Mapping[str, Any]:
        """Return one node per sample in hermes-agent's form: a logprob of 1.0 where none was sampled."""
        return {"nodes": [self._node(sample) for sample in self.samples()]}

    def _node(self, sample: TrainingSample) -> dict[str, Any]:
        return {
            "full_text": self._tokenizer.decode(sample.tokens),
            "tokens": list(sample.tokens),
            "masked_tokens": list(sample.masks),
            "logprobs": [1.0 if value is None else value for value in sample.logprobs],
            "metadata": {"branch": sample.branch, "reason": sample.reason, "constrained": sample.constrained},
        }

    def _continue(self, rule: AppendRule, history: History, *, is_proved: bool) -> None:
        """Extend the prompt to match the conversation."""
        if not self._turns:
            self._go_back(ROOT, "engine", None)
            self._append(rule.opening(history.messages))
            return
        edit = self._edit = self._first_edit(rule, history)
        kept = [turn for turn in self._turns if edit is None or turn.messages <= edit.message]
        if is_proved and any(self._goes_on(rule, history.messages, turn, edit) for turn in reversed(kept)):
            return
        appended = rule.opening(history.messages)
        if edit is not None:
            self._require_branch(self._trajectory.longest_prefix(appended.ids)[0], edit)
        reason: BreakReason = "template" if edit is None else self._reason
        self._trajectory.rebase(((span.role, span.ids) for span in appended.spans), reason, str(edit or ""))
        self._opens_reasoning = appended.opens_reasoning

    @property
    def _reason(self) -> BreakReason:
        """The reason for the branch of an edited conversation, unless a server fault is the cause."""
        return "engine" if self._is_unfinished else "history_edited"

    def _first_edit(self, rule: AppendRule, history: History) -> Edit | None:
        """Return the first change by the caller since the last turn was sampled."""
        if self._rule is not None and self._rule.fingerprint != rule.fingerprint:
            return Edit(message=0, turn=0, role="system", field="tools")
        edit = self._history.first_edit(history, rule.template.reads)
        if edit is not None:
            return edit
        turn, new = self._turns[-1], history.messages[len(self._history) :]
        field = turn.unread_field(rule, new[0]) if new else "absence"
        if field:
            return history.edit(turn.messages, field)
        places = (place for place, message in enumerate(new) if place and message.get("role") == "assistant")
        inserted = next(places, None)
        return None if inserted is None else history.edit(turn.messages + inserted, "insertion")

    def _goes_on(self, rule: AppendRule, messages: Sequence[Message], turn: _Turn, edit: Edit | None) -> bool:
        """Append to a turn if nothing before it was changed and only messages to answer were added since."""
        if len(messages) <= turn.messages:
            return False
        own, new = messages[turn.messages], messages[turn.messages + 1 :]
        is_last = turn is self._turns[-1] and edit is None
        if not is_last and turn.unread_field(rule, own):
            return False
        if any(message.get("role") == "assistant" for message in new):
            return False
        after_tools = any(message.get("role") == "tool" for message in messages[: turn.messages])
        delta = rule.delta(turn.describe_end(own), new, after_tools=after_tools)
        if self._trajectory.head != turn.after:  # an earlier turn, or a request that failed
            self._go_back(turn.after, "engine" if edit is None else self._reason, edit)
        if delta.replaced and not turn.is_cut:
            self._trajectory.drop_last()
            place = self._turns.index(turn)
            self._turns[place] = replace(turn, after=self._trajectory.head, is_cut=True)
        self._append(delta)
        return True

    def _go_back(self, node: int, reason: BreakReason, edit: Edit | None) -> None:
        """Go back to a node; refuse if that starts a branch and branches are not allowed."""
        self._require_branch(node, edit)
        self._trajectory.rewind(node, reason, str(edit or ""))

    def _require_branch(self, node: int, edit: Edit | None) -> None:
        if self._rules.allow_branches is not False or not self._trajectory.would_branch(node):
            return
        found = "a turn that the server left unfinished" if edit is None else f"an edited one: {edit}"
        raise ModelRequestError(
            f"expected a conversation that continues as sampled, got {found}",
            hint="send the messages unchanged, or allow branches: remove `allow_branches: false`",
        )

    def _append(self, appended: Appended) -> None:
        for span in appended.spans:
            self._trajectory.add_context(span.role, span.ids)
        self._opens_reasoning = appended.opens_reasoning

    async def _sample(self, request: ModelRequest, sampling: dict[str, Any]) -> Generated:
        """Sample one turn; continue a turn that the server aborts."""
        parts: list[Generated] = []
        while True:
            generated = await self._generate(request, sampling)
            self._trajectory.add_sampled(generated, continues=bool(parts))
            self._is_unfinished = True
            parts.append(generated)
            if generated.finish_reason != "abort":
                return _join_parts(parts)
            sampling["max_tokens"] -= len(generated.ids)
            if sampling["max_tokens"] <= 0:
                return replace(_join_parts(parts), finish_reason="length")
            if len(parts) > _CONTINUATIONS:
                raise ModelServerError(
                    f"expected a finished turn, got {len(parts)} aborts by the server in a row",
                    hint="find out why the server aborts: a weight update that does not end, or an operator",
                )

    async def _generate(self, request: ModelRequest, sampling: Mapping[str, Any]) -> Generated:
        self._requests += 1
        prompt = self._trajectory.prompt
        generated = await self._client.generate(
            GenerateRequest(
                prompt=prompt,
                sampling=sampling,
                request_id=f"{self._rollout_id}-{self._nonce}-{self._requests}",
                rollout_id=self._rollout_id,
                seed=request.seed,
                timeout=request.timeout,
            )
        )
        _check_echo(generated.prompt_echo, prompt.ids)
        return generated

    def _reply(self, generated: Generated, request: ModelRequest, rule: AppendRule) -> ModelReply:
        reasoning = rule.reasoning
        sampled = self._tokenizer.decode(text_ids(generated, rule, request.sampling))
        self._is_unfinished = False
        turn = _Turn(
            messages=len(self._history),
            after=self._trajectory.head,
            sampled=sampled,
            opened=self._opens_reasoning,
            last_id=generated.ids[-1] if generated.ids else None,
            finish_reason=generated.finish_reason,
            reasoning_open=reasoning.is_open(sampled, opened=self._opens_reasoning),
            stop_ids=ending_stops(rule.tokenizer, request.sampling),
        )
        # Turns that are no longer part of the conversation stay in the trajectory but cannot be continued.
        most = turn.messages - 1 if self._edit is None else min(turn.messages - 1, self._edit.message)
        self._turns = [earlier for earlier in self._turns if earlier.messages <= most] + [turn]
        size = len(generated.ids)
        usage = Usage(prompt_tokens=len(self._trajectory.prompt) - size, completion_tokens=size)
        # What the prompt opened belongs to the turn: without it, a parser takes the reasoning for an answer.
        text = f"{reasoning.opening}{sampled}" if self._opens_reasoning else sampled
        return ModelReply(content=text, finish_reason=generated.finish_reason, usage=usage)


def _request_of(call: Mapping[str, Any], wire_ids: Mapping[Any, str | None]) -> RequestedCall:
    function = call.get("function") or call
    arguments = function.get("arguments") or "{}"
    return RequestedCall(
        id=call.get("id") or "",
        name=function["name"],
        arguments=arguments if isinstance(arguments, str) else encode(arguments).decode(),
        wire_id=call.get("wire_id") or wire_ids.get(call.get("id")),
    )


def _join_parts(parts: Sequence[Generated]) -> Generated:
    """Join the parts of a turn."""
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[-1],
        ids=tuple(token for part in parts for token in part.ids),
        logprobs=tuple(logprob for part in parts for logprob in part.logprobs),
        weight_versions=(),
        prompt_echo=None,
    )


def _check_echo(echo: Sequence[int] | None, sent: Sequence[int]) -> None:
    if echo is None or list(echo) == list(sent):
        return
    place = next((n for n, (a, b) in enumerate(zip(echo, sent, strict=False)) if a != b), min(len(echo), len(sent)))
    raise ModelReplyError(
        f"expected the server to sample after the {len(sent)} ids that were sent, "
        f"got an echo of {len(echo)} ids "
        f"that differs from position {place} on",
        hint="the server must use the ids unchanged: check whether it adds a BOS token or truncates the prompt",
    )
