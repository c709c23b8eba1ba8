"""A caller that is killed at any moment leaves nothing behind, once somebody collects."""

from __future__ import annotations

from pathlib import Path

import pytest
from dying_caller import run_dying_caller
from engine_state import containers_of, narrow_sweeps

from hermes_sandbox import LeaseBook, SandboxReclaimer
from hermes_testing.registries import isolated_registry

pytestmark = [pytest.mark.slow, pytest.mark.component("docker")]

STEPS = ("create", "attach", "start", "remove")


@pytest.mark.parametrize("isolation", ["container", "container+slot"])
@pytest.mark.parametrize(
    "phase",
    ["before create", "after create", "after attach", "after start", "in use", "before remove", "after remove"],
)
async def test_nothing_is_left_of_a_caller_that_was_killed(
    tmp_path: Path, image: str, isolation: str, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"image": image, "pull": "never"}
    pid = await run_dying_caller("docker", options, tmp_path, isolation, phase, part="engine", steps=STEPS)
    narrow_sweeps(monkeypatch, "hermes.lease.owner_pid", str(pid))
    done = await SandboxReclaimer(LeaseBook(tmp_path), isolated_registry("hermes_backend_docker.plugin")).collect(
        backends=("docker",)
    )
    assert (done.failed, done.problems) == ({}, [])
    assert done.removed != []
    assert containers_of(pid) == set()
    assert LeaseBook(tmp_path).read() == ([], [])
