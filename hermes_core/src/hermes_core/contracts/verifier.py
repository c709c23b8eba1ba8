"""The contract of a reward verifier."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from hermes_core.contracts.rollout import AgentResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A verifier's judgement: one finite number in the spec's bounds, its named parts, and a line for people."""

    value: float
    parts: Mapping[str, float] = field(default_factory=dict)
    detail: str = ""


@runtime_checkable
class Verifier(Protocol):
    """Scores a finished rollout. One object per task; `Options` (pydantic) are its constructor's.

    `score` may be a coroutine function, or an ordinary one, which then runs in a worker thread and receives the
    synchronous context. When it is called every process of the rollout has been stopped and the sandbox is served by a
    newly started agent. Raise to say "cannot be judged": the rollout gets no reward, never 0.0. Where what it finds in
    the sandbox keeps it from working it raises `WorkspaceError`, or lets an error of a file call pass: an untouched
    sandbox is judged then, by another object, and if only the rollout's own cannot be judged, it scores the lowest.

    Three further methods may be there, each of them called on an object of its own before the model's part begins:
    `inputs() -> Iterable[Path]` names files and directories of this machine that judging reads: when one has changed
    by the time of judging there is no reward. `protected_paths() -> Iterable[str]` names paths in the sandbox that
    judging depends on and the model could write: a rollout that changed one scores the lowest score. `verifiers() ->
    Iterable[Ref]` names the verifiers it calls itself, whose inputs then count as its own.
    """

    def score(self, result: AgentResult, context: Any) -> Score | Awaitable[Score]:
        """Judge the rollout; must not change `result`."""
