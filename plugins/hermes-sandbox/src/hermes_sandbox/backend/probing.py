"""Tries what a backend declares: each level, network and limit in a sandbox of its own, proved by a command."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hermes_core.contracts.errors import HermesError, SandboxRefusedError
from hermes_core.contracts.sandbox import ExecResult, SandboxSpec, TerminalBackend
from hermes_core.rollout import error_location, guard_plugin_call
from hermes_sandbox.backend.options import UNBOUNDED

if TYPE_CHECKING:
    from hermes_core.specs import BackendSpec

_PATIENCE: Final = 120.0
_MEGABYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of trying one thing that a backend declares.

    `isolation` is the level, "" for the backend as a whole; `feature` is "isolation" for the level itself. `works` is
    None if it was not tried, and `detail` says why. `hint` is what to type next. `processes` says, for a level that
    works, how processes are bounded in a sandbox without a limit ("1024, by cgroup v1", "none: ...").
    """

    backend: str
    isolation: str
    feature: str
    works: bool | None
    detail: str = ""
    hint: str | None = None
    processes: str | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)
    """What sandboxes of a working level share with others, and why."""

    @property
    def place(self) -> str:
        """Its subject: a level, or a feature at a level; "" for the backend as a whole."""
        if self.feature == "isolation":
            return self.isolation
        return f"{self.feature} at {self.isolation}" if self.isolation else self.feature

    @property
    def is_unbounded(self) -> bool:
        """Whether the sandbox reports that its processes are not bounded."""
        return self.processes is not None and self.processes.startswith(UNBOUNDED)


@dataclass(frozen=True, slots=True)
class _Trial:
    feature: str
    fields: Mapping[str, Any]
    command: str
    holds: Callable[[ExecResult], bool]
    seconds: float = 30.0


_LIMITS: Final = {
    "memory": _Trial(
        "memory",
        {"memory_mb": 64},
        "head -c 300M /dev/zero | tail -c 300M | wc -c",
        lambda result: b"%d" % (300 * _MEGABYTE) not in result.stdout,
    ),
    # bash waits ever longer for a process to be allowed; that it waits at all is the proof.
    "pids": _Trial(
        "pids",
        {"pids": 32},
        "for i in {1..100}; do sleep 9 & done",
        lambda result: result.exit_code != 0 and "esource temporarily" in result.output,
        2.0,
    ),
    "cpu": _Trial("cpu", {"cpu": 0.5}, "true", lambda result: result.exit_code == 0),
    "file_size": _Trial(
        "file_size",
        {"file_size_mb": 1},
        "head -c 3M /dev/zero >f; stat -c %s f",
        lambda result: int(result.stdout or 0) <= _MEGABYTE,
    ),
    "disk": _Trial(
        "disk",
        {"disk_mb": 8},
        "head -c 20M /dev/zero >f; stat -c %s f",
        lambda result: int(result.stdout or 0) <= 8 * _MEGABYTE,
    ),
}
_OTHER_INTERFACES: Final = "tail -n +3 /proc/net/dev | grep -v '^ *lo:' | wc -l"


def _level() -> _Trial:
    return _Trial("isolation", {}, "true", lambda result: result.exit_code == 0)


def _trials(declared: BackendSpec) -> Iterator[_Trial]:
    for network in sorted(declared.networks):
        hosts = ("example.org",) if network == "allowlist" else ()
        yield _Trial(
            f"network {network}",
            {"network": network, "allow_hosts": hosts},
            _OTHER_INTERFACES,
            lambda result: result.stdout.strip() == b"0",
        )
    for limit in sorted(declared.limits & set(_LIMITS)):
        yield _LIMITS[limit]


async def probe_backend(backend: TerminalBackend, declared: BackendSpec, *, in_detail: bool = False) -> list[Finding]:
    """Run a command at every level that a backend declares, after the check as at the start of a run.

    After a remote engine fails at one level, instead of refusing it, it is not tried again; an answer can take long.

    Args:
        backend: The backend to try.
        declared: Its declaration.
        in_detail: Whether to try every network and limit too, at each level that works.
    """
    findings: list[Finding] = []
    for number, level in enumerate(declared.isolation, start=1):
        found, error = await _attempt(backend, declared.name, level, _level(), check=True)
        findings.append(found)
        if declared.is_remote and error is not None and not isinstance(error, SandboxRefusedError):
            rest = declared.isolation[number:]
            return [*findings, *(dataclasses.replace(found, isolation=other, works=None) for other in rest)]
        if in_detail and found.works:
            findings += [(await _attempt(backend, declared.name, level, trial))[0] for trial in _trials(declared)]
    return findings


async def _attempt(
    backend: TerminalBackend, name: str, level: Any, trial: _Trial, *, check: bool = False
) -> tuple[Finding, Exception | None]:
    spec = SandboxSpec(isolation=level, **trial.fields)

    def report(*, works: bool, **found: Any) -> Finding:
        return Finding(backend=name, isolation=level, feature=trial.feature, works=works, **found)

    try:
        async with asyncio.timeout(_PATIENCE):
            if check:  # a run would stop with the same message
                await guard_plugin_call(backend.check(spec))
            result, provenance = await guard_plugin_call(_try(backend, spec, trial))
    except TimeoutError as error:
        return report(works=False, detail=f"no answer within {_PATIENCE:g} s"), error
    except Exception as error:  # noqa: BLE001 - the plugin boundary: what a backend raises is the finding
        return report(works=False, **words_of(error)), error
    if not trial.holds(result):
        return report(works=False, detail=f"it has no effect: {result.output.strip()[-200:] or result.exit_code}"), None
    works = report(works=True, detail=_how(provenance, trial.feature))
    if trial.feature == "isolation":
        lacks = dict(provenance.get("lacks") or {})
        works = dataclasses.replace(works, processes=_how(provenance, "pids") or None, lacks=lacks)
    return works, None


def words_of(error: Exception) -> dict[str, Any]:
    """Return a finding's fields for an error: its `detail`, and a `hint` if there is one."""
    if isinstance(error, HermesError):
        return {"detail": error.message, "hint": error.hint}
    return {"detail": f"{type(error).__name__}: {error} ({error_location(error)})"}


async def _try(backend: TerminalBackend, spec: SandboxSpec, trial: _Trial) -> tuple[ExecResult, Mapping[str, Any]]:
    async with await backend.open(spec) as sandbox:
        result = await sandbox.exec(trial.command, timeout=trial.seconds)
        return result, sandbox.provenance


def _how(provenance: Mapping[str, Any], feature: str) -> str:
    if feature.startswith("network "):
        families = provenance.get("socket_families")
        return f"sockets: {', '.join(families)}" if isinstance(families, list) else "nothing is reported about sockets"
    limits = provenance.get("limits")
    return str(limits.get(feature, "")) if isinstance(limits, Mapping) else ""
