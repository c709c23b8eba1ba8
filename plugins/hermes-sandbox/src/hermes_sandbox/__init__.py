"""Sandboxes: where a rollout's commands run.

`open_sandbox` is the way in for callers. Authors of backends find what they need in `hermes_sandbox.backends`, in
`hermes_sandbox.remote` (machines that can be told to run commands) and in `hermes_sandbox.local` (this machine).
"""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_sandbox.backend.reclaim import SandboxReclaimer
    from hermes_sandbox.leases.book import LeaseBook, default_lease_dir
    from hermes_sandbox.leases.file_store import FileLeaseStore
    from hermes_sandbox.opening import open_sandbox

__all__ = ["FileLeaseStore", "LeaseBook", "SandboxReclaimer", "default_lease_dir", "open_sandbox"]

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".backend.reclaim": "SandboxReclaimer",
            ".leases.book": "LeaseBook default_lease_dir",
            ".leases.file_store": "FileLeaseStore",
            ".opening": "open_sandbox",
        },
    )
