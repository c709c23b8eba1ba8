"""Records of plugins, before and after loading."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_core.specs import Declaration

LOCAL = "local"
"""Stands for the distribution of a plugin that is the user's own module or file."""


class PluginState(StrEnum):
    """How far a plugin was taken. Only `loaded` ones take part."""

    FOUND = "found"
    BLOCKED = "blocked"
    INCOMPATIBLE = "incompatible"
    FAILED = "failed"
    LOADED = "loaded"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPlugin:
    """One entry point of one distribution, or a local module or file (`path`); nothing of it is imported.

    `problem` says why its metadata cannot be read.
    """

    distribution: str
    version: str
    name: str
    value: str
    path: str | None = None
    problem: str | None = None

    @property
    def id(self) -> str:
        """The qualified name, `distribution:entry-point`."""
        return f"{self.distribution}:{self.name}"

    @property
    def is_local(self) -> bool:
        """Whether it is the user's own module or file and not an installed distribution."""
        return self.distribution == LOCAL


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecord:
    """A plugin and its state. `note` is one line for people, `trace` the formatted traceback of `error`."""

    found: FoundPlugin
    state: PluginState
    note: str = ""
    load_seconds: float | None = None
    hooks: tuple[str, ...] = ()
    declared: tuple[tuple[str, Declaration], ...] = ()
    module: object = field(default=None, repr=False, compare=False)
    error: BaseException | None = field(default=None, repr=False, compare=False)
    trace: str = field(default="", repr=False)

    @property
    def id(self) -> str:
        """The qualified name, `distribution:entry-point`."""
        return self.found.id

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON values, without the traceback."""
        return {
            "plugin": self.id,
            "name": self.found.name,
            "distribution": self.found.distribution,
            "version": self.found.version,
            "value": self.found.value,
            "local": self.found.is_local,
            "state": str(self.state),
            "note": self.note,
            "load_seconds": self.load_seconds,
            "hooks": list(self.hooks),
            "components": [f"{kind}:{spec.name}" for kind, spec in self.declared],
        }


def local_record(target: object) -> PluginRecord:
    """Return the record of the module that an object comes from, as a plugin that declares nothing."""
    while isinstance(target, functools.partial):
        target = target.func
    name: str = getattr(target, "__module__", "__main__")
    found = FoundPlugin(distribution=LOCAL, version="", name=name, value=name)
    return PluginRecord(found=found, state=PluginState.LOADED, module=sys.modules.get(name))
