"""The copy of a lease in the directory of a sandbox of this machine, by which `sweep` finds what dead owners left."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path

import pytest

from hermes_core.contracts.errors import BackendError
from hermes_sandbox import LeaseBook
from hermes_sandbox.backends import Lease
from hermes_sandbox.local import LocalBackend, LocalOptions, find_abandoned, write_lease_copy


def lease_of(parent, sandbox_id, backend="local", *, dead=True):
    root = parent / f"hermes-sandbox-{sandbox_id}"
    root.mkdir()
    lease = Lease.of_this_process(
        sandbox_id=sandbox_id,
        backend=backend,
        rollout_id=None,
        deadline=0.0,
        handle={"sandbox_id": sandbox_id, "root": str(root)},
    )
    return root, dataclasses.replace(lease, owner_start=1) if dead else lease


@pytest.mark.parametrize("name", [".lease", "lease.json"])
def test_a_copy_is_not_written_through_a_link_that_a_sandbox_left(tmp_path, name):
    victim = tmp_path / "victim"
    victim.write_text("as before")
    root, lease = lease_of(tmp_path, "a")
    (root / name).symlink_to(victim)
    write_lease_copy(root, lease)
    assert victim.read_text() == "as before"
    assert find_abandoned(tmp_path, "local") == [lease]
    assert (root / "lease.json").stat().st_mode & 0o777 == 0o600


def test_only_a_backends_own_directories_of_dead_owners_are_found(tmp_path):
    for sandbox_id, backend, dead in [("a", "local", True), ("b", "local", False), ("c", "other", True)]:
        write_lease_copy(*lease_of(tmp_path, sandbox_id, backend, dead=dead))
    assert [lease.sandbox_id for lease in find_abandoned(tmp_path, "local")] == ["a"]
    assert [lease.sandbox_id for lease in find_abandoned(tmp_path, "other")] == ["c"]


async def test_a_sweep_removes_no_directory_of_another_backend_with_the_same_parent(tmp_path):
    root, lease = lease_of(tmp_path, "a", "other")
    write_lease_copy(root, lease)
    backend = LocalBackend(LocalOptions(root_dir=tmp_path))
    assert await backend.sweep() == []
    assert root.is_dir()
    await backend.aclose()


def test_a_lease_that_cannot_be_written_to_the_disk_leaves_the_old_one_and_nothing_beside_it(tmp_path, monkeypatch):
    book = LeaseBook(tmp_path / "leases")
    _, lease = lease_of(tmp_path, "a")
    book.write(lease)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(BackendError, match=r"the lease of a sandbox cannot be written: .*No space left on device"):
        book.write(dataclasses.replace(lease, deadline=1.0))
    assert book.read() == ([lease], [])
    assert [path.name for path in book.directory.iterdir()] == ["a.json"]
