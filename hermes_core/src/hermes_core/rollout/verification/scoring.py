"""The verification phase: stop everything, start a new agent, call the verifier, check its score."""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from hermes_core.contracts.errors import (
    BackendError,
    Blame,
    HermesError,
    NoVerdictError,
    VerifierError,
    VerifierTimeoutError,
)
from hermes_core.contracts.events import RolloutScored
from hermes_core.contracts.rollout import AgentResult, Failure, RewardStatus, StopReason
from hermes_core.contracts.verifier import Score
from hermes_core.rollout.plugin_calls.context import RolloutContext
from hermes_core.rollout.plugin_calls.plugin_guard import PluginEscapeError, error_location, guard_plugin_call
from hermes_core.rollout.plugin_calls.sync_context import SyncToolContext
from hermes_core.rollout.record import RolloutRecord
from hermes_core.rollout.runtime import Runtime
from hermes_core.rollout.verification.artifacts import await_answer
from hermes_core.rollout.verification.blame import is_about_data, is_suspect, is_workspace_error, works_untouched
from hermes_core.rollout.verification.integrity import Seal
from hermes_core.rollout.verification.verifier_sandboxes import VerifierSandboxes
from hermes_core.specs import Access, Ref, VerifierSpec


async def verify(runtime: Runtime, context: RolloutContext, record: RolloutRecord, seal: Seal) -> None:
    """Score a rollout whose model's part has ended; the record holds the score, or why there is none.

    `context` must be a new one: a tool's call that was abandoned must not reach the verifier's sandbox.
    `seal` was taken before the model's part.
    """
    ref = record.spec.task.verifier
    if ref is None or not record.can_be_judged:
        return
    with record.phase("verifier"):
        try:
            record.score = await _judge(runtime, context, record, ref, seal)
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the run goes on
            record.score = await _score_after(error, runtime, context, record, seal)
            record.reward_failure = Failure.of(error) if record.score is None else None
    record.reward_status = RewardStatus.ERROR if record.score is None else RewardStatus.OK
    _announce(runtime, record)


async def settle_loss(
    error: BackendError, runtime: Runtime, context: RolloutContext, record: RolloutRecord, seal: Seal
) -> None:
    """Decide about a rollout whose sandbox was lost during its model's part: no reward, or the lowest if repeated."""
    if record.spec.task.verifier is None:
        return
    with record.phase("verifier"):
        record.score = await _score_after(error, runtime, context, record, seal)
    if record.score is not None:
        record.failure = replace(Failure.of(error), blame=Blame.MODEL, retryable=False)
        record.stop_reason, record.reward_status = StopReason.SANDBOX_DESTROYED, RewardStatus.OK
        _announce(runtime, record)


async def _score_after(
    error: Exception, runtime: Runtime, context: RolloutContext, record: RolloutRecord, seal: Seal
) -> Score | None:
    """Return the lowest score if the rollout is to blame that it cannot be judged, else None.

    If that cannot be decided, the rollout becomes suspect, and a second attempt decides. Other rollouts may have
    ended a shared sandbox in both attempts.
    """
    ref = cast("Ref", record.spec.task.verifier)
    suspect = is_suspect(record, error)
    record.suspect = suspect and not record.spec.suspect
    is_blameless = suspect and record.provenance["sandbox"].get("shared", False)
    if record.suspect or is_blameless or not (suspect or is_workspace_error(record, error)):
        return None

    async def judge_in(sandboxes: VerifierSandboxes, result: AgentResult) -> Score:
        return await _Judge(runtime, sandboxes, result).score(ref.name, ref.options)

    if not await works_untouched(runtime, context, record, judge_in, must_score=not suspect):
        return None
    if not suspect:
        try:
            # The time used so far was not the rollout's, and a busy machine must not put the blame on anybody.
            return await _judge(runtime, context, record, ref, seal, patience=2)
        except Exception as repeated:  # noqa: BLE001 - whatever went wrong, the run goes on
            # A second attempt decides whether the verifier is to blame.
            record.suspect = isinstance(repeated, NoVerdictError) and not record.spec.suspect
            if record.suspect or not is_workspace_error(record, repeated):
                return None
    return _lowest(runtime, ref, f"the rollout's own files keep it from being judged: {str(error)[:500]}")


def _announce(runtime: Runtime, record: RolloutRecord) -> None:
    score = record.score
    reward, parts = None if score is None else score.value, {} if score is None else score.parts
    event = RolloutScored(rollout_id=record.spec.rollout_id, status=record.reward_status, reward=reward, parts=parts)
    runtime.registry.fire("hermes_rollout_scored", event)


async def _judge(
    runtime: Runtime, context: RolloutContext, record: RolloutRecord, ref: Ref, seal: Seal, *, patience: int = 1
) -> Score:
    if context.sandbox_or_none is not None:
        await context.sandbox.renew()
    await seal.check_inputs()
    used = record.provenance.setdefault("verification", {})
    used |= {"inputs": seal.inputs, "protected": seal.protected}
    if context.sandbox_or_none is not None and (
        broken := await await_answer(seal.find_broken(context.sandbox), patience * runtime.verifier_timeout)
    ):
        used["tampered"] = broken
        more = f" and {len(broken) - 4} more" if len(broken) > 4 else ""
        return _lowest(runtime, ref, f"the rollout changed protected paths: {', '.join(broken[:4])}{more}")
    result = record.agent_result(copy.deepcopy(list(record.conversation.messages)))
    async with VerifierSandboxes(runtime, context, record, patience=patience) as sandboxes:
        return await _Judge(runtime, sandboxes, result, patience=patience).score(ref.name, ref.options)


def _lowest(runtime: Runtime, ref: Ref, detail: str) -> Score:
    spec = cast("VerifierSpec", runtime.registry.spec("verifier", ref.name))
    low = spec.bounds[0] if math.isfinite(spec.bounds[0]) else 0.0
    return Score(value=low if spec.lowest is None else spec.lowest, detail=detail)


class _Judge:
    """Scores one result with verifiers by name, whether they were written with `async def` or `def`."""

    def __init__(
        self, runtime: Runtime, sandboxes: VerifierSandboxes, result: AgentResult, *, patience: int = 1
    ) -> None:
        self._runtime = runtime
        self._limit = patience * runtime.verifier_timeout
        self._sandboxes = sandboxes
        self._result = result

    async def score(self, name: str, options: Mapping[str, Any], *, least: Access = "live") -> Score:
        """Score with one verifier; `least` is the access of the verifier that asks."""
        try:
            spec, verifier = self._runtime.verifier(name, options)
            return check_score(await self._score_in_time(spec, verifier, self._sandboxes.access(spec, least)), spec)
        except HermesError as error:
            if not error.fatal:
                raise
            # A sandbox that one task's verifier cannot get must not stop the other tasks.
            raise VerifierError(f"verifier {name!r}: {error.message}", hint=error.hint) from error

    async def _score_in_time(self, spec: VerifierSpec, verifier: Any, access: Access) -> object:
        timer = asyncio.timeout(None)
        try:
            # Before its time begins: copying a rollout's files must not use up the verifier's time.
            context = await self._sandboxes.at(spec, access)
            async with timer:
                return await guard_plugin_call(self._call(spec, verifier, access, context, timer))
        except HermesError:
            raise
        except Exception as error:  # the plugin boundary: whatever it raises, there is no reward
            if isinstance(error, TimeoutError) and timer.expired():
                said, hint = f"took more than {self._limit:g} s", "raise verifier_timeout, or make the verifier faster"
                raise VerifierTimeoutError(f"verifier {spec.name!r} {said}", hint=hint) from error
            said = str(error) if isinstance(error, PluginEscapeError) else f"{type(error).__name__}: {error}"
            kind = NoVerdictError if is_about_data(error) else VerifierError
            raise kind(f"verifier {spec.name!r} raised {said} ({error_location(error, verifier)})") from error

    async def _call(
        self, spec: VerifierSpec, verifier: Any, access: Access, context: RolloutContext, timer: asyncio.Timeout
    ) -> object:
        def begin() -> None:
            timer.reschedule(asyncio.get_running_loop().time() + self._limit)

        context.verify_with = partial(self.score, least=access)
        if inspect.iscoroutinefunction(verifier.score):
            begin()
            return await verifier.score(self._result, context)
        sync = SyncToolContext(context)
        return await self._runtime.workers.run(spec.target, lambda: verifier.score(self._result, sync), begin)


def check_score(score: object, spec: VerifierSpec) -> Score:
    """Return the score if it is valid: finite, within the declared bounds, with named finite parts and a text."""
    if not isinstance(score, Score):
        raise VerifierError(f"verifier {spec.name!r}: expected a Score, got {type(score).__name__}")
    parts: object = score.parts  # a plugin's types are checked only here
    detail: object = score.detail
    if not isinstance(parts, Mapping) or not all(isinstance(name, str) for name in parts):
        raise VerifierError(f"verifier {spec.name!r}: parts: expected a mapping of names to numbers, got {parts!r}")
    if not isinstance(detail, str):
        raise VerifierError(f"verifier {spec.name!r}: detail: expected a text, got {type(detail).__name__}")
    numbers: dict[str, object] = {"value": score.value, **score.parts}
    for name, number in numbers.items():
        if not _is_finite(number):
            raise NoVerdictError(f"verifier {spec.name!r}: {name}: expected a finite number, got {str(number)[:100]}")
    low, high = spec.bounds
    if not low <= score.value <= high:
        raise NoVerdictError(f"verifier {spec.name!r}: value {score.value!r} is outside its bounds {low} to {high}")
    return score


def _is_finite(number: object) -> bool:
    if isinstance(number, bool) or not isinstance(number, int | float):
        return False
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer that no float can hold
        return False
