"""Load each plugin in a separate process, so that a crash, a hang or an exit is reported and harms nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hermes_core.contracts.plugin_settings import PluginSettings
from hermes_core.discovery.components.lookup_errors import conflict_text
from hermes_core.discovery.installation.distributions import copies
from hermes_core.discovery.installation.records import PluginRecord, PluginState
from hermes_core.discovery.installation.selection import admit_only, find_plugins

# The search path is handed over, so that the child finds exactly the distributions that the parent found.
_BOOT: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from hermes_core.discovery.probe import main; main(*sys.argv[2:])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing the doctor found. Levels are error, warning and ok; `detail` is a traceback or captured output."""

    level: str
    subject: str
    message: str
    detail: str = ""


def diagnose(settings: PluginSettings, *, timeout: float = 30.0) -> list[Finding]:
    """Examine every admitted plugin, the conflicts between them, and the installed metadata."""
    records = find_plugins(settings)
    admitted = [record for record in records if record.state is PluginState.FOUND]
    findings = [_finding_without_loading(record) for record in records if record.state is not PluginState.FOUND]
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        reports = list(pool.map(lambda record: _probe(record, settings, timeout), admitted))
    for record, report in zip(admitted, reports, strict=True):
        findings += _judge(record, report)
    findings += _conflicts(reports, settings)
    findings += _stale({record.found.distribution for record in records if not record.found.is_local})
    return findings


@dataclass(frozen=True, slots=True)
class _Report:
    lines: list[dict[str, Any]]
    ending: str
    output: str

    def values(self, key: str) -> Iterator[dict[str, Any]]:
        return (line for line in self.lines if key in line)


def _probe(record: PluginRecord, settings: PluginSettings, timeout: float) -> _Report:
    alone = admit_only([record], settings)
    with tempfile.TemporaryDirectory(prefix="hermes-doctor-") as folder:
        result, output = Path(folder, "result"), Path(folder, "output")
        command = [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path), record.id, json.dumps(alone.to_json())]
        with output.open("wb") as sink:
            ending = _run([*command, str(result)], sink.fileno(), timeout)
        text = result.read_text(encoding="utf-8") if result.exists() else ""
        lines = [json.loads(line) for line in text.splitlines()]
        return _Report(lines, ending, output.read_text(encoding="utf-8", errors="replace")[-4000:])


def _run(command: list[str], output: int, timeout: float) -> str:
    # Output goes to a file: a grandchild that keeps a pipe open would outlive the timeout. Its own session: all of it
    # can be killed at once.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    try:
        status = process.wait(timeout)
    except subprocess.TimeoutExpired:
        return f"did not finish within {timeout:g} seconds"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"


def _finding_without_loading(record: PluginRecord) -> Finding:
    level = "ok" if record.state is PluginState.BLOCKED else "error"
    return Finding(level=level, subject=record.id, message=f"{record.state}: {record.note}")


def _judge(record: PluginRecord, report: _Report) -> Iterator[Finding]:
    for line in report.values("plugin"):
        plugin = line["plugin"]
        if plugin["state"] != "loaded":
            message = f"{plugin['state']}: {plugin['note']}"
            yield Finding(level="error", subject=record.id, message=message, detail=line["trace"])
        else:
            yield from _findings_on_load(record, plugin, line["heavy"])
    for line in report.values("component"):
        if line["state"] in {"broken", "unavailable"}:
            level = "error" if line["state"] == "broken" else "warning"
            message = f"{line['component']} is {line['state']}: {line['reason']}"
            yield Finding(level=level, subject=record.id, message=message, detail=line["trace"])
    if not any(report.values("done")):
        steps = [line["step"] for line in report.values("step")]
        message = f"the process {report.ending}" + (f" while {steps[-1]}" if steps else "")
        yield Finding(level="error", subject=record.id, message=message, detail=report.output)


def _findings_on_load(record: PluginRecord, plugin: dict[str, Any], heavy: list[str]) -> Iterator[Finding]:
    message = f"loaded in {plugin['load_seconds'] * 1000:.1f} ms; components: {len(plugin['components'])}"
    yield Finding(level="ok", subject=record.id, message=message)
    if not plugin["hooks"]:
        yield Finding(level="warning", subject=record.id, message="it implements no hook, so it does nothing")
    if heavy:
        message = f"importing it imports {', '.join(heavy)}, which slows every start; move that into the targets"
        yield Finding(level="warning", subject=record.id, message=message)


def _conflicts(reports: list[_Report], settings: PluginSettings) -> Iterator[Finding]:
    owners: dict[str, list[str]] = {}
    for report in reports:
        for line in report.values("plugin"):
            for component in line["plugin"]["components"]:
                owners.setdefault(component, []).append(line["plugin"]["plugin"])
    for component, plugins in sorted(owners.items()):
        if len(plugins) > 1 and component not in settings.prefer:
            yield Finding(level="error", subject=component, message=conflict_text(component, plugins))


def _stale(distributions: set[str]) -> Iterator[Finding]:
    for distribution in sorted(distributions):
        versions = copies(distribution)
        if len(versions) > 1:
            used, *hidden = versions
            message = f"installed {len(versions)} times: {used} is used, {', '.join(hidden)} is hidden; reinstall it"
            yield Finding(level="warning", subject=distribution, message=message)
