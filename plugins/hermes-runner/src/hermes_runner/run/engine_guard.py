"""Guards a run's engine, so that each attempt ends in exactly one outcome, whatever the engine does."""

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
    """Wraps the engine of a name. An error in a rollout becomes that attempt's outcome, unless it must stop the run."""

    def __init__(
        self, registry: Registry, name: str, options: Mapping[str, Any], *, scrubber: SecretScrubber | None = None
    ) -> None:
        self._registry = registry
        self._scrubber = scrubber or SecretScrubber(())
        self._name = name
        self._engine = cast("RolloutEngine", registry.create("engine", name, options))

    async def open(self, run: EngineRun) -> None:
        """Open the engine; an exception other than a `HermesError` becomes an error that names the engine."""
        try:
            await guard_plugin_call(self._engine.open(run))
        except HermesError:
            raise
        except Exception as error:  # the plugin boundary
            raise self._fault(f"raised {type(error).__name__} as it was opened: {error}") from error

    async def refusals(self, tasks: Sequence[Task]) -> Mapping[str, HermesError]:
        """Return the errors of the tasks that the engine cannot run, by task id."""
        return await guard_plugin_call(self._engine.refusals(tasks))

    def concurrency(self, wanted: int) -> int:
        """Return how many rollouts run at a time: `wanted`, or the engine's capacity if that is less."""
        capacity = self._engine.capacity
        return wanted if capacity is None else max(1, min(wanted, capacity))

    @property
    def provenance(self) -> dict[str, Any]:
        """The engine's name and its own provenance, without secrets."""
        found: dict[str, Any] = self._scrubber.values({"name": self._name, **self._engine.provenance})
        return found

    async def run_rollout(self, rollout: RolloutSpec) -> RolloutOutcome:
        """Run one attempt; if the engine loses it, return an outcome that says so."""
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
        """Close the engine; if that fails, return a warning that says what is left and what removes it.

        Nothing but a cancellation is raised, because a failed close makes no recorded rollout less valid.
        """
        error = await closing_error(self._engine.aclose())
        if error is None:
            return None
        return self._scrubber.error(closing_warning(f"engine {self._name!r}", error, self._leftovers()))

    def _leftovers(self) -> str:
        with contextlib.suppress(Exception):  # the plugin boundary: an engine that cannot be closed may not know
            left = self.provenance.get("sandboxes_left")
            return f"; {left} of its sandboxes may be left" if left else ""
        return ""

    def _lost_outcome(self, rollout: RolloutSpec, error: HermesError) -> RolloutOutcome:
        outcome = failed_outcome(rollout, self._scrubber.error(error))
        if self._registry.listens("hermes_rollout_finished"):
            event = RolloutFinished(rollout_id=outcome.rollout_id, outcome=outcome.to_json())
            self._registry.fire("hermes_rollout_finished", event)
        return outcome

    def _check(self, rollout: RolloutSpec, outcome: object) -> None:
        if not isinstance(outcome, RolloutOutcome):
            raise self._fault(f"was expected to return a RolloutOutcome, got {type(outcome).__name__}")
        expected, found = (rollout.rollout_id, rollout.attempt), (outcome.rollout_id, outcome.attempt)
        if expected != found:
            raise self._fault(
                f"was expected to return attempt {expected[1]} of {expected[0]}, got attempt {found[1]} of {found[0]}"
            )

    def _fault(self, what: str) -> BrokenComponentError:
        return BrokenComponentError(
            f"engine {self._name!r} {what}", hint=f"hermes-core plugins show engine:{self._name}"
        )
