"""`hermes-core sandboxes probe`: what of each backend really works on this machine, and what is missing otherwise."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hermes_core.contracts.errors import ConfigError, HermesError
from hermes_core.discovery import scrubber_for
from hermes_core.redaction import SecretScrubber
from hermes_core.rollout import error_location, guard_plugin_call
from hermes_sandbox.backend.probing import Finding, probe_backend, probe_levels
from hermes_sandbox.commands.costs import costs_of, not_tried, options_that_fetch_nothing, tell_costs
from hermes_sandbox.commands.doctor_advice import unbounded_advice
from hermes_sandbox.leases.file_store import lease_in_files

if TYPE_CHECKING:
    from hermes_core.discovery import Registry
    from hermes_core.specs import BackendSpec


def probe(registry: Registry, arguments: argparse.Namespace, options: Mapping[str, Any], lease_dir: Path | None) -> int:
    """Try every backend, or one; exit 1 if the one that was named does not work at any of its levels."""
    names = (arguments.backend,) if arguments.backend else registry.names("backend")
    if options and len(names) != 1:
        raise ConfigError(
            "--backend-options are for the one backend that is named",
            hint="hermes-core sandboxes probe BACKEND --backend-options JSON",
        )
    is_named = bool(arguments.backend)
    findings = [one for name in names for one in _findings_of(registry, name, options, lease_dir, is_named=is_named)]
    if arguments.json:
        rows = [dataclasses.asdict(finding) for finding in findings]
        sys.stdout.write(json.dumps({"findings": rows}, indent=2) + "\n")
    else:
        _print(findings)
    works = any(finding.works and finding.feature == "isolation" for finding in findings)
    return 0 if works or not arguments.backend else 1


def _findings_of(
    registry: Registry, name: str, options: Mapping[str, Any], lease_dir: Path | None, *, is_named: bool
) -> list[Finding]:
    """Try a backend; of one that nobody has named only what costs nothing."""
    if is_named:
        tell_costs(registry, name, options)
    elif costs := costs_of(registry, name, options):
        detail, hint = not_tried(name, costs, "hermes-core sandboxes probe")
        return _everywhere(registry, name, works=None, detail=detail, hint=hint)
    given = options if is_named else options_that_fetch_nothing(registry, name)
    return asyncio.run(try_backend(registry, name, given, lease_dir))


async def try_backend(
    registry: Registry, name: str, options: Mapping[str, Any], lease_dir: Path | None, *, levels_only: bool = False
) -> list[Finding]:
    """Try a backend: its levels, and what it declares at each of them. Whatever it raises is found, and not raised."""
    silent = scrubber_for(registry, "backend", name, options)
    findings: list[Finding] = []
    try:
        declared = cast("BackendSpec", registry.spec("backend", name))
        backend: Any = registry.create("backend", name, options)
        try:
            lease_in_files(backend, lease_dir)
            findings = await (probe_levels if levels_only else probe_backend)(backend, declared)
        finally:
            await guard_plugin_call(backend.aclose())
    except Exception as error:  # noqa: BLE001 - the plugin boundary: what one backend does hides no other
        said = getattr(error, "message", f"{type(error).__name__}: {error} ({error_location(error)})")
        hint = getattr(error, "hint", None)
        if findings:
            findings.append(_finding(name, "-", "closing", works=False, detail=said, hint=hint))
        else:
            findings = _everywhere(registry, name, works=False, detail=said, hint=hint)
    return [_without_secrets(one, silent) for one in findings]


def _everywhere(registry: Registry, name: str, **found: Any) -> list[Finding]:
    """Return the same of every level; of one line where it is not known which there are."""
    try:
        levels = cast("BackendSpec", registry.spec("backend", name)).isolation
    except HermesError:
        levels = ("-",)
    return [_finding(name, level, "isolation", **found) for level in levels]


def _finding(name: str, level: str, feature: str, **found: Any) -> Finding:
    return Finding(backend=name, isolation=level, feature=feature, **found)


def _without_secrets(finding: Finding, silent: SecretScrubber) -> Finding:
    hint, processes = (text and silent.text(text) for text in (finding.hint, finding.processes))
    return dataclasses.replace(finding, detail=silent.text(finding.detail), hint=hint, processes=processes)


def _print(findings: Sequence[Finding]) -> None:
    words = {True: "works", False: "NO", None: "not tried"}
    rows = [("BACKEND", "ISOLATION", "WHAT", "RESULT", "HOW")]
    rows += [
        (found.backend, found.isolation, found.feature, words[found.works], _how(found) if found.works else "")
        for found in findings
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")
    # Each reason once: a backend that does not work at all would say the same on every line.
    reasons: dict[tuple[str, str | None], list[str]] = {}
    for found in findings:
        if found.works is False or (found.detail and not found.works):
            at = f"{found.backend} {found.isolation} {found.feature}"
            reasons.setdefault((found.detail, found.hint), []).append(at)
    for (detail, hint), places in reasons.items():
        then = f"\n  → {hint}" if hint else ""
        sys.stdout.write(f"\n{', '.join(places)}: {detail}{then}\n")
    for found in findings:
        for word, why in found.lacks.items():
            sys.stdout.write(f"\n{found.backend} {found.isolation} lacks {word}: {why}\n")
        if found.is_unbounded:
            said, hint = unbounded_advice(found, findings)
            sys.stdout.write(f"\nprocesses of {found.backend} {found.isolation}: {said}\n  → {hint}\n")


def _how(found: Finding) -> str:
    if found.processes is None:
        return found.detail
    return "nothing bounds processes" if found.is_unbounded else f"processes: {found.processes}"
