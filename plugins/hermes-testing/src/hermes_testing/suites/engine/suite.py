"""The suite every rollout engine passes."""

from __future__ import annotations

from hermes_testing.suites.engine.endings import Endings
from hermes_testing.suites.engine.events import Events
from hermes_testing.suites.engine.outcomes import Outcomes
from hermes_testing.suites.engine.refusals import Refusals
from hermes_testing.suites.engine.worker_losses import Losses


class EngineSuite(Outcomes, Events, Refusals, Losses, Endings):
    """Behaviour of a rollout engine, in whole runs with a scripted model.

    Set `plugin`, `component` and `options`, which must allow `at_once` concurrent rollouts; with `loss_options` there
    must be two workers, if it has workers. They must be able to import hermes-testing and to reach `model_host`.
    Capabilities that may be named in `lacks`:

    - `workers`: rollouts run in separate processes, which can be lost.
    - `visible_processes`: this machine sees the processes of the rollouts' sandboxes.
    """
