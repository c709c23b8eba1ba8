"""The kinds of components: one row each. A new kind is a spec, a hook and a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hermes_core import specs
from hermes_core.contracts.errors import UnknownComponentError

CORE_COMMANDS: Final = {"plugins": "list, show and diagnose plugins"}
"""The core's own subcommands, with one line of help each."""
RESERVED: Final[Mapping[str, Iterable[str]]] = {"toolset": ("all",), "cli_command": CORE_COMMANDS}
"""By kind, the names that stay the core's."""
TOLERANT: Final = "broken-plugins"
"""Capability of a command that runs even if a plugin that was asked for cannot be loaded."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind. `protocol` ("module:attribute") is what a target must satisfy."""

    name: str
    spec: type[specs.Declaration]
    hook: str
    protocol: str | None = None


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("tool", specs.ToolSpec, "hermes_tools", "hermes_core.contracts.tool:Tool"),
        Kind("backend", specs.BackendSpec, "hermes_backends", "hermes_core.contracts.sandbox:TerminalBackend"),
        Kind("parser", specs.ParserSpec, "hermes_parsers", "hermes_core.contracts.parsing:ToolCallParser"),
        Kind("model", specs.ModelSpec, "hermes_models", "hermes_core.contracts.model:ModelProvider"),
        Kind("verifier", specs.VerifierSpec, "hermes_verifiers", "hermes_core.contracts.verifier:Verifier"),
        Kind("toolset", specs.ToolsetSpec, "hermes_toolsets"),
        Kind("toolset_distribution", specs.ToolsetDistributionSpec, "hermes_toolset_distributions"),
        Kind("task_source", specs.TaskSourceSpec, "hermes_task_sources", "hermes_core.contracts.task:TaskSource"),
        Kind("sink", specs.SinkSpec, "hermes_sinks", "hermes_core.contracts.events:Sink"),
        Kind("engine", specs.EngineSpec, "hermes_engines", "hermes_core.contracts.engine:RolloutEngine"),
        Kind("service", specs.ServiceSpec, "hermes_runtime_services", "hermes_core.contracts.tool:RuntimeService"),
        Kind("lease_store", specs.LeaseStoreSpec, "hermes_lease_stores", "hermes_core.contracts.leases:LeaseStore"),
        Kind("cli_command", specs.CommandSpec, "hermes_cli_commands", "hermes_core.contracts.command:Command"),
    )
}

OPTION_PLACES: Final = {
    "backend": "backend_options: {KEY: …}, or --backend-options JSON",
    "engine": "engine_options: {KEY: …}, or --engine-options JSON",
    "parser": "tool_call_parser_options: {KEY: …}, or --parser-options JSON",
    "sink": "sinks: [{name: NAME, options: {KEY: …}}]",
    "verifier": "verifier: {name: NAME, options: {KEY: …}} of the task",
    **dict.fromkeys(("tool", "model", "task_source"), "options: {KIND: {NAME: {KEY: …}}}, or --options JSON"),
}
"""Where a run has an option KEY of a component NAME, by its KIND."""


def kind_named(name: str) -> Kind:
    """Return a kind's row; an unknown kind is an error that lists the known ones."""
    if name not in KINDS:
        raise UnknownComponentError(f"unknown kind of component {name!r}", hint=f"known kinds: {', '.join(KINDS)}")
    return KINDS[name]


def kind_of(spec: specs.Declaration) -> str:
    """Return the name of a declaration's kind."""
    return next(kind.name for kind in KINDS.values() if isinstance(spec, kind.spec))
