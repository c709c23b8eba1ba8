"""Whose a job is: its meta data, and what they say about an owner that may be dead."""

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
    """Tell whether a job's id may be one of ours, under this prefix or, where that is empty, any."""
    return re.fullmatch((re.escape(prefix) or ".+") + r"-[0-9a-f]{16}", found) is not None


def meta_of(lease: Lease) -> dict[str, str]:
    """Return the meta data that let another process judge the job without the lease's file."""
    return {RUN: lease.sandbox_id, **{f"{_PREFIX}{field}": str(getattr(lease, field)) for field in OWNER_FIELDS}}


def is_abandoned(job: Mapping[str, Any]) -> bool:
    """Tell whether a job is one of ours whose owner is known to be dead; of another machine's, nothing is known."""
    meta = job.get("Meta") or {}
    found = {field: meta[name] for field in OWNER_FIELDS if (name := f"{_PREFIX}{field}") in meta}
    return RUN in meta and owner_is_dead(found)
