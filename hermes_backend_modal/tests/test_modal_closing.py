"""A service that hangs does not block closing, and a sandbox that could not be ended keeps its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from standin import StandIn

from hermes_backend_modal.backend import ModalBackend
from hermes_backend_modal.options import ModalOptions
from hermes_backend_modal.service import Service
from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox import LeaseBook
from hermes_testing.watching import TooSoon, with_more_time


class _Call:
    """What the SDK's functions are: something with `aio`."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.aio = work


class _Sandbox:
    object_id = "sb-1"

    def __init__(self) -> None:
        self.ended = 0
        self.terminate = _Call(self._terminate)
        self.detach = _Call(self._hang)

    async def _terminate(self) -> None:
        self.ended += 1

    async def _hang(self) -> None:
        await asyncio.Event().wait()


class _Client:
    async def __aexit__(self, *_: object) -> None:
        await asyncio.Event().wait()


async def test_releasing_a_sandbox_or_a_connection_stays_within_its_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hermes_backend_modal.service._LEAVING", 0.01)
    service = Service(ModalOptions())
    sandbox = _Sandbox()
    service._client = _Client()
    async with asyncio.timeout(60):
        await service.end(sandbox)
        await service.aclose()
    assert sandbox.ended == 1


@pytest.mark.component("bwrap")
@pytest.mark.parametrize("isolation", ["gvisor", pytest.param("container+slot", marks=pytest.mark.slow)])
async def test_closing_while_the_service_hangs_ends_in_time_and_keeps_the_lease(
    standin: StandIn, tmp_path: Path, isolation: str
) -> None:
    made = ModalBackend(ModalOptions(**{**standin.options, "min_sandboxes": 0}))
    made.lease_dir = tmp_path
    sandbox = await made.open(SandboxSpec(isolation=isolation, network="none"))
    made.options.service_timeout = 0.5
    calling = asyncio.create_task(sandbox.exec("sleep 600"))
    await asyncio.sleep(0)
    standin.ask("slow", call="*", seconds=600)
    async with asyncio.timeout(120):
        with pytest.raises(BackendError, match=r"cannot be ended: Modal did not answer within 0\.5 s"):
            await made.aclose()
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    leases = LeaseBook(tmp_path).read()[0]
    assert leases
    standin.ask("well")
    other = ModalBackend(ModalOptions(**standin.options))
    for lease in leases:
        await other.reclaim({name: value for name, value in lease.handle.items() if name != "pool"})
    await other.aclose()
    assert not any(standin.running(hermes_sandbox=lease.sandbox_id) for lease in leases)


@pytest.mark.component("bwrap")
async def test_a_program_without_an_answer_to_its_start_is_abandoned_with_its_sandbox(
    standin: StandIn, tmp_path: Path
) -> None:
    standin.ask("slow", call="TaskExecStart", seconds=600)

    async def is_given_up(seconds: float) -> None:
        before = standin.ask()["calls"].get("TaskExecStart", 0)
        made = ModalBackend(ModalOptions(**{**standin.options, "create_timeout": seconds}))
        made.lease_dir = tmp_path
        # Twice the limit: the sandbox has it, and then the program.
        async with asyncio.timeout(2 * seconds + 30):
            try:
                with pytest.raises(BackendError) as caught:
                    await made.open(SandboxSpec(isolation="gvisor", network="none"))
            finally:
                await made.aclose()
        assert LeaseBook(tmp_path).read() == ([], [])
        TooSoon.unless(standin.ask()["calls"].get("TaskExecStart", 0) > before, "there was no sandbox to start it in")
        assert "a program cannot be started in sandbox sb-" in str(caught.value)

    await with_more_time(is_given_up)
