"""A slot's leftovers in its container are removed with it, except files in volumes."""

from __future__ import annotations

import pytest
from nomad_backends import Backends

from hermes_backend_nomad.options import NomadOptions
from hermes_core.contracts.sandbox import SandboxSpec

SLOT = SandboxSpec(isolation="container+slot", network="none")


@pytest.mark.component("bwrap")
async def test_the_next_slot_finds_nothing_of_the_one_before(backends: Backends) -> None:
    backend = backends()
    async with await backend.open(SLOT) as one:
        allocation = one.provenance["allocation"]["id"]
        leave = "for d in /tmp /dev/shm; do mkdir $d/note; echo note > $d/note/f; done; ipcmk -M 4096 -Q -S 2"
        assert (await one.exec(leave)).exit_code == 0
    async with await backend.open(SLOT) as other:
        assert other.provenance["allocation"]["id"] == allocation
        look = "ls -A /tmp /dev/shm | grep note; tail -qn +2 /proc/sysvipc/*"
        assert (await other.exec(look)).output == ""


def test_volumes_are_known_by_where_they_are_inside() -> None:
    mounts = [{"type": "bind", "target": "/data", "source": "/srv"}, {"type": "tmpfs", "target": "/scratch"}]
    config = {"volumes": ["/a:/b", "name:/c:ro"], "mount": mounts, "mounts": [{"target": "/d"}]}
    assert NomadOptions(docker_config=config).targets == ("/b", "/c", "/data", "/d")
    assert NomadOptions().targets == ()
