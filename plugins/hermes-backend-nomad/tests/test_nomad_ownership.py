"""Whose a job is: many machines see the same ones, and pods of two clusters have one name."""

from __future__ import annotations

import dataclasses

import pytest

from hermes_backend_nomad.ownership import is_abandoned, meta_of
from hermes_sandbox.backends import Lease
from hermes_sandbox.leases.machine_identity import MachineIdentity


@pytest.fixture
def machine(monkeypatch):
    """Return a function that makes this a machine with an id."""

    def become(machine_id):
        here = dataclasses.replace(MachineIdentity.now(), machine_id=machine_id)
        monkeypatch.setattr(MachineIdentity, "now", lambda: here)

    return become


def job(**changes):
    lease = Lease.of_this_process(sandbox_id="s1", backend="nomad", rollout_id=None, deadline=0.0, handle={})
    return {"Meta": meta_of(dataclasses.replace(lease, **changes))}


EARLIER = {"boot_id": "17a8921d-7408-4875-83b9-000000000000"}


@pytest.mark.parametrize(
    ("changes", "abandoned"),
    [
        ({}, False),
        ({"owner_start": 1}, True),
        ({"machine_id": "m1.m2", **EARLIER}, True),
        ({"machine_id": "m3", **EARLIER}, False),
        ({"machine_id": "", **EARLIER}, False),
        ({"pid_namespace": "pid:[1]", "owner_start": 1}, False),
        ({"node": "another", "owner_start": 1}, False),
    ],
)
def test_only_an_owner_that_is_known_to_be_dead_has_abandoned_its_job(machine, changes, abandoned):
    machine("m1.m2")
    assert is_abandoned(job(**changes)) == abandoned


@pytest.mark.parametrize("changes", [{}, EARLIER])
def test_metadata_of_earlier_releases_name_no_machine(machine, changes):
    machine("m1")
    written = job(owner_start=1, **changes)
    del written["Meta"]["hermes_machine_id"]
    assert is_abandoned(written) == (not changes)
