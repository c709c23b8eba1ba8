"""Where rollouts run: in this process, or by workers elsewhere.

The run keeps what exists once: tasks, plan, ledger, resume, policy, sinks and summary. An engine runs one
rollout, at a place of its choice, and returns its outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hermes_core.contracts.errors import HermesError
from hermes_core.contracts.rollout import RolloutOutcome
from hermes_core.contracts.task import Task

if TYPE_CHECKING:
    from hermes_core.discovery import Registry
    from hermes_core.rollout import RolloutSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """The run to which an engine's rollouts belong.

    `config` is the run's configuration as JSON values. `tasks` are for embedded models, which follow their
    solutions; a rollout carries its own task. `api_key` is the model server's: an engine passes it on in memory and
    never writes it. Call `on_turn` with the rollout's id for each reply of the model, on the run's event loop. Events
    for plugins go to `registry`, on the same loop, whichever process they happened in.
    """

    run_id: str
    config: Mapping[str, Any]
    registry: Registry
    tasks: tuple[Task, ...] = ()
    api_key: str | None = field(default=None, repr=False)
    max_concurrent: int = 16
    on_turn: Callable[[str], None] = field(default=lambda _: None, repr=False)


@runtime_checkable
class RolloutEngine(Protocol):
    """Runs rollouts. Made once per run, used on its event loop."""

    @property
    def capacity(self) -> int | None:
        """How many rollouts it runs at a time, None for no bound; read once, after `open`."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What the summary says of the engine: JSON values, read after `open`, also a failed one, and at the end.

        An engine that knows the numbers gives `leftovers` (`removed`, `failed`: the sandboxes of dead processes that
        `open` removed or failed to remove), and after `aclose` `sandboxes_left`, how many of its own sandboxes
        still exist.
        `unconfirmed` counts the cancelled rollouts that may not have closed their sandboxes.
        The summary's table counts `workers` (a list of mappings with `node`) and `lost_workers`.
        """

    async def open(self, run: EngineRun) -> None:
        """Prepare to run rollouts; raise a `HermesError` that says what to do if the run cannot begin."""

    async def refusals(self, tasks: Sequence[Task]) -> Mapping[str, HermesError]:
        """Return, by task id, why a task cannot run on this engine, such as a sandbox that cannot be made.

        Called once, before the first rollout. The tasks it names are skipped; the others run.
        """

    async def run_rollout(self, rollout: RolloutSpec) -> RolloutOutcome:
        """Run one attempt and return its outcome unchanged.

        If the worker and its attempt are lost, raise `EngineLostError`; the run's policy decides whether to retry. A
        fatal error stops the run. When cancelled, end the rollout where it runs before returning.
        """

    async def aclose(self) -> None:
        """Release everything; called once, also after a failed `open`. An error raised here becomes a warning."""
