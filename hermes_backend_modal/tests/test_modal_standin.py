"""What runs in the stand-in of the service cannot fill the machine that the tests run on."""

from __future__ import annotations

import pytest
from standin import StandIn
from standin_bounds import ROOM, directories_of

from hermes_backend_modal.backend import ModalBackend
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_testing.watching import eventually, fill_with_processes

pytestmark = pytest.mark.component("bwrap")


async def test_a_sandbox_starts_no_more_processes_than_its_control_group_allows_and_leaves_no_group(
    standin: StandIn, backend: ModalBackend
) -> None:
    async with await backend.open(SandboxSpec(isolation="gvisor", network="none")) as sandbox:
        (described,) = standin.running(hermes_sandbox=sandbox.id)
        groups = directories_of(described["id"])
        if not groups:
            pytest.skip("no control group for processes can be made here")
        assert await fill_with_processes(sandbox, ROOM + 300) <= ROOM
        assert [group.is_dir() for group in groups] == [True]
    assert await eventually(lambda: not any(group.exists() for group in groups))
