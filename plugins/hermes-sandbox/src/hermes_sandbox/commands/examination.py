"""Tries backends, for `doctor` and `sandboxes probe`."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hermes_core.contracts.errors import HermesError
from hermes_core.discovery import known_names, package_for, scrubber_for
from hermes_core.rollout import guard_plugin_call
from hermes_sandbox.backend.probing import Finding, probe_backend, words_of
from hermes_sandbox.commands.backend_report import BackendReport
from hermes_sandbox.commands.costs import costs_of, not_tried, options_that_fetch_nothing, tell_costs
from hermes_sandbox.commands.doctor_advice import advice, missing
from hermes_sandbox.commands.report_printer import ReportPrinter
from hermes_sandbox.leases.file_store import lease_in_files

if TYPE_CHECKING:
    from hermes_core.contracts.sandbox import SandboxSpec
    from hermes_core.discovery import Registry
    from hermes_core.specs import BackendSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigNeeds:
    """What a config file requires of the sandboxes of one backend."""

    backend: str
    spec: SandboxSpec
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The backends to try, and how thoroughly: with `in_detail` also each network and limit, not only the levels."""

    registry: Registry
    chosen: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The named backends with their options. If there are none, all backends are tried that cost nothing."""
    needs: ConfigNeeds | None = None
    in_detail: bool = False
    lease_dir: Path | None = None

    def report(self, printer: ReportPrinter) -> list[BackendReport]:
        """Try one backend after another, and print the result of each at once."""
        for name in self.chosen:
            self.registry.spec("backend", name)  # an unknown name is an error before anything is printed
        names = list(self.chosen or self.registry.names("backend"))
        absent = {} if self.chosen else {one.backend: one for one in _absent(self.registry)}
        printer.width = max(map(len, (*names, *absent)), default=0)
        reports = []
        for name in (*names, *absent):
            report = absent.get(name) or self._obstacle(name)
            if report is None and name in self.chosen:
                tell_costs(self.registry, name, self.chosen[name])
            printer.begin(name)
            report = report or BackendReport(backend=name, findings=asyncio.run(self._try(name)))
            printer.print(report)
            reports.append(report)
        return reports

    def _obstacle(self, name: str) -> BackendReport | None:
        """Return why a backend is not tried: a missing requirement, or costs although it was not named."""
        try:
            lack = missing(name, cast("BackendSpec", self.registry.spec("backend", name)).requires, os.environ)
        except HermesError as error:  # several plugins declare it
            lack = (error.message, error.hint or f"hermes-core plugins show {name}")
        if lack is not None:
            return _report_untried(name, *lack)
        if name not in self.chosen and (costs := costs_of(self.registry, name, {})):
            command = "hermes-core sandboxes probe" if self.in_detail else "hermes-core doctor"
            return _report_untried(name, *not_tried(name, costs, command), tried=False)
        return None

    async def _try(self, name: str) -> list[Finding]:
        """Try a backend. An exception becomes a finding and is not raised."""
        options = self.chosen.get(name, {})
        declared = cast("BackendSpec", self.registry.spec("backend", name))
        findings: list[Finding] = []
        try:
            given = options or options_that_fetch_nothing(self.registry, name)
            backend: Any = self.registry.create("backend", name, given)
            try:
                lease_in_files(backend, self.lease_dir)
                findings = await probe_backend(backend, declared, in_detail=self.in_detail)
                findings += await self._try_config(backend, name, findings)
            finally:
                await guard_plugin_call(backend.aclose())
        except Exception as error:  # noqa: BLE001 - the plugin boundary: one backend must not prevent the report on others
            places = [("", "closing")] if findings else [(level, "isolation") for level in declared.isolation]
            findings += [_failure(name, level, feature, error) for level, feature in places]
        return [self._finish(one, options) for one in findings]

    async def _try_config(self, backend: Any, name: str, findings: Sequence[Finding]) -> list[Finding]:
        """Find why a run would fail its check: a level can work although it does not meet the config's requirements."""
        needs = self.needs
        if needs is None or needs.backend != name or not any(one.works for one in findings):
            return []
        try:
            await guard_plugin_call(backend.check(needs.spec))
        except Exception as error:  # noqa: BLE001 - the plugin boundary, as above
            found = _failure(name, "", needs.source, error)
            hint = found.hint or f"hermes-core sandboxes probe {name} tries everything that it declares"
            return [dataclasses.replace(found, hint=hint)]
        return []

    def _finish(self, finding: Finding, options: Mapping[str, Any]) -> Finding:
        """Return a finding with the next command to type, and without the secrets of the options."""
        scrubber = scrubber_for(self.registry, "backend", finding.backend, options)
        told = {name: getattr(finding, name) for name in ("detail", "processes", "lacks")}
        told["hint"] = None if finding.works else advice(finding, options)
        return dataclasses.replace(finding, **scrubber.values(told))


def _failure(name: str, level: str, feature: str, error: Exception) -> Finding:
    return Finding(backend=name, isolation=level, feature=feature, works=False, **words_of(error))


def _report_untried(name: str, said: str, hint: str, **state: bool) -> BackendReport:
    finding = Finding(backend=name, isolation="", feature="isolation", works=None, detail=said, hint=hint)
    return BackendReport(backend=name, findings=[finding], **state)


def _absent(registry: Registry) -> Iterator[BackendReport]:
    present = set(registry.names("backend"))
    absent: dict[str | None, str] = {}
    for name in known_names("backend"):
        if name not in present:
            absent.setdefault(package_for("backend", name), name)
    for package, name in absent.items():
        yield _report_untried(name, "it is not installed", f"pip install {package}", installed=False, tried=False)
