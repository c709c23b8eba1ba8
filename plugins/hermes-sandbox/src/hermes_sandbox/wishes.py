"""Limits that a task only wishes for: enforced where possible, otherwise left out with a warning."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.backend.options import UNBOUNDED

T = TypeVar("T")
LIMITS: Final[Mapping[str, str]] = {
    "cpu": "cpu",
    "memory_mb": "memory",
    "pids": "pids",
    "disk_mb": "disk",
    "file_size_mb": "file_size",
}
"""The limits among a spec's fields, with their names in a backend's declaration and in the record."""
_log = logging.getLogger(__name__)


class Wishes:
    """What one backend leaves out of a spec's wishes, and why.

    Args:
        backend: Its name, for the message.
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._reasons: dict[str, str] = {}
        self._said: set[str] = set()

    async def grant(self, spec: SandboxSpec, act: Callable[[SandboxSpec], Awaitable[T]]) -> T:
        """Call `act` with a spec. If that is refused, call it again without the limits that are only wishes."""
        try:
            return await act(spec)
        except SandboxRefusedError as error:
            wishes = [name for name in spec.wishes if name in LIMITS and getattr(spec, name) is not None]
            if not wishes:
                raise
            self._reasons |= dict.fromkeys(wishes, error.message)
        none: dict[str, Any] = dict.fromkeys(wishes)
        done = await act(dataclasses.replace(spec, **none))
        self._tell(wishes)
        return done

    def omissions(self, spec: SandboxSpec) -> dict[str, str]:
        """Return, for the record, the limits that a spec wished for and that were left out, each with the reason."""
        names = [name for name in spec.wishes if name in self._reasons and getattr(spec, name) is None]
        return {LIMITS[name]: f"{UNBOUNDED}{self._reasons[name]}" for name in names}

    def _tell(self, names: list[str]) -> None:
        for name in names:
            if name not in self._said:
                self._said.add(name)
                _log.warning(
                    "backend %r: %s is not limited as tasks wish (%s). Where it has to be: set sandbox.%s in the run's "
                    "config.",
                    self._backend,
                    LIMITS[name],
                    self._reasons[name],
                    name,
                )
