"""Driver singularity: Apptainer by Nomad's raw_exec, one allocation for each sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nomad_backends import Backends
from nomad_standin import StandIn

from hermes_core.contracts.errors import BackendError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec

pytestmark = pytest.mark.component("bwrap")
_OPTIONS: dict[str, Any] = {
    "driver": "singularity",
    "singularity_program": str(Path(__file__).parent / "support" / "fake_apptainer.py"),
    "singularity_image": "/images/small.sif",
}


async def test_a_sandbox_runs_in_an_image_by_raw_exec(standin: StandIn, backends: Backends) -> None:
    # No level is requested: the default without separate users.
    async with await backends(**_OPTIONS).open(SandboxSpec(network="none")) as sandbox:
        assert (sandbox.provenance["isolation"], sandbox.provenance["driver"]) == ("container", "singularity")
        ((group,),) = [job["TaskGroups"] for job in standin.tell("jobs").values()]
        (task,) = group["Tasks"]
        assert (task["Driver"], set(task["Config"])) == ("raw_exec", {"command", "args"})
        await sandbox.write_file("here", b"1")
        found = await sandbox.exec("pwd; cat here; ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | wc -l")
        assert found.output == f"{sandbox.workspace}\n11\n"
        assert (await sandbox.exec("export KEPT=1")).exit_code == 0
        assert (await sandbox.exec("echo $KEPT")).output == "1\n"


async def test_a_sandbox_may_have_the_network_of_its_node(backends: Backends) -> None:
    async with await backends(**_OPTIONS).open(SandboxSpec(network="full")) as sandbox:
        assert int((await sandbox.exec("tail -n +3 /proc/net/dev | wc -l")).output) > 1


async def test_each_sandbox_has_an_allocation_of_its_own(standin: StandIn, backends: Backends) -> None:
    backend = backends(**_OPTIONS)
    async with await backend.open(SandboxSpec()) as one, await backend.open(SandboxSpec()) as other:
        assert len({str(sandbox.provenance["allocation"]["id"]) for sandbox in (one, other)}) == 2
        assert len(standin.running()) == 2
        await one.write_file(f"{one.workspace}/mine", b"1")
        assert (await other.exec(f"ls {one.workspace}")).exit_code != 0


async def test_an_image_that_a_node_lacks_is_named(backends: Backends) -> None:
    backend = backends(**{**_OPTIONS, "singularity_image": "/images/none.sif"})
    with pytest.raises(BackendError, match=r"could not open image /images/none\.sif"):
        await backend.open(SandboxSpec())


async def test_a_workspace_cannot_be_made_read_only_without_users(backends: Backends) -> None:
    async with await backends(**_OPTIONS).open(SandboxSpec()) as sandbox:
        with pytest.raises(SandboxRefusedError, match="driver singularity cannot make a workspace read-only"):
            await sandbox.freeze()
