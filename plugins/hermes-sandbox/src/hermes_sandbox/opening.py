"""The entry point for notebooks and scripts: opens a sandbox by the name of its backend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hermes_core.contracts.sandbox import Sandbox, SandboxSpec


@asynccontextmanager
async def open_sandbox(
    backend: str = "local",
    *,
    options: Mapping[str, Any] | None = None,
    registry: Any = None,
    lease_dir: Path | None = None,
    **spec_fields: Any,
) -> AsyncIterator[Sandbox]:
    """Open a sandbox of a backend and remove it afterwards.

    Args:
        backend: Name of any installed backend.
        options: Options of the backend.
        registry: Where to look the name up; all installed plugins if None.
        lease_dir: Directory of the leases; None means the lease store that a run has, by default the user's directory.
        spec_fields: Fields of `SandboxSpec`.
    """
    from hermes_core.discovery import load_plugins
    from hermes_core.rollout import supply_lease_store
    from hermes_sandbox.leases.file_store import lease_in_files

    spec = SandboxSpec(**spec_fields)
    registry = registry or load_plugins()
    source = registry.create("backend", backend, options)
    try:
        if lease_dir is None:
            supply_lease_store(source, registry, backend)
        else:
            lease_in_files(source, lease_dir)
        await source.check(spec)
        async with await source.open(spec) as sandbox:
            yield sandbox
    finally:
        await source.aclose()
