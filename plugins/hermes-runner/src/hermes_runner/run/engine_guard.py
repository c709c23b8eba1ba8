"""The run's engine, held to its contract: whatever it does, each attempt ends in one outcome of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from hermes_core.contracts.engine import EngineRun, RolloutEngine
from hermes_core.contracts.errors import BrokenComponentError, EngineLostError, HermesError
from hermes_core.contracts.events import RolloutFinished
from hermes_core.contracts.rollout import RolloutOutcome
from hermes_core.contracts.task import Task
from hermes_core.discovery import Registry
from hermes_core.redaction import SecretScrubber
from hermes_core.rollout import RolloutSpec, failed_outcome, guard_plugin_call
from hermes_runner.run.closing import closing_error, closing_warning


class RunEngine:
    """One engine by name. What it raises for a rollout becomes that attempt's outcome, unless it must stop the run."""

    def __init__(
        self, registry: Registry, name: str, options: Mapping[str, Any], *, scrubber: SecretScrubber | None = None
    ) -> None:
        self._registry = registry
        self._scrubber = scrubber or SecretScrubber(())
        self._name = name
        self._engine = cast("RolloutEngine", registry.create("engine", name, options))

    async def open(self, run: EngineRun) -> None:
        """Open it; what it raises that is no error of ours names it."""
        try:
            await guard_plugin_call(self._engine.open(run))
        except HermesError:
            raise
        except Exception as error:  # the plugin boundary
            raise self._fault(f"raised {type(error).__name__} as it was opened: {error}") from error

    async def refusals(self, tasks: Sequence[Task]) -> Mapping[str, HermesError]:
        """Return what keeps tasks from being played, by their ids."""
        return await guard_plugin_call(self._engine.refusals(tasks))

    def concurrency(self, wanted: int) -> int:
        """Return how many rollouts are to be in flight."""
        capacity = self._engine.capacity
        return wanted if capacity is None else max(1, min(wanted, capacity))

    @property
    def provenance(self) -> dict[str, Any]:
        """The engine's name, and what it says of itself."""
        found: dict[str, Any] = self._scrubber.values({"name": self._name, **self._engine.provenance})
        return found

    async def run_rollout(self, rollout: RolloutSpec) -> RolloutOutcome:
        """Play one attempt; an attempt that the engine lost ends in an outcome that says so."""
        try:
            outcome = await guard_plugin_call(self._engine.run_rollout(rollout))
        except HermesError as error:
            if error.fatal:
                raise
            return self._lost_outcome(rollout, error)
        except Exception as error:  # noqa: BLE001 - the plugin boundary: the attempt is lost, whatever it raised
            text = f"engine {self._name!r} raised {type(error).__name__}: {error}"
            return self._lost_outcome(rollout, EngineLostError(text))
        self._check(rollout, outcome)
        return self._scrubber.outcome(outcome)

    async def aclose(self) -> HermesError | None:
        """Close it; returns what is left of it, and what removes that, where it cannot be closed.

        What was recorded before is worth as much as without it: nothing but a cancellation is raised.
        """
        error = await closing_error(self._engine.aclose())
        if error is None:
            return None
        return self._scrubber.error(closing_warning(f"engine {self._name!r}", error, self._leftovers()))

    def _leftovers(self) -> str:
        with contextlib.suppress(
            Exception
        ):  # the plugin boundary: an engine that cannot be closed may not know any more
            left = self.provenance.get("sandboxes_left")
            return f"; of its sandboxes {left} may be left" if left else ""
        return ""

    def _lost_outcome(self, rollout: RolloutSpec, error: HermesError) -> RolloutOutcome:
        outcome = failed_outcome(rollout, self._scrubber.error(error))
        if self._registry.listens("hermes_rollout_finished"):
            event = RolloutFinished(rollout_id=outcome.rollout_id, outcome=outcome.to_json())
            self._registry.fire("hermes_rollout_finished", event)
        return outcome

    def _check(self, rollout: RolloutSpec, outcome: object) -> None:
        if not isinstance(outcome, RolloutOutcome):
            raise self._fault(f"gave back {type(outcome).__name__}, wanted RolloutOutcome")
        wanted, found = (rollout.rollout_id, rollout.attempt), (outcome.rollout_id, outcome.attempt)
        if wanted != found:
            raise self._fault(f"gave back attempt {found[1]} of {found[0]}, wanted attempt {wanted[1]} of {wanted[0]}")

    def _fault(self, what: str) -> BrokenComponentError:
        return BrokenComponentError(
            f"engine {self._name!r} {what}", hint=f"hermes-core plugins show engine:{self._name}"
        )
