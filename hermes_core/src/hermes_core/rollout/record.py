"""The state of a rollout while it runs, from which its one outcome is made."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hermes_core.contracts.errors import BackendError, ContextOverflowError, EngineLostError, ModelError, TaskError
from hermes_core.contracts.model import Conversation, Message, ModelReply
from hermes_core.contracts.rollout import (
    AgentResult,
    Failure,
    RewardStatus,
    RolloutOutcome,
    StopReason,
    Timings,
    ToolError,
)
from hermes_core.contracts.tokens import ModelSession
from hermes_core.contracts.verifier import Score
from hermes_core.rollout.plan import RolloutSpec

NOT_JUDGED = frozenset({
    StopReason.MODEL_ERROR, StopReason.TOOL_BACKEND_ERROR, StopReason.TASK_ERROR, StopReason.FRAMEWORK_ERROR,
    StopReason.CANCELLED,
})  # fmt: skip
"""Stop reasons that say nothing about the model's ability: no verification and no reward."""

COUNTERS = (
    "prompt_tokens", "completion_tokens", "tool_calls_attempted", "tool_calls_schema_valid", "tool_calls_executed_ok",
    "tool_calls_exec_error", "unknown_tools", "invalid_arguments", "tool_parse_errors", "unparsed_replies",
    "truncated_replies", "empty_replies", "tool_errors", "sandbox_recoveries",
)  # fmt: skip


class RolloutRecord:
    """Collects one rollout's conversation, counters, times and score. Used by one asyncio task at a time."""

    def __init__(self, spec: RolloutSpec, *, on_turn: Callable[[str], None] = lambda _: None) -> None:
        self.spec = spec
        self._on_turn = on_turn
        self.session: ModelSession | None = None
        """Keeps the tokens, if the model client can."""
        self.conversation = Conversation(opening_messages(spec))
        self.turns = 0
        self.final_response = ""
        self.reasoning: list[str | None] = []
        self.tool_errors: list[ToolError] = []
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self.stop_reason: StopReason | None = None
        self.failure: Failure | None = None
        self.score: Score | None = None
        self.reward_failure: Failure | None = None
        self.reward_status = RewardStatus.SKIPPED
        self.suspect = False
        """See `RolloutOutcome.suspect`."""
        self.provenance: dict[str, Any] = dict(spec.provenance)
        if "category" in spec.task.metadata:
            self.provenance["category"] = spec.task.metadata["category"]
        self._seconds: dict[str, float] = {}
        self._started = time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the wall time of a block towards `model`, `tool`, `sandbox_start` or `verifier`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - started

    def count_reply(self, reply: ModelReply) -> None:
        """Count an answered model call, and report it to who watches the run."""
        self.turns += 1
        self.reasoning.append(reply.reasoning)
        self.counters["prompt_tokens"] += reply.usage.prompt_tokens
        self.counters["completion_tokens"] += reply.usage.completion_tokens
        self._on_turn(self.spec.rollout_id)

    def tool_error(self, *, turn: int, name: str, arguments: str, error: str, result: str) -> None:
        """Record a failed tool call."""
        cut = ToolError(
            turn=turn, tool_name=name, arguments=arguments[:200], error=error[:300], tool_result=result[:300]
        )
        self.tool_errors.append(cut)

    def fail(self, error: Exception) -> None:
        """End the rollout for an error; an earlier stop reason stays."""
        self.failure = Failure.of(error)
        self.stop_reason = self.stop_reason or _stop_reason(error)

    @property
    def can_be_judged(self) -> bool:
        """Whether the model's part ended in a way that a verifier may score."""
        has_run = self.turns > 0 or self.stop_reason is StopReason.CONTEXT_LIMIT
        return self.stop_reason is not None and self.stop_reason not in NOT_JUDGED and has_run

    def agent_result(self, messages: list[Message]) -> AgentResult:
        """Describe the model's part to a verifier; `messages` is a copy that it may keep."""
        reason = self.stop_reason or StopReason.CANCELLED
        return AgentResult(
            messages=messages,
            turns_used=self.turns,
            finished_naturally=reason is StopReason.FINAL_ANSWER,
            stop_reason=reason,
            final_response=self.final_response,
            reasoning_per_turn=tuple(self.reasoning),
            tool_errors=tuple(self.tool_errors),
            tool_calls=self.counters["tool_calls_attempted"],
            managed_state=None if self.session is None else self.session.managed_state(),
            metadata=copy.deepcopy(dict(self.spec.task.metadata)),
        )

    def outcome(self) -> RolloutOutcome:
        """Return the outcome; called once, at the end."""
        spec, score = self.spec, self.score
        return RolloutOutcome(
            rollout_id=spec.rollout_id,
            task_id=spec.task.id,
            group_id=spec.group.group_id,
            index=spec.index,
            split=spec.task.split,
            seed=spec.seed,
            messages=self.conversation.messages,
            turns=self.turns,
            stop_reason=self.stop_reason or StopReason.CANCELLED,
            reward_status=self.reward_status,
            reward=None if score is None else float(score.value),
            reward_parts={} if score is None else dict(score.parts),
            reward_detail="" if score is None else score.detail,
            final_response=self.final_response,
            failure=self.failure,
            reward_failure=self.reward_failure,
            tool_errors=self.tool_errors,
            counters=dict(self.counters),
            timings=self._timings(),
            provenance=self.provenance,
            attempt=spec.attempt,
            suspect=self.suspect,
            samples=() if self.session is None else self.session.samples(),
            exactness=None if self.session is None else self.session.exactness(),
        )

    def _timings(self) -> Timings:
        total = time.perf_counter() - self._started
        return Timings(total=total, framework=max(0.0, total - sum(self._seconds.values())), **self._seconds)


def failed_outcome(spec: RolloutSpec, error: Exception) -> RolloutOutcome:
    """Return the outcome of an attempt of which only the final error is known."""
    record = RolloutRecord(spec)
    record.fail(error)
    if isinstance(error, EngineLostError) and error.place:
        record.provenance["engine"] = dict(error.place)
    return record.outcome()


def opening_messages(spec: RolloutSpec) -> list[Message]:
    """Return the system prompt, if any, and the task's messages."""
    prompt = spec.group.system_prompt
    system: list[Message] = [{"role": "system", "content": prompt}] if prompt else []
    return system + [dict(message) for message in spec.task.messages]


def _stop_reason(error: Exception) -> StopReason:
    table = (
        (ContextOverflowError, StopReason.CONTEXT_LIMIT),
        (ModelError, StopReason.MODEL_ERROR),
        (BackendError, StopReason.TOOL_BACKEND_ERROR),
        (TaskError, StopReason.TASK_ERROR),
    )
    return next((reason for kind, reason in table if isinstance(error, kind)), StopReason.FRAMEWORK_ERROR)
