"""Every hook, on one page.

Hooks are synchronous declarations and events; a coroutine function is rejected when a plugin loads. Asynchronous work
belongs to the methods of components (see `hermes_core.contracts`). Those that declare are called once per plugin, by
`discovery.load_plugins`, and must not import what they declare; `Registry.create` does, when a component is first used.
Events are sent by `Registry.fire`: called on the event loop, they must not block, and an error is recorded, not raised.
"""

# A specification is never called: it has no body that could return what its annotation says.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_core import specs
    from hermes_core.contracts import events, sandbox

hookspec = pluggy.HookspecMarker("hermes_core")
hookimpl = pluggy.HookimplMarker("hermes_core")


@hookspec
def hermes_tools() -> Iterable[specs.ToolSpec]:
    """Declare tools; each target gives a `contracts.tool.Tool`."""


@hookspec
def hermes_backends() -> Iterable[specs.BackendSpec]:
    """Declare terminal backends; each target gives a `contracts.sandbox.TerminalBackend`."""


@hookspec
def hermes_parsers() -> Iterable[specs.ParserSpec]:
    """Declare tool-call parsers; each target gives a `contracts.parsing.ToolCallParser`."""


@hookspec
def hermes_models() -> Iterable[specs.ModelSpec]:
    """Declare model clients and embedded models; each target gives a `contracts.model.ModelProvider`."""


@hookspec
def hermes_verifiers() -> Iterable[specs.VerifierSpec]:
    """Declare reward verifiers; each target gives a `contracts.verifier.Verifier`."""


@hookspec
def hermes_toolsets() -> Iterable[specs.ToolsetSpec]:
    """Declare toolsets, names for groups of tools; they have no target."""


@hookspec
def hermes_toolset_distributions() -> Iterable[specs.ToolsetDistributionSpec]:
    """Declare distributions, toolsets with the probability that a group is offered each; they have no target."""


@hookspec
def hermes_task_sources() -> Iterable[specs.TaskSourceSpec]:
    """Declare readers of task files and folders; each target gives a `contracts.task.TaskSource`."""


@hookspec
def hermes_sinks() -> Iterable[specs.SinkSpec]:
    """Declare writers of finished rollouts; each target gives a `contracts.events.Sink`."""


@hookspec
def hermes_engines() -> Iterable[specs.EngineSpec]:
    """Declare rollout engines; each target gives a `contracts.engine.RolloutEngine`."""


@hookspec
def hermes_runtime_services() -> Iterable[specs.ServiceSpec]:
    """Declare what tools keep for all rollouts of one runtime; each target gives a `contracts.tool.RuntimeService`."""


@hookspec
def hermes_lease_stores() -> Iterable[specs.LeaseStoreSpec]:
    """Declare where leases of sandboxes are written; each target gives a `contracts.leases.LeaseStore`."""


@hookspec
def hermes_cli_commands() -> Iterable[specs.CommandSpec]:
    """Declare subcommands of `hermes-core`; each target gives a `contracts.command.Command`.

    A name of the core's own commands is refused. Plugins are not loaded for the core's commands' sake.
    """


@hookspec
def hermes_parser_for(model_id: str, chat_template: str) -> str | None:
    """Name the parser for a model, or None. All answers are collected; two different ones are an error naming both.

    `chat_template` is the Jinja text of the run's tokenizer, "" if there is none. Called when a run has a model but no
    parser; the config's `tool_call_parser` always wins.
    """


@hookspec
def hermes_run_backends(config: Path) -> sandbox.RunBackends | None:
    """Read what a run's config file asks of terminal backends; None for a file that is another plugin's.

    Called by commands that look at backends without a run, as `doctor --config` does. A `HermesError` says what is
    wrong with the file; it counts where no other plugin answers.
    """


@hookspec
def hermes_rollout_started(event: events.RolloutStarted) -> None:
    """Observe that a rollout has begun; sent by `rollout.run_rollout`."""


@hookspec
def hermes_tool_called(event: events.ToolCalled) -> None:
    """Observe one finished tool call; sent by `rollout.ToolDispatcher`."""


@hookspec
def hermes_rollout_scored(event: events.RolloutScored) -> None:
    """Observe a verifier's score; sent by `rollout.run_rollout`."""


@hookspec
def hermes_rollout_finished(event: events.RolloutFinished) -> None:
    """Observe the outcome of an attempt, a cancelled one too; sent by `rollout.run_rollout`."""


@hookspec
def hermes_process_updated(event: events.ProcessUpdated) -> None:
    """Observe a background process at its start, at each check interval, at a watched pattern, and at its end."""
