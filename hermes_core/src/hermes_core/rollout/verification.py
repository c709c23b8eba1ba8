"""The verification phase: stop everything, start a new agent, let the verifier judge, check its score."""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
from collections.abc import Mapping
from typing import Any

from hermes_core.contracts.errors import BackendError, HermesError, VerifierError
from hermes_core.contracts.events import RolloutScored
from hermes_core.contracts.rollout import AgentResult, Failure, RewardStatus
from hermes_core.contracts.verifier import Score
from hermes_core.rollout.boundary import EscapedError, contained
from hermes_core.rollout.context import RolloutContext
from hermes_core.rollout.record import RolloutRecord
from hermes_core.rollout.runtime import Runtime
from hermes_core.rollout.sync_context import SyncToolContext
from hermes_core.specs import Ref, VerifierSpec


async def verify(runtime: Runtime, context: RolloutContext, record: RolloutRecord) -> None:
    """Score a rollout whose model's part has ended; the record holds the score, or why there is none.

    `context` is one that no tool of the rollout has seen: a call that was abandoned must not reach the judge's sandbox.
    """
    ref = record.spec.task.verifier
    if ref is None or not record.can_be_judged:
        return
    try:
        with record.phase("verifier"):
            record.score = await _judge(runtime, context, record, ref)
        record.reward_status = RewardStatus.OK
    except Exception as error:  # noqa: BLE001 - whatever went wrong, there is no reward, and the run goes on
        record.reward_status, record.reward_failure = RewardStatus.ERROR, Failure.of(error)
    _announce(runtime, record)


def _announce(runtime: Runtime, record: RolloutRecord) -> None:
    score = record.score
    event = RolloutScored(
        rollout_id=record.spec.rollout_id,
        status=record.reward_status,
        reward=None if score is None else score.value,
        parts={} if score is None else score.parts,
    )
    runtime.registry.fire("hermes_rollout_scored", event)


async def _judge(runtime: Runtime, context: RolloutContext, record: RolloutRecord, ref: Ref) -> Score:
    if context.sandbox_or_none is not None:
        await context.sandbox.renew()
    result = record.agent_result(copy.deepcopy(list(record.conversation.messages)))
    judge = _Judge(runtime, context, result)
    context.verify_with = judge.score
    return await judge.score(ref.name, ref.options)


class _Judge:
    """Scores one result with verifiers by name, each in the style it was written in."""

    def __init__(self, runtime: Runtime, context: RolloutContext, result: AgentResult) -> None:
        self._runtime = runtime
        self._context = context
        self._result = result

    async def score(self, name: str, options: Mapping[str, Any]) -> Score:
        try:
            spec, verifier = self._runtime.verifier(name, options)
            if spec.access != "live":
                raise BackendError(
                    f"verifier {name!r} wants a {spec.access} sandbox, which no backend here offers",
                    hint="use a verifier with access 'live'",
                )
            return checked(await self._bounded(spec, verifier), spec)
        except HermesError as error:
            if not error.fatal:
                raise
            # What one task's verifier asks for in vain must not stop the other tasks.
            raise VerifierError(f"verifier {name!r}: {error.message}", hint=error.hint) from error

    async def _bounded(self, spec: VerifierSpec, verifier: Any) -> object:
        limit = self._runtime.verifier_timeout
        try:
            async with asyncio.timeout(limit) as timer:
                return await contained(self._call(spec, verifier))
        except HermesError:
            raise
        except TimeoutError as error:
            if not timer.expired():
                raise VerifierError(f"verifier {spec.name!r} raised TimeoutError: {error}") from error
            hint = "raise verifier_timeout, or make the verifier faster"
            raise VerifierError(f"verifier {spec.name!r} took more than {limit:g} s", hint=hint) from error
        except EscapedError as error:
            raise VerifierError(f"verifier {spec.name!r} raised {error}") from error
        except Exception as error:  # the plugin boundary: whatever it raises, there is no reward
            raise VerifierError(f"verifier {spec.name!r} raised {type(error).__name__}: {error}") from error

    async def _call(self, spec: VerifierSpec, verifier: Any) -> object:
        if inspect.iscoroutinefunction(verifier.score):
            return await verifier.score(self._result, self._context)
        sync = SyncToolContext(self._context)
        return await self._runtime.workers.run(spec.target, lambda: verifier.score(self._result, sync))


def checked(score: object, spec: VerifierSpec) -> Score:
    """Return the score if it is one: finite, within the declared bounds, with named finite parts and a text."""
    if not isinstance(score, Score):
        raise VerifierError(f"verifier {spec.name!r} returned {type(score).__name__}, wanted Score")
    parts: object = score.parts  # nobody checks a plugin's types but us
    detail: object = score.detail
    if not isinstance(parts, Mapping) or not all(isinstance(name, str) for name in parts):
        raise VerifierError(f"verifier {spec.name!r}: parts is {parts!r}, wanted a mapping of names to numbers")
    if not isinstance(detail, str):
        raise VerifierError(f"verifier {spec.name!r}: detail is a {type(detail).__name__}, wanted a text")
    numbers: dict[str, object] = {"value": score.value, **score.parts}
    for name, number in numbers.items():
        if not _is_finite(number):
            raise VerifierError(f"verifier {spec.name!r}: {name} is not a finite number but {str(number)[:100]}")
    low, high = spec.bounds
    if not low <= score.value <= high:
        raise VerifierError(f"verifier {spec.name!r}: value {score.value!r} is outside its bounds {low} to {high}")
    return score


def _is_finite(number: object) -> bool:
    if isinstance(number, bool) or not isinstance(number, int | float):
        return False
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer that no float can hold
        return False
