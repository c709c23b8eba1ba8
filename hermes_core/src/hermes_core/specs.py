"""Frozen declarations of components.

A plugin's hooks return these. A spec says what exists and where to import it from; nothing is imported until the
component is first used, so this module stays on the standard library and is cheap to load.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

API_LEVEL: Final = 1
"""Generation of the plugin interface. A spec with a higher level is refused as incompatible."""

Access = Literal["live", "read_only", "fresh"]
ACCESS_LEVELS: Final[tuple[Access, ...]] = ("live", "read_only", "fresh")
"""The kinds of sandbox that a verifier can get; in each, the model can reach less than in the one before."""

_NAME_EXTRA: Final = frozenset("_-.+")


def require_inner_path(path: str) -> None:
    """Raise ValueError unless `path` is relative and names something below the directory it is relative to."""
    parts = path.split("/")
    if not path.strip() or "\0" in path or path.startswith("/") or any(part in {"", ".", ".."} for part in parts):
        raise ValueError(f"expected a relative path below the workspace, without '.' or '..', got {path!r}")


def _require_name(name: str) -> None:
    if not name or not all(c.isalnum() or c in _NAME_EXTRA for c in name):
        raise ValueError(f"expected a component name of letters, digits and '_-.+', got {name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What every declared thing has: a name, one line for people, and the interface level it was written for."""

    name: str
    summary: str
    api: int = API_LEVEL

    def __post_init__(self) -> None:
        _require_name(self.name)

    def to_json(self) -> dict[str, Any]:
        """Return the declaration as plain JSON values; sets become sorted lists."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentSpec(Declaration):
    """A declaration with an implementation behind it.

    `target` is `"package.module:attribute"`, imported on first use. `requires` lists what must be present, checked
    without importing: `"dist:modal>=1"`, `"bin:docker"`, `"env:MODAL_TOKEN_ID"`. `capabilities` are the kind's words.
    """

    target: str
    requires: tuple[str, ...] = ()
    capabilities: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        Declaration.__post_init__(self)
        module, _, attribute = self.target.partition(":")
        if not all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")]):
            raise ValueError(f"expected a target like 'package.module:attribute', got {self.target!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec(ComponentSpec):
    """A tool the model can call.

    `description` and `parameters` (a JSON schema of type object) are what the model reads. `parallel_safe` tools of one
    turn run at the same time. A tool with `side_effects="external"` is offered only when it or its toolset is named.
    `max_result_size_chars` is the length above which a result is saved in the sandbox and replaced by a preview; None
    means the run's default, -1 means never.
    """

    toolset: str
    description: str
    parameters: Mapping[str, Any]
    parallel_safe: bool = False
    needs_sandbox: bool = True
    side_effects: Literal["none", "sandbox", "external"] = "sandbox"
    max_result_size_chars: int | None = None

    def __post_init__(self) -> None:
        ComponentSpec.__post_init__(self)
        if self.parameters.get("type") != "object":
            raise ValueError(f"tool {self.name!r}: parameters must be a JSON schema of type 'object'")
        if (found := self.side_effects) not in {"none", "sandbox", "external"}:
            raise ValueError(f"tool {self.name!r}: side_effects: expected none, sandbox or external, got {found!r}")

    def openai_schema(self) -> dict[str, Any]:
        """Return the entry for the `tools` list of a chat completion request."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSpec(ComponentSpec):
    """A terminal backend: where sandboxes come from.

    `isolation` lists the levels it offers, weakest first; `networks` the network modes it can enforce (besides "full");
    `limits` which of cpu, memory, pids, disk, file_size it can enforce; `images` whether it can run a named image.
    `trying_costs` says why a trial is not free, and completes a sentence that begins with "it": "asks for a node".
    """

    isolation: tuple[str, ...] = ("none",)
    networks: frozenset[str] = frozenset()
    limits: frozenset[str] = frozenset()
    images: bool = False
    is_remote: bool = False
    trying_costs: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParserSpec(ComponentSpec):
    """A tool-call parser: one wire format under one name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierSpec(ComponentSpec):
    """A reward verifier.

    `access` is the sandbox it is given: the rollout's own (`live`), another one with a copy of the workspace that
    nothing can change (`read_only`), or another one with the task's own files and only the rollout's `artifacts`
    (`fresh`), which are paths relative to the workspace. A task or a run may ask for more trust, never for less, and a
    task may name other artifacts. `bounds` is the closed range its score lies in, `lowest` the score of a rollout that
    made judging impossible: None means the lower bound, or 0 if that is infinite.
    """

    access: Access = "live"
    artifacts: tuple[str, ...] = ()
    needs_sandbox: bool = True
    bounds: tuple[float, float] = (0.0, 1.0)
    lowest: float | None = None

    def __post_init__(self) -> None:
        ComponentSpec.__post_init__(self)
        if self.access not in ACCESS_LEVELS:
            raise ValueError(
                f"verifier {self.name!r}: access: expected one of {', '.join(ACCESS_LEVELS)}, got {self.access!r}"
            )
        low, high = self.bounds
        if self.lowest is not None and not (math.isfinite(self.lowest) and low <= self.lowest <= high):
            raise ValueError(f"verifier {self.name!r}: lowest: expected a number in its bounds, got {self.lowest!r}")
        for path in self.artifacts:
            require_inner_path(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsetSpec(Declaration):
    """A named set of tools; `includes` names other toolsets. Tools that are not installed are skipped and recorded.

    `aliases` are other names of it, accepted wherever its own is; what is recorded has its own.
    """

    tools: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        Declaration.__post_init__(self)
        for alias in self.aliases:
            _require_name(alias)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsetDistributionSpec(Declaration):
    """Toolsets with the probability, in percent, that a group of rollouts is offered each.

    Each is drawn by itself, in the order of `percentages`: the same seed draws others where the order is another.
    """

    percentages: Mapping[str, int]

    def __post_init__(self) -> None:
        Declaration.__post_init__(self)
        if not self.percentages:
            raise ValueError(f"toolset distribution {self.name!r}: expected at least one toolset, got none")
        for toolset, percent in self.percentages.items():
            if type(percent) is not int or not 0 <= percent <= 100:
                raise ValueError(
                    f"toolset distribution {self.name!r}: expected a whole number from 0 to 100 for {toolset!r}, "
                    f"got {percent!r}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSourceSpec(ComponentSpec):
    """A reader of tasks from a path; `suffixes` are the file endings it claims ("" means a directory)."""

    suffixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec(ComponentSpec):
    """A writer of finished rollouts besides the run's own JSONL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec(ComponentSpec):
    """A rollout engine: where the rollouts of a run are executed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec(ComponentSpec):
    """A model client: one protocol of model servers, or with `embedded` a model that needs no server.

    A run names an embedded one as its model, any other as its protocol. `token_level` ones record token ids.
    """

    embedded: bool = False
    token_level: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec(ComponentSpec):
    """State that tools keep for all rollouts of one runtime; the target is called with the `Runtime`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStoreSpec(ComponentSpec):
    """A place where leases of sandboxes are written; see `hermes_core.contracts.leases`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec(ComponentSpec):
    """A subcommand of `hermes-core`; the target has `configure(parser)` and `run(arguments) -> int`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A component chosen by kind, name and options: the only form that crosses processes and enters configs."""

    kind: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the reference as plain JSON values."""
        return {"kind": self.kind, "name": self.name, "options": dict(self.options)}


def _plain(value: object) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value
