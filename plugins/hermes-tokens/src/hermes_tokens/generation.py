"""Token ids in and out: what a client of a token-level server must be, and what it is asked and answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from hermes_core.contracts.model import Usage
from hermes_core.contracts.tokens import WeightSpan

FinishReason = Literal["stop", "length", "abort"]


class TokenIds:
    """An append-only list of token ids, each serialised once.

    A prompt of turn n is the prompt of turn n - 1 with more ids at its end; a request is joined from bytes that are
    there already, so that long rollouts do not become quadratic.
    """

    __slots__ = ("_encoded", "_ids")

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._ids: list[int] = []
        self._encoded = bytearray()
        self.extend(ids)

    def extend(self, ids: Iterable[int]) -> None:
        """Add ids at the end."""
        added = list(ids)
        if not added:
            return
        if self._ids:
            self._encoded += b","
        self._ids += added
        self._encoded += ",".join(map(str, added)).encode("ascii")

    @property
    def ids(self) -> Sequence[int]:
        """The ids, first to last; do not change them."""
        return self._ids

    def json_array(self) -> bytes:
        """Return the ids as a JSON array."""
        return b"[%b]" % bytes(self._encoded)

    def __len__(self) -> int:
        return len(self._ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One turn at token level. `sampling` has OpenAI's names (temperature, top_p, max_tokens, seed, stop_token_ids, …).

    `request_id` is unique per attempt and lets the server abort it. `timeout` is seconds to the rollout's deadline.
    """

    prompt: TokenIds
    sampling: Mapping[str, Any] = field(default_factory=dict)
    request_id: str = ""
    rollout_id: str = ""
    seed: int = 0
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """What the server sampled: ids as sampled, the stop token included where it was, and one logprob or None for each.

    `weight_versions` are spans over `ids`. `prompt_echo` is the prompt as the server saw it, where it tells.
    `constraints` names the sampling parameters for which the tokens were not drawn from what the logprobs tell of.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    finish_reason: FinishReason
    stop_id: int | None = None
    weight_versions: tuple[WeightSpan, ...] = ()
    prompt_echo: tuple[int, ...] | None = None
    usage: Usage = field(default_factory=Usage)
    constraints: tuple[str, ...] = ()


@runtime_checkable
class GenerateClient(Protocol):
    """Talks to one token-level server. One object per runtime, shared by its rollouts, used on its event loop."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What is recorded with the rollout: protocol, address without credentials, model, kind of logprob."""
        ...

    async def check(self) -> None:
        """Raise a `ModelError` unless the server answers and can do what the protocol needs; once before a run."""
        ...

    async def generate(self, request: GenerateRequest) -> Generated:
        """Sample one turn; raises a `ModelError` after its own bounded retries. Cancelled: aborts on the server."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...
