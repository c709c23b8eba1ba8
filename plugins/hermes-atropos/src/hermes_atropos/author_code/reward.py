"""The environment's own `compute_reward` as a verifier, so that the engine's verification phase calls it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from hermes_atropos import AgentResult
from hermes_atropos.author_code.author_context import AuthorContext
from hermes_atropos.author_code.bridged_context import reward_of
from hermes_atropos.model_servers.nodes import with_nodes
from hermes_core.contracts.errors import VerifierError
from hermes_core.contracts.verifier import Score
from hermes_core.specs import Declaration, Ref, VerifierSpec

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

COMPUTE_REWARD: Final = "compute_reward"

Compute = Callable[[Any, AgentResult, Any], Any]
"""`compute_reward(item, result, ctx)`: a number or a `Score`, or an awaitable of one."""


class AwaitedReward:
    """A `compute_reward` that is a coroutine function; runs on the event loop, its context's calls awaited or not."""

    def __init__(self, compute: Compute, item: Any, missing_tools: set[str]) -> None:
        self._compute = compute
        self._item = item
        self._missing_tools = missing_tools

    async def score(self, result: AgentResult, context: Any) -> Score:
        """Judge one rollout."""
        return as_score(
            await reward_of(self._compute, self._item, with_nodes(result), AuthorContext(context, self._missing_tools))
        )


class CalledReward:
    """A `compute_reward` that is an ordinary function; runs in a worker thread with the synchronous context."""

    def __init__(self, compute: Compute, item: Any, missing_tools: set[str]) -> None:
        self._compute = compute
        self._item = item
        self._missing_tools = missing_tools

    def score(self, result: AgentResult, context: Any) -> Score:
        """Judge one rollout."""
        # The synchronous context is this call's own.
        context.asynchronous = AuthorContext(context.asynchronous, self._missing_tools)
        return as_score(self._compute(self._item, with_nodes(result), context))


def as_score(value: Any) -> Score:
    """Take a number of any library (NumPy's, a tensor of one element, a bool) for a score; None is none."""
    if isinstance(value, Score):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise VerifierError(
            f"compute_reward returned {type(value).__name__}, a number was wanted",
            hint="return a float; raise an exception where a rollout cannot be judged",
        ) from error
    return Score(value=number)


class RewardRegistry:
    """A registry with one verifier more, `compute_reward` of one environment; all else is the registry's own.

    `missing_tools` are those that the environment's own code asked for and that a warning has named.
    """

    def __init__(self, registry: Registry, compute: Compute, *, needs_sandbox: bool, lowest: float) -> None:
        self._registry = registry
        self._compute = compute
        self.missing_tools: set[str] = set()
        self._made = AwaitedReward if inspect.iscoroutinefunction(compute) else CalledReward
        self._spec = VerifierSpec(
            name=COMPUTE_REWARD,
            summary="The environment's compute_reward.",
            target=f"hermes_atropos.author_code.reward:{self._made.__name__}",
            needs_sandbox=needs_sandbox,
            bounds=(-math.inf, math.inf),
            lowest=lowest,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def spec(self, kind: str, name: str) -> Declaration:
        """Return a declaration; see `Registry.spec`."""
        return self._spec if (kind, name) == ("verifier", COMPUTE_REWARD) else self._registry.spec(kind, name)

    def create(self, kind: str, name: str, options: Mapping[str, Any] | None = None) -> Any:
        """Build a component; see `Registry.create`."""
        if (kind, name) == ("verifier", COMPUTE_REWARD):
            return self._made(self._compute, (options or {}).get("item"), self.missing_tools)
        return self._registry.create(kind, name, options)


def reward_ref(item: Any) -> Ref:
    """Name the environment's own verifier for one item."""
    return Ref(kind="verifier", name=COMPUTE_REWARD, options={"item": item})
