"""`hermes-core doctor`: for every plugin and every backend, whether it works here, and the next command where not."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from hermes_core.contracts.sandbox import RunBackends, SandboxSpec
    from hermes_core.discovery import PluginSettings, Registry
    from hermes_core.specs import BackendSpec
    from hermes_sandbox.backend.probing import Finding

Row = Mapping[str, Any]


class DoctorCommand:
    """The command `doctor`."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.description = (
            "Load every plugin in a process of its own and start a sandbox on every backend. "
            "Where that costs something, the backend has to be named."
        )
        parser.add_argument("backend", nargs="?", metavar="BACKEND", help="only this backend, with its options")
        parser.add_argument(
            "--config", metavar="FILE", help="only the backends that a run's config names, as it has them"
        )
        parser.add_argument(
            "--backend-options", metavar="JSON", default="{}", help="options of the backend that is named"
        )
        parser.add_argument("--json", action="store_true", help="print JSON; its shape is stable, the text's is not")
        parser.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="for loading one plugin")

    def run(self, arguments: argparse.Namespace) -> int:
        """Print what was found; exit 1 where a plugin is broken, or the run's backend works at no level."""
        from hermes_core.contracts.errors import PluginError

        plan = _what_to_try(arguments)
        broken = [] if plan.options else _broken_plugins(plan.settings, arguments.timeout)
        if not plan.options and not arguments.json:
            _print_plugins(broken)
        rows: list[Row] = []
        try:
            printing = _Printing(sys.stdout)
            for name, row in _rows(plan, printing if not arguments.json else None):
                rows.append(row)
                if not arguments.json:
                    printing.row(name, row)
        except PluginError:
            if not broken:
                raise
            # A plugin that was asked for by name is among the broken ones, and stops every command.
        if arguments.json:
            sys.stdout.write(json.dumps({"plugins": broken, "backends": rows}, indent=2) + "\n")
        lame = any(row["backend"] == plan.wanted and not (row["works"] and plan.is_met(row)) for row in rows)
        return 1 if broken or lame else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The backends to try with their options, none for all, and what one of them must be able to do."""

    settings: PluginSettings
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    wanted: str | None = None
    spec: SandboxSpec | None = None
    source: str = ""

    def is_met(self, row: Row) -> bool:
        """Tell whether nothing of what the config asks for was found missing."""
        return all(self.source not in trouble["levels"] for trouble in row["troubles"])


def _what_to_try(arguments: argparse.Namespace) -> _Plan:
    settings: PluginSettings = arguments.plugin_settings
    given, name = _options(arguments), arguments.backend
    if arguments.config is None:
        return _Plan(settings=settings, options={name: given} if name else {}, wanted=name)
    run = _run_backends(Path(arguments.config), settings)
    wanted: str = name or run.backend
    options = {**run.options, wanted: {**run.options.get(wanted, {}), **given}}
    return _Plan(
        settings=settings.with_config(run.plugins),
        options=options if name is None else {name: options[name]},
        wanted=wanted,
        spec=run.sandbox,
        source=arguments.config,
    )


def _run_backends(path: Path, settings: PluginSettings) -> RunBackends:
    """Ask the plugins what a run's config says of backends: the config's format is one of theirs."""
    from hermes_core.contracts.errors import AmbiguousComponentError, BrokenComponentError, UserError
    from hermes_core.contracts.sandbox import RunBackends
    from hermes_core.discovery import load_plugins_tolerantly

    # A plugin that is broken may be one that the config disables: only what is loaded then has to load.
    registry = load_plugins_tolerantly(settings, environ=os.environ)
    answers = registry.answers("hermes_run_backends", config=path)
    if not answers:
        is_here = any(plugin.found.distribution == "hermes-runner" for plugin in registry.plugins)
        raise UserError(
            "--config names a run's config, and no plugin that is loaded reads one",
            hint=f"hermes-core -p hermes-runner doctor --config {path}" if is_here else "pip install hermes-runner",
        )
    if len(answers) > 1:
        raise AmbiguousComponentError(
            f"{path} is read by {len(answers)} plugins: {', '.join(answers)}", hint="disable the others: -p no:NAME"
        )
    ((plugin, answer),) = answers.items()
    if not isinstance(answer, RunBackends):
        raise BrokenComponentError(
            f"hermes_run_backends of plugin {plugin} answered {type(answer).__name__}, wanted RunBackends",
            hint=f"see: hermes-core plugins show {plugin}",
        )
    return answer


def _options(arguments: argparse.Namespace) -> Mapping[str, Any]:
    from hermes_core.contracts.errors import ConfigError

    try:
        options = json.loads(arguments.backend_options)
    except ValueError as error:
        raise ConfigError(f"--backend-options is no JSON: {error}", hint='as in \'{"image": "python:3.11"}\'') from None
    if not isinstance(options, dict) or (options and not (arguments.backend or arguments.config)):
        raise ConfigError("--backend-options is a JSON object, and for the one backend that is named")
    return options


def _broken_plugins(settings: PluginSettings, timeout: float) -> list[dict[str, str]]:
    from hermes_core.discovery import diagnose

    found = diagnose(settings, timeout=timeout)
    return [{"plugin": one.subject, "message": one.message} for one in found if one.level == "error"]


def _rows(plan: _Plan, printing: _Printing | None) -> Iterator[tuple[str, Row]]:
    """Try one backend after the other; where it is printed, its name stands there while it is tried."""
    from hermes_core.discovery import load_plugins, scrubber_for
    from hermes_sandbox.commands.costs import tell_costs

    registry = load_plugins(plan.settings)
    names = list(plan.options) or list(registry.names("backend"))
    for name in plan.options:
        registry.spec("backend", name)  # a name that nobody declares is told before anything is printed
    absent = [] if plan.options else list(_absent(registry))
    if printing is not None:
        printing.width = max(map(len, (*names, *(row["backend"] for row in absent))), default=0)
    for name in names:
        options = plan.options.get(name, {})
        if name in plan.options and _lack(registry, name) is None:
            tell_costs(registry, name, options)
        if printing is not None:
            printing.begin(name)
        row = _try(registry, name, options, is_named=name in plan.options)
        if name == plan.wanted and plan.spec is not None and row["works"]:
            row = _with_the_config(row, plan.source, _as_configured(registry, name, options, plan.spec))
        yield name, scrubber_for(registry, "backend", name, options).values(row)
    for row in absent:
        if printing is not None:
            printing.begin(row["backend"])
        yield row["backend"], row


def _as_configured(
    registry: Registry, name: str, options: Mapping[str, Any], spec: SandboxSpec
) -> tuple[str, str] | None:
    """Return why a run would stop at its check, None if it would not: a level may work, and not what is asked of it."""
    from hermes_core.contracts.errors import HermesError
    from hermes_sandbox.leases.file_store import lease_in_files

    async def check() -> None:
        backend: Any = registry.create("backend", name, options)
        lease_in_files(backend)
        try:
            await backend.check(spec)
        finally:
            await backend.aclose()

    try:
        asyncio.run(check())
    except HermesError as error:
        return error.message, error.hint or f"hermes-core sandboxes probe {name} tries all that it declares"
    return None


def _with_the_config(row: Row, source: str, trouble: tuple[str, str] | None) -> Row:
    if trouble is None:
        return row
    said, hint = trouble
    return {**row, "troubles": [*row["troubles"], {"levels": [source], "message": said, "hint": hint}]}


def _try(registry: Registry, name: str, options: Mapping[str, Any], *, is_named: bool) -> Row:
    from hermes_core.contracts.errors import HermesError
    from hermes_sandbox.commands.costs import costs_of, not_tried, options_that_fetch_nothing
    from hermes_sandbox.commands.doctor_advice import advice
    from hermes_sandbox.commands.probe import try_backend

    try:
        trouble = _lack(registry, name)
    except HermesError as error:  # several plugins declare it
        trouble = (error.message, error.hint or f"hermes-core plugins show {name}")
    if trouble is not None:
        return _row(name, works=(), troubles={trouble: ()})
    if not is_named and (costs := costs_of(registry, name, options)):
        return _row(name, works=(), troubles={not_tried(name, costs, "hermes-core doctor"): ()}, tried=False)
    given = options or options_that_fetch_nothing(registry, name)
    found = asyncio.run(try_backend(registry, name, given, None, levels_only=True))
    troubles: dict[str, tuple[str, list[str]]] = {}
    for one in found:
        if not one.works:
            # Two levels that want the same step lack the same thing, in whatever words.
            levels = troubles.setdefault(advice(one, options), (one.detail, []))[1]
            levels += [one.isolation] if one.feature == "isolation" else []
    told = {(said, hint): levels for hint, (said, levels) in troubles.items()}
    works = [one.isolation for one in found if one.works]
    return _row(name, works=works, troubles=told, processes=list(_bounds(found)))


def _lack(registry: Registry, name: str) -> tuple[str, str] | None:
    """Return what a backend requires and is not here, with what to type."""
    from hermes_sandbox.commands.doctor_advice import missing

    return missing(name, cast("BackendSpec", registry.spec("backend", name)).requires, os.environ)


def _bounds(found: Sequence[Finding]) -> Iterator[Row]:
    """Describe what bounds the processes of a sandbox that asks for no limit, at each level that says it."""
    from hermes_sandbox.commands.doctor_advice import unbounded_advice

    for one in found:
        if one.processes is None:
            continue
        said, hint = unbounded_advice(one, found) if one.is_unbounded else (one.processes, None)
        yield {"level": one.isolation, "bounded": not one.is_unbounded, "message": said, "hint": hint}


def _row(
    name: str,
    *,
    works: Sequence[str],
    troubles: Mapping[tuple[str, str], Sequence[str]],
    processes: Sequence[Row] = (),
    installed: bool = True,
    tried: bool = True,
) -> Row:
    told = [{"levels": list(at), "message": said, "hint": hint} for (said, hint), at in troubles.items()]
    return {
        "backend": name,
        "installed": installed,
        "tried": tried and installed,
        "works": list(works),
        "processes": list(processes),
        "troubles": told,
    }


def _absent(registry: Registry) -> Iterator[Row]:
    from hermes_core.discovery import known_names, package_for

    present = set(registry.names("backend"))
    absent: dict[str | None, str] = {}
    for name in known_names("backend"):
        if name not in present:
            absent.setdefault(package_for("backend", name), name)
    for package, name in absent.items():
        trouble = ("it is not installed", f"pip install {package}")
        yield _row(name, works=(), troubles={trouble: ()}, installed=False)


def _print_plugins(broken: Sequence[Mapping[str, str]]) -> None:
    sys.stdout.write(f"plugins: {len(broken) or 'none'} broken\n")
    for one in broken:
        sys.stdout.write(f"  {one['plugin']}: {one['message']}\n  → hermes-core plugins doctor\n")


def is_terminal(stream: Any) -> bool:
    """Tell whether lines are read by somebody, who wants them broken, and not by a program."""
    return bool(stream.isatty())


class _Printing:
    """A line or some for each backend, as they are found."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._columns = shutil.get_terminal_size().columns if is_terminal(stream) else 0
        self._said: dict[tuple[str, str], str] = {}
        self.width = 0

    def begin(self, name: str) -> None:
        """Print the name of what is tried now."""
        self._stream.write(f"{name:{self.width}}  ")
        self._stream.flush()

    def row(self, name: str, row: Row) -> None:
        """Print what came of it, and what to do; what was said of another backend is not said twice."""
        works = f"works at {', '.join(row['works'])}" if row["works"] else "does not work here"
        works = works if row["tried"] else "is not tried"
        self._stream.write(f"{works if row['installed'] else 'is not installed'}\n")
        for bound in row["processes"]:
            self._processes(bound)
        for trouble in row["troubles"]:
            other = self._said.setdefault((trouble["message"], trouble["hint"]), name)
            if other != name and row["installed"]:
                self._write_wrapped(f"for the reason that {other} has, above", "    ")
            else:
                self._trouble(trouble, partly=bool(row["works"]), installed=row["installed"])

    def _processes(self, bound: Row) -> None:
        """Print what bounds processes at a level; where nothing does, it works all the same."""
        self._write_wrapped(f"processes at {bound['level']}: {bound['message']}", "    ")
        if not bound["bounded"]:
            self._write_wrapped(f"→ {bound['hint']}", "    ", "      ")

    def _trouble(self, trouble: Mapping[str, Any], *, partly: bool, installed: bool) -> None:
        at = f"{', '.join(trouble['levels'])}: " if partly else ""
        if installed:
            self._write_wrapped(f"{at}{trouble['message']}", "    ")
        self._write_wrapped(f"→ {trouble['hint']}", "    ", "      ")

    def _write_wrapped(self, text: str, indent: str, further: str | None = None) -> None:
        if self._columns:
            text = textwrap.fill(
                text,
                self._columns,
                initial_indent=indent,
                subsequent_indent=further or indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
        self._stream.write(f"{text if self._columns else indent + text}\n")
