"""How a rollout ends: exactly one outcome with a stop reason and a reward status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from hermes_core.contracts.errors import Blame, HermesError
from hermes_core.contracts.model import Message
from hermes_core.contracts.tokens import Exactness, TrainingSample


class StopReason(StrEnum):
    """Why the model's part ended."""

    FINAL_ANSWER = "final_answer"
    MAX_TURNS = "max_turns"
    CONTEXT_LIMIT = "context_limit"
    TOKEN_LIMIT = "token_limit"  # noqa: S105 - not a password
    TIME_LIMIT = "time_limit"
    TOOL_CALL_LIMIT = "tool_call_limit"
    SANDBOX_DESTROYED = "sandbox_destroyed"
    MODEL_ERROR = "model_error"
    TOOL_BACKEND_ERROR = "tool_backend_error"
    TASK_ERROR = "task_error"
    FRAMEWORK_ERROR = "framework_error"
    CANCELLED = "cancelled"


class RewardStatus(StrEnum):
    """Whether there is a reward; only `ok` has one."""

    OK = "ok"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolError:
    """A tool call that went wrong; texts are cut (arguments 200 characters, the others 300)."""

    turn: int
    tool_name: str
    arguments: str
    error: str
    tool_result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A recorded error: who is to blame, its type, its message, and whether a retry could help."""

    blame: Blame
    type: str
    message: str
    retryable: bool = False

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Describe an exception; one from outside the error tree is blamed on the framework."""
        if not isinstance(error, HermesError):
            return cls(blame=Blame.FRAMEWORK, type=type(error).__name__, message=str(error))
        return cls(blame=error.blame, type=type(error).__name__, message=str(error), retryable=error.retryable)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """What a verifier sees of a rollout.

    `turns_used` counts model calls that were answered. `final_response` is the last assistant text ("" if none).
    `managed_state` is token-level data when the model client keeps it, else None. `metadata` is the task's.
    """

    messages: Sequence[Message]
    turns_used: int
    finished_naturally: bool
    stop_reason: StopReason
    final_response: str = ""
    reasoning_per_turn: Sequence[str | None] = ()
    tool_errors: Sequence[ToolError] = ()
    tool_calls: int = 0
    managed_state: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds of one rollout by what they were spent on; parallel tool calls count their wall time once."""

    total: float = 0.0
    model: float = 0.0
    tool: float = 0.0
    sandbox_start: float = 0.0
    verifier: float = 0.0
    framework: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutOutcome:
    """The one record of a rollout; `to_json` is a line of `rollouts.jsonl`."""

    rollout_id: str
    task_id: str
    group_id: str
    index: int
    split: str
    seed: int
    messages: Sequence[Message]
    turns: int
    stop_reason: StopReason
    reward_status: RewardStatus
    reward: float | None = None
    reward_parts: Mapping[str, float] = field(default_factory=dict)
    reward_detail: str = ""
    final_response: str = ""
    failure: Failure | None = None
    reward_failure: Failure | None = None
    tool_errors: Sequence[ToolError] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    timings: Timings = Timings()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    attempt: int = 1
    suspect: bool = False
    """Whether the model or something else may be why there is no reward: the rollout must be repeated once."""
    disposition: str = "score"
    """What the run's policy decided: score, mask or drop."""
    samples: Sequence[TrainingSample] = ()
    """The training samples; empty when the model client keeps no tokens, so that the rollout is not trainable."""
    exactness: Exactness | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON values."""
        shallow = {name: getattr(self, name) for name in self.__slots__}
        shallow["tool_errors"] = [asdict(error) for error in self.tool_errors]
        shallow["samples"] = [sample.to_json() for sample in self.samples]
        shallow["exactness"] = None if self.exactness is None else self.exactness.to_json()
        for name in ("failure", "reward_failure", "timings"):
            shallow[name] = None if shallow[name] is None else asdict(shallow[name])
        return shallow


def is_handed_on(outcome: Mapping[str, Any]) -> bool:
    """Tell whether a recorded rollout is trained on: it has a reward, and the run's policy keeps it."""
    return outcome.get("disposition") == "score" and outcome.get("reward_status") == "ok"


def why_not_trained(outcome: Mapping[str, Any]) -> str:
    """Name the cause for which a rollout is not handed to the trainer."""
    if outcome.get("disposition") == "mask":
        return "masked"
    has_ended_well = outcome.get("disposition") == "score" and not outcome.get("failure")
    return "no_reward" if has_ended_well and outcome.get("reward_status") != RewardStatus.ERROR else cause(outcome)


def cause(outcome: Mapping[str, Any]) -> str:
    """Name the cause of a rollout's end by the word that the run's policy has for it."""
    if outcome.get("reward_status") != RewardStatus.ERROR:
        return str(outcome.get("stop_reason"))
    lost = (outcome.get("reward_failure") or {}).get("blame") == Blame.BACKEND
    return "tool_backend_error" if lost else "verifier_error"
