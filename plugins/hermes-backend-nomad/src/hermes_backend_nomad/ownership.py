"""The owner of a job: its metadata, and whether the owner is dead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from hermes_sandbox.backends import OWNER_FIELDS, Lease, owner_is_dead

RUN: Final = "hermes_run"
_PREFIX: Final = "hermes_"


def job_id(prefix: str, run_id: str) -> str:
    """Return the id of the job of one run."""
    return f"{prefix}-{run_id}"


def is_named(found: str, prefix: str) -> bool:
    """Return whether a job's id has our form, with this prefix or, if it is empty, any prefix."""
    return re.fullmatch((re.escape(prefix) or ".+") + r"-[0-9a-f]{16}", found) is not None


def meta_of(lease: Lease) -> dict[str, str]:
    """Return the metadata that identify the job's owner without the lease's file."""
    return {RUN: lease.sandbox_id, **{f"{_PREFIX}{field}": str(getattr(lease, field)) for field in OWNER_FIELDS}}


def is_abandoned(job: Mapping[str, Any]) -> bool:
    """Return whether a job is ours and its owner is dead; owners on other machines count as alive."""
    meta = job.get("Meta") or {}
    found = {field: meta[name] for field in OWNER_FIELDS if (name := f"{_PREFIX}{field}") in meta}
    return RUN in meta and owner_is_dead(found)
