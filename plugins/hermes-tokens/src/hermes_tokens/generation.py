"""The contract of a token-level client: `GenerateClient`, its request and its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from hermes_core.contracts.model import Usage
from hermes_core.contracts.tokens import WeightSpan

FinishReason = Literal["stop", "length", "abort"]


class TokenIds:
    """An append-only list of token ids, each serialised once.

    The prompt of turn n is the prompt of turn n - 1 with more ids at its end; a request reuses the serialised bytes, so
    that long rollouts do not become quadratic.
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
        """All ids in order; do not modify them."""
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
    """The sampled turn: ids as sampled, including a sampled stop token, and one logprob or None for each.

    `weight_versions` are spans over `ids`. `prompt_echo` is the prompt as the server saw it, if it sends it.
    `constraints` names the sampling parameters that make the logprobs invalid as sampling probabilities.
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
    """A client of one token-level server: one object per runtime, shared by its rollouts, used on one event loop."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Recorded with each rollout: protocol, address without credentials, model, kind of logprob."""
        ...

    async def check(self) -> None:
        """Raise a `ModelError` unless the server answers and supports the protocol; called once before a run."""
        ...

    async def generate(self, request: GenerateRequest) -> Generated:
        """Sample one turn; raise a `ModelError` after bounded retries. When cancelled, abort on the server."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...
