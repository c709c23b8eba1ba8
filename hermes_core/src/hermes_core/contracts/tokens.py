"""The training samples of a rollout, and the contract of what records them. Standard library only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

from hermes_core.contracts.model import Message, ModelReply, ModelRequest

IGNORED: Final = -100
"""The mask of a token without loss; a trained token's mask is its id, as in Atropos' `masks`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSpan:
    """Which weights sampled the tokens `[start, end)`."""

    version: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSample:
    """One sequence for the trainer; all three lists have the same length.

    `masks` is `IGNORED` where there is no loss, else the token itself. `logprobs` is None where none was sampled.
    `weight_versions` are spans over `tokens`. `branch` counts the samples of a rollout from 0; `reason` says why the
    branch was begun ("" for the first). Over all samples of a rollout each sampled token has loss exactly once.
    `constrained`: tokens with loss were sampled under a mask, such as a grammar: their importance ratios are wrong.
    """

    tokens: Sequence[int]
    masks: Sequence[int]
    logprobs: Sequence[float | None]
    weight_versions: Sequence[WeightSpan] = ()
    branch: int = 0
    reason: str = ""
    constrained: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the sample as plain JSON values."""
        return {
            "tokens": list(self.tokens),
            "masks": list(self.masks),
            "logprobs": list(self.logprobs),
            "weight_versions": [asdict(span) for span in self.weight_versions],
            "branch": self.branch,
            "reason": self.reason,
            "constrained": self.constrained,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Exactness:
    """How exact a rollout's samples are, as counts that can be summed over a run.

    `sampled` counts every id that the server sent for this rollout, `trained` those with loss in exactly one sample.
    `turns` are assistant turns, `turns_with_loss` those of which every id has loss. `continued` are turns after the
    first whose history the caller left alone, `prefix_exact` those whose prompt begins with the one before and what was
    sampled then. `with_logprob` counts sampled ids that have a logprob. `parity_checked` prompts were compared with
    what the template itself writes, `parity_equal` of them agree. `foreign_control_tokens` counts control ids made of
    untrusted text. `constrained` counts sampled ids that were drawn under a mask, and `constraints` names their turns.
    """

    sampled: int = 0
    trained: int = 0
    turns: int = 0
    turns_with_loss: int = 0
    continued: int = 0
    prefix_exact: int = 0
    samples: int = 0
    with_logprob: int = 0
    parity_checked: int = 0
    parity_equal: int = 0
    foreign_control_tokens: int = 0
    constrained: int = 0
    break_reasons: Mapping[str, int] = field(default_factory=dict)
    constraints: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    """The inexact places, each with turn and token; empty when everything is exact."""

    @property
    def is_exact(self) -> bool:
        """Whether every share is 1, no foreign control token was made and no token was drawn under a mask."""
        return not self.why_not_exact()

    def why_not_exact(self, *, allow_constrained: bool = False) -> str:
        """Return the first thing that is not exact, "" if everything is; tokens under a mask may be allowed."""
        if self.faults:
            return self.faults[0]
        shares = {name: share for name, share in self._shares().items() if share not in {None, 1}}
        if self.foreign_control_tokens:
            shares["foreign_control_tokens"] = self.foreign_control_tokens
        if not shares and self.constrained and not allow_constrained:
            found = self.constraints[0] if self.constraints else f"{self.constrained} sampled tokens under a mask"
            return (
                f"{found}: their importance ratios are wrong; --allow-constrained (allow_constrained: true) takes them"
            )
        return ", ".join(f"{name} is {share:.4g}" for name, share in shares.items())

    def _shares(self) -> dict[str, float | None]:
        """Return the shares, None where there was nothing to count."""
        return {
            "sampled_trained_share": _share(self.trained, self.sampled),
            "turns_with_loss_share": _share(self.turns_with_loss, self.turns),
            "prefix_exact_share": _share(self.prefix_exact, self.continued),
            "template_parity": _share(self.parity_equal, self.parity_checked),
            "logprob_coverage": _share(self.with_logprob, self.sampled),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the report: shares in 0 … 1 (None where there was nothing to count), and the counts behind them."""
        return {
            **self._shares(),
            "samples_per_rollout": self.samples,
            "break_reasons": dict(self.break_reasons),
            "foreign_control_tokens": self.foreign_control_tokens,
            "constrained_tokens": self.constrained,
            "constraints": list(self.constraints),
            "counts": {name: getattr(self, name) for name in COUNTS},
            "faults": list(self.faults),
        }

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Exactness:
        """Read what `to_json` wrote, also before there were constrained tokens."""
        counts = {name: int(value["counts"][name]) for name in COUNTS if name != "constrained"}
        return cls(
            **counts,
            constrained=int(value["counts"].get("constrained", 0)),
            constraints=tuple(value.get("constraints", ())),
            break_reasons=value["break_reasons"],
            faults=tuple(value["faults"]),
        )

    def __add__(self, other: Exactness) -> Exactness:
        counts = {name: getattr(self, name) + getattr(other, name) for name in COUNTS}
        return Exactness(
            **counts,
            break_reasons=dict(Counter(self.break_reasons) + Counter(other.break_reasons)),
            constraints=self.constraints + other.constraints,
            faults=self.faults + other.faults,
        )


COUNTS: Final = tuple(name for name in Exactness.__slots__ if name not in {"break_reasons", "constraints", "faults"})


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@runtime_checkable
class ModelSession(Protocol):
    """One rollout's conversation with a model that records tokens."""

    async def chat(self, request: ModelRequest) -> ModelReply:
        """Sample one assistant turn; raises a `ModelError`."""

    def record_message(self, message: Message) -> None:
        """Take the message that the last reply became in the conversation; a different one later is an edit."""

    def samples(self) -> Sequence[TrainingSample]:
        """Return the training samples, with everything that was sampled so far, whatever happened."""

    def exactness(self) -> Exactness:
        """Return the report on these samples."""

    def managed_state(self) -> Mapping[str, Any]:
        """Return hermes-agent's form: `{"nodes": [{tokens, masked_tokens, logprobs, …}, …]}`, one node a sample."""


@runtime_checkable
class RecordingModel(Protocol):
    """A `ModelClient` that also keeps tokens: each rollout has its own session."""

    def session(self, rollout_id: str) -> ModelSession:
        """Start recording a rollout."""
