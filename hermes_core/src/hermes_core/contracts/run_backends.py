"""What a run's config asks of terminal backends, for commands that look at these without a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hermes_core.contracts.sandbox import SandboxSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBackends:
    """The answer to the hook `hermes_run_backends`.

    `backend` is the name of the run's own, `sandbox` what each of its sandboxes must be. `options` has, by the name of
    the backend, those of every backend that the config names, the run's own included. `plugins` are the config's
    settings of which plugins to load.
    """

    backend: str
    sandbox: SandboxSpec
    options: Mapping[str, Mapping[str, Any]]
    plugins: Mapping[str, Any] = field(default_factory=dict)
