"""The command `doctor`: tries every plugin and backend, and prints what to type if one does not work."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from hermes_core.contracts.sandbox import RunBackends
    from hermes_core.discovery import PluginSettings
    from hermes_sandbox.commands.backend_report import BackendReport
    from hermes_sandbox.commands.examination import ConfigNeeds


class DoctorCommand:
    """The command `doctor`."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.description = (
            "Load each plugin in a separate process, and start a sandbox on each backend. "
            "A backend that costs something is only tried if you name it."
        )
        parser.add_argument("backend", nargs="?", metavar="BACKEND", help="only this backend, with its options")
        parser.add_argument(
            "--config", metavar="FILE", help="only the backends that a run's config names, with its options"
        )
        parser.add_argument("--backend-options", metavar="JSON", default="{}", help="options of the named backend")
        parser.add_argument("--json", action="store_true", help="print JSON; its shape is stable, the text's is not")

    def run(self, arguments: argparse.Namespace) -> int:
        """Print the results. Return 1 if a plugin is broken, or the wanted backend does not work."""
        from hermes_core.contracts.errors import PluginError

        plan = _what_to_try(arguments)
        broken = [] if plan.chosen else _broken_plugins(plan.settings)
        if not plan.chosen and not arguments.json:
            _print_plugins(broken)
        reports: list[BackendReport] = []
        try:
            reports = _examine(plan, sys.stdout if not arguments.json else io.StringIO())
        except PluginError:
            if not broken:
                raise
            # A plugin that was requested by name is among the broken ones, and stops every command.
        if arguments.json:
            rows = [report.to_json() for report in reports]
            sys.stdout.write(json.dumps({"plugins": broken, "backends": rows}, indent=2) + "\n")
        return 1 if broken or any(one.backend == plan.wanted and not plan.is_met(one) for one in reports) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The backends to try with their options, where none means all, and the backend that must work."""

    settings: PluginSettings
    chosen: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    wanted: str | None = None
    needs: ConfigNeeds | None = None

    def is_met(self, report: BackendReport) -> bool:
        """Return whether a backend works and meets the requirements of the config."""
        source = None if self.needs is None else self.needs.source
        return bool(report.works) and all(one.feature != source for one in report.findings)


def _what_to_try(arguments: argparse.Namespace) -> _Plan:
    from hermes_sandbox.commands.backend_options import options_of_named, read_options
    from hermes_sandbox.commands.examination import ConfigNeeds

    settings: PluginSettings = arguments.plugin_settings
    name: str | None = arguments.backend
    if arguments.config is None:
        return _Plan(settings=settings, chosen=options_of_named(arguments, "doctor"), wanted=name)
    run = _run_backends(Path(arguments.config), settings)
    wanted = name or run.backend
    options = {**run.options, wanted: {**run.options.get(wanted, {}), **read_options(arguments)}}
    return _Plan(
        settings=settings.with_config(run.plugins),
        chosen=options if name is None else {name: options[name]},
        wanted=wanted,
        needs=ConfigNeeds(backend=wanted, spec=run.sandbox, source=arguments.config),
    )


def _run_backends(path: Path, settings: PluginSettings) -> RunBackends:
    """Ask the plugins which backends a run's config names, because a plugin defines the config's format."""
    from hermes_core.contracts.errors import AmbiguousComponentError, BrokenComponentError, UserError
    from hermes_core.contracts.sandbox import RunBackends
    from hermes_core.discovery import load_plugins_tolerantly

    # The config can disable a broken plugin, so a plugin that does not load is not an error yet.
    registry = load_plugins_tolerantly(settings, environ=os.environ)
    answers = registry.answers("hermes_run_backends", config=path)
    if not answers:
        is_here = any(plugin.found.distribution == "hermes-runner" for plugin in registry.plugins)
        raise UserError(
            "expected a plugin that reads the config of a run (--config), got none",
            hint=f"hermes-core -p hermes-runner doctor --config {path}" if is_here else "pip install hermes-runner",
        )
    if len(answers) > 1:
        raise AmbiguousComponentError(
            f"{path} is read by {len(answers)} plugins: {', '.join(answers)}", hint="disable the others: -p no:NAME"
        )
    ((plugin, answer),) = answers.items()
    if not isinstance(answer, RunBackends):
        raise BrokenComponentError(
            f"hermes_run_backends of plugin {plugin}: expected RunBackends, got {type(answer).__name__}",
            hint=f"see: hermes-core plugins show {plugin}",
        )
    return answer


def _broken_plugins(settings: PluginSettings) -> list[dict[str, str]]:
    from hermes_core.discovery import diagnose

    found = diagnose(settings)
    return [{"plugin": one.subject, "message": one.message} for one in found if one.level == "error"]


def _examine(plan: _Plan, stream: TextIO) -> list[BackendReport]:
    from hermes_core.discovery import load_plugins
    from hermes_sandbox.commands.examination import Examination
    from hermes_sandbox.commands.report_printer import ReportPrinter

    examination = Examination(registry=load_plugins(plan.settings), chosen=plan.chosen, needs=plan.needs)
    return examination.report(ReportPrinter(stream))


def _print_plugins(broken: Sequence[Mapping[str, str]]) -> None:
    sys.stdout.write(f"plugins: {len(broken) or 'none'} broken\n")
    for one in broken:
        sys.stdout.write(f"  {one['plugin']}: {one['message']}\n  → hermes-core plugins doctor\n")
