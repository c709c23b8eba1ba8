"""The configuration and results of `AtroposAgent`, in hermes-agent's shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes_atropos.agent.react import observation
from hermes_core.contracts.model import Message
from hermes_tools.agent_tools import ToolCall, ToolResult


@dataclass(slots=True, kw_only=True)
class AgentConfig:
    """The configuration of an agent.

    `max_tokens` None leaves the length of a turn to the server. `system_prompt` replaces the built-in instructions.
    `tool_delay_s` is the pause between two calls. `working_dir` is the session's first directory, created if missing.
    """

    temperature: float = 0.7
    max_tokens: int | None = None
    max_steps: int = 50
    system_prompt: str | None = None
    tool_delay_s: float = 0.0
    working_dir: str | None = None


@dataclass(slots=True, kw_only=True)
class SequenceData:
    """A sequence for the trainer: -100 in `masked_tokens` means no loss, 1.0 in `logprobs` means no logprob."""

    full_text: str
    tokens: Sequence[int]
    masked_tokens: Sequence[int]
    logprobs: Sequence[float]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_node(cls, node: Mapping[str, Any]) -> SequenceData:
        """Create it from a node of a session's state."""
        return cls(
            full_text=str(node.get("full_text") or ""),
            tokens=list(node["tokens"]),
            masked_tokens=list(node.get("masked_tokens") or ()),
            logprobs=list(node.get("logprobs") or ()),
            metadata=dict(node.get("metadata") or {}),
        )


@dataclass(slots=True, kw_only=True)
class AgentStep:
    """One turn: the model's text, its calls, and their results (those of unreadable calls last)."""

    step_number: int
    assistant_message: str
    tool_calls: list[ToolCall] = field(default_factory=list)
    tool_results: list[ToolResult] = field(default_factory=list)
    sequence_data: SequenceData | None = None
    """The whole sequence, set on the last step of a rollout with recorded tokens."""

    @property
    def has_tool_calls(self) -> bool:
        """Whether tools were called."""
        return bool(self.tool_calls)


@dataclass(slots=True, kw_only=True)
class AgentResult:
    """The result of an agent's run.

    `trajectory_data` is the sequence of exact tokens, the last one of several branches; None without token ids.
    `total_tokens` counts sampled tokens.
    """

    success: bool
    final_response: str = ""
    steps: Sequence[AgentStep] = ()
    total_tokens: int = 0
    error: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    trajectory_data: SequenceData | None = None

    @property
    def num_steps(self) -> int:
        """The number of the model's turns."""
        return len(self.steps)

    @property
    def total_tool_calls(self) -> int:
        """The number of tool calls."""
        return sum(len(step.tool_calls) for step in self.steps)

    def to_messages(self) -> list[Message]:
        """Return the turns and tool results as chat messages, without the messages before them."""
        messages: list[Message] = []
        for step in self.steps:
            messages.append({"role": "assistant", "content": step.assistant_message})
            if step.tool_results:
                messages.append({"role": "user", "content": observation(step.tool_results)})
        return messages

    def to_scored_data(self, score: float) -> dict[str, Any] | None:
        """Return the sequence as Atropos' `ScoredDataItem`, or None without recorded tokens."""
        data = self.trajectory_data
        if data is None:
            return None
        return {
            "tokens": list(data.tokens),
            "masks": list(data.masked_tokens),
            "scores": score,
            "inference_logprobs": list(data.logprobs),
        }
