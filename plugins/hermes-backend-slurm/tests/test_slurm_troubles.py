"""Every failure to get a sandbox from Slurm is a typed error that says what to do."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from slurm_backends import backend_on, wait_for_a_reason

from hermes_backend_slurm.backend import SlurmBackend
from hermes_backend_slurm.options import SlurmOptions
from hermes_backend_slurm.ownership import is_abandoned, own_mark
from hermes_core.contracts.errors import BackendError, ConfigError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.leases.machine_identity import MachineIdentity
from hermes_testing.registries import isolated_registry
from hermes_testing.watching import eventually, longest_stall

needs_slurm = pytest.mark.component("slurm")


async def refusal(backend, kind=BackendError):
    """Return the error message of a failed opening."""
    try:
        with pytest.raises(kind) as caught:
            await backend.check(SandboxSpec())
    finally:
        await backend.aclose()
    assert caught.value.hint
    return str(caught.value)


@needs_slurm
@pytest.mark.parametrize(
    ("options", "complaint", "hint"),
    [
        ({"partition": "nowhere"}, "invalid partition", "`sinfo` lists the partitions"),
        ({"constraint": "quantum"}, "Invalid feature", "option constraint"),
        ({"cpus_per_node": 5000}, "never start job", "ask for less"),
        ({"nodes": 50}, "never start job", "ask for less"),
        ({"gres": "gpu:9"}, "Invalid generic resource", "option gres"),
        ({"time": "soon"}, "invalid --time", "2:00:00"),
        ({"extra_args": ("--no-such-thing",)}, "unrecognized option", "extra_args"),
    ],
)
async def test_options_with_which_slurm_never_grants_an_allocation_end_the_run(
    slurm, tmp_path, options, complaint, hint
):
    said = await refusal(backend_on(slurm, tmp_path, **options), SandboxRefusedError)
    assert complaint.lower() in said.lower()
    assert hint in said
    assert slurm.jobs() == []


@needs_slurm
async def test_a_partition_that_is_down_may_come_back(slurm, tmp_path, monkeypatch):
    wait_for_a_reason(slurm, monkeypatch)
    assert "PartitionDown" in await refusal(backend_on(slurm, tmp_path, partition="closed", queue_timeout=0.4))
    assert await eventually(lambda: slurm.jobs() == [])


@needs_slurm
async def test_a_controller_that_does_not_answer_is_an_error_with_the_next_step(own_slurm, tmp_path):
    own_slurm.stop_controller()
    backend = backend_on(own_slurm, tmp_path, job_id="1", setup_timeout=4)
    said, stall = await longest_stall(refusal(backend))
    assert "Unable to contact slurm controller" in said or "did not answer within" in said
    assert "`scontrol ping`" in said
    assert stall < 1.5


@needs_slurm
async def test_a_missing_configuration_file_is_refused(slurm, tmp_path):
    said = await refusal(backend_on(slurm, tmp_path, conf=str(tmp_path / "absent.conf")), SandboxRefusedError)
    assert "absent.conf does not exist" in said


async def test_a_machine_without_slurm_is_refused_with_the_package_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    said = await refusal(SlurmBackend(SlurmOptions()), SandboxRefusedError)
    assert "needs Slurm's command salloc" in said
    assert "slurm-client" in said


@needs_slurm
async def test_a_node_without_python_is_refused(slurm, tmp_path):
    said = await refusal(backend_on(slurm, tmp_path, python="/opt/none/python3"), SandboxRefusedError)
    assert "n1 has no /opt/none/python3 that runs" in said


@needs_slurm
async def test_a_restart_of_the_controller_does_not_disturb_open_sandboxes(own_slurm, tmp_path):
    backend = backend_on(own_slurm, tmp_path)
    box = await backend.open(SandboxSpec())
    own_slurm.stop_controller()
    assert (await box.exec("echo still here")).output == "still here\n"
    await asyncio.to_thread(own_slurm.start_controller)
    await backend.aclose()
    assert list((tmp_path / "root").iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"partiton": "debug"}, "partiton"),
        ({"job_id": "seven"}, "job_id"),
        ({"nodes": 0}, "nodes"),
        ({"extra_args": ["--job-name=mine"]}, "--job-name=mine"),
        ({"extra_args": ["--comment", "two words"]}, "two words"),
    ],
)
def test_invalid_options_are_refused(wrong, complaint):
    with pytest.raises(ConfigError, match=complaint):
        isolated_registry("hermes_backend_slurm.plugin").create("backend", "slurm", wrong)


def test_a_mark_says_whether_its_owner_lives():
    mine = f"{own_mark()}:0"
    assert not is_abandoned(mine)
    words = mine.split(":")
    dead = [*words[:5], str(int(words[5]) + 1), *words[6:]]
    assert is_abandoned(":".join(dead))
    assert not is_abandoned(":".join([words[0], "another-node", *dead[2:]]))
    # Another boot id with this node name is a login node of another cluster or a container, not an earlier boot.
    assert not is_abandoned(":".join([*dead[:2], "another-boot", *dead[3:]]))
    others = ([*words[:4], "x", "y", "", "z"], [*dead, "more"], [*dead[:6], "0"])
    for name in ("train", "hermes:x", "", *map(":".join, others)):
        assert not is_abandoned(name)


def test_a_mark_of_an_earlier_boot_of_this_machine_is_a_dead_owner_s(monkeypatch):
    here = dataclasses.replace(MachineIdentity.now(), machine_id="one.two")
    monkeypatch.setattr(MachineIdentity, "now", lambda: here)
    words = f"{own_mark()}:0".split(":")
    earlier = [*words[:2], "an-earlier-boot", *words[3:]]
    assert is_abandoned(":".join(earlier))
    assert not is_abandoned(":".join([*earlier[:6], "three", "0"]))
    assert not is_abandoned(":".join(words))
