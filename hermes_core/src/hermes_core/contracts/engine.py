"""Where rollouts are played: in this process, or by workers elsewhere.

What must be one stays with the run: tasks, plan, ledger, resume, policy, sinks and summary. An engine plays the single
rollout that it is handed, wherever it likes, and gives back its outcome.
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


def _unheard(_rollout_id: str) -> None:
    """Nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """The run that an engine plays rollouts of.

    `config` is the run's configuration as JSON values. `tasks` are those that an embedded model plays from; a rollout
    brings its own task along. `api_key` is the model server's: an engine hands it on in memory and never writes it.
    `turned` is to be called with a rollout's id for each answer of the model, on the run's event loop. Events to
    plugins go to `registry`, on the same loop, whichever process they happened in.
    """

    run_id: str
    config: Mapping[str, Any]
    registry: Registry
    tasks: tuple[Task, ...] = ()
    api_key: str | None = field(default=None, repr=False)
    max_concurrent: int = 16
    turned: Callable[[str], None] = field(default=_unheard, repr=False)


@runtime_checkable
class RolloutEngine(Protocol):
    """Plays rollouts. Made once per run, used on its event loop."""

    @property
    def capacity(self) -> int | None:
        """How many rollouts it plays at a time, None for as many as it is asked; read once, after `open`."""
        ...

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What the summary says of it: JSON values, read after `open`, also one that failed, and at the end.

        An engine that knows them says `leftovers` (`removed`, `failed`), the numbers of sandboxes of processes that had
        died which `open` has removed or could not remove, and from `aclose` on `sandboxes_left`, those of its own that
        are still there.
        `unconfirmed` counts the cancelled rollouts of which it is not known whether they have closed their sandboxes.
        The summary's table counts `workers` (a list of mappings with `node`) and `lost_workers`.
        """
        ...

    async def open(self, run: EngineRun) -> None:
        """Get ready to play; what the run cannot begin with is raised here, as a `HermesError` that says what to do."""
        ...

    async def refusals(self, tasks: Sequence[Task]) -> Mapping[str, HermesError]:
        """Say, by task id, what keeps a task from being played where it plays: its sandbox cannot be had, say.

        Called once, before the first rollout. The tasks it names are not played; they stop no other.
        """
        ...

    async def play(self, rollout: RolloutSpec) -> RolloutOutcome:
        """Play one attempt and return its outcome, exactly as it came to be.

        An attempt that was lost with its worker raises `EngineLostError`; the run's policy decides about another one. A
        fatal error stops the run. Cancelled, it ends the rollout where it is played, and returns when that is done.
        """
        ...

    async def aclose(self) -> None:
        """Let everything go; called once, after a failed `open` too. What it raises is a warning of the run."""
        ...
