"""Wrap the environment's own `compute_reward` as a verifier for the verification phase."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, Final

from pydantic import BaseModel

from hermes_atropos.author_code.author_context import AuthorContext
from hermes_atropos.author_code.bridged_context import reward_of
from hermes_atropos.model_servers.nodes import with_nodes
from hermes_core.contracts.errors import VerifierError
from hermes_core.contracts.rollout import AgentResult
from hermes_core.contracts.verifier import Score
from hermes_core.specs import Ref, VerifierSpec

COMPUTE_REWARD: Final = "compute_reward"

Compute = Callable[[Any, AgentResult, Any], Any]
"""`compute_reward(item, result, ctx)`: a number or a `Score`, or an awaitable of one."""


class AwaitedReward:
    """A `compute_reward` that is a coroutine function: runs on the event loop; calls may omit `await`."""

    def __init__(self, compute: Compute, item: Any, missing_tools: set[str]) -> None:
        self._compute = compute
        self._item = item
        self._missing_tools = missing_tools

    async def score(self, result: AgentResult, context: Any) -> Score:
        """Score one rollout."""
        return as_score(
            await reward_of(self._compute, self._item, with_nodes(result), AuthorContext(context, self._missing_tools))
        )


class CalledReward:
    """A `compute_reward` that is an ordinary function: runs in a worker thread with the synchronous context."""

    def __init__(self, compute: Compute, item: Any, missing_tools: set[str]) -> None:
        self._compute = compute
        self._item = item
        self._missing_tools = missing_tools

    def score(self, result: AgentResult, context: Any) -> Score:
        """Score one rollout."""
        # The synchronous context is this call's own.
        context.asynchronous = AuthorContext(context.asynchronous, self._missing_tools)
        return as_score(self._compute(self._item, with_nodes(result), context))


def as_score(value: Any) -> Score:
    """Convert a number of any library (NumPy, a tensor of one element, a bool) to a score; refuse None."""
    if isinstance(value, Score):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise VerifierError(
            f"expected compute_reward to return a number, got {type(value).__name__}",
            hint="return a float; raise an exception if a rollout cannot be judged",
        ) from error
    return Score(value=number)


class RewardMaker:
    """Creates the verifier `compute_reward` of one environment for the rollouts of one item.

    `missing_tools` are the unavailable tools that were already warned about.
    """

    class Options(BaseModel):
        """The options set by `reward_ref`."""

        item: Any

    def __init__(self, compute: Compute, missing_tools: set[str]) -> None:
        self._compute = compute
        self._missing_tools = missing_tools
        self._style = AwaitedReward if inspect.iscoroutinefunction(compute) else CalledReward

    def __call__(self, options: Options) -> AwaitedReward | CalledReward:
        """Create the verifier."""
        return self._style(self._compute, options.item, self._missing_tools)


def reward_spec(*, needs_sandbox: bool, lowest: float) -> VerifierSpec:
    """Declare the environment's own verifier."""
    return VerifierSpec(
        name=COMPUTE_REWARD,
        summary="The environment's compute_reward.",
        target=f"{__name__}:{RewardMaker.__name__}",
        needs_sandbox=needs_sandbox,
        bounds=(-math.inf, math.inf),
        lowest=lowest,
    )


def reward_ref(item: Any) -> Ref:
    """Return the reference to the environment's own verifier for one item."""
    return Ref(kind="verifier", name=COMPUTE_REWARD, options={"item": item})
