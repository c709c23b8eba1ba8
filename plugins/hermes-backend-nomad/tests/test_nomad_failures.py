"""Failures of Nomad are reported in time with a typed error, and everything else continues."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from nomad_backends import Backends
from nomad_standin import StandIn

from hermes_backend_nomad.failures import DriverConfigError, NomadAccessError
from hermes_core.contracts.errors import BackendError, HermesError, SandboxLostError
from hermes_core.contracts.sandbox import Sandbox, SandboxSpec
from hermes_pool import SlotPool
from hermes_sandbox import LeaseBook
from hermes_testing.servers import closed_port

pytestmark = pytest.mark.component("bwrap")
SLOT = SandboxSpec(isolation="container+slot", network="none")
ALONE = SandboxSpec(isolation="container", network="none")


def _allocation(sandbox: Sandbox) -> str:
    return str(sandbox.provenance["allocation"]["id"])


async def _failure(backends: Backends, spec: SandboxSpec = SLOT, **options: Any) -> HermesError:
    """Open a sandbox, which fails long before a container would have to run, and return why."""
    backend = backends(**options)
    with pytest.raises(HermesError) as caught:
        async with asyncio.timeout(60):
            await backend.open(spec)
    await backend.aclose()
    assert LeaseBook(backends.leases).read() == ([], [])
    return caught.value


async def test_a_nomad_that_is_not_there_is_named_with_its_address(backends: Backends) -> None:
    with closed_port() as port:
        address = f"http://127.0.0.1:{port}"
        error = await _failure(backends, nomad_address=address)
    assert f"Nomad is not reachable at {address}" in str(error)
    assert "NOMAD_ADDR" in (error.hint or "")


async def test_what_answers_and_is_not_nomad_is_said_to_be_something_else(backends: Backends) -> None:
    async def page(_request: web.Request) -> web.Response:
        return web.Response(text="<html>welcome")

    app = web.Application()
    app.add_routes([web.route("*", "/{any:.*}", page)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        backend = backends(nomad_address=f"http://127.0.0.1:{runner.addresses[0][1]}")
        with pytest.raises(BackendError, match=r"got another server: .* gave '<html>welcome'"):
            await backend.open(SLOT)
        with pytest.raises(BackendError, match="expected Nomad at"):
            await backend.sweep()
        assert LeaseBook(backends.leases).read() == ([], [])
    finally:
        await runner.cleanup()


async def test_a_nomad_that_does_not_answer_is_given_up_in_time_and_what_it_did_unheard_is_undone(
    standin: StandIn, backends: Backends
) -> None:
    standin.faults(delay=300.0)
    backend = backends(request_timeout=0.2)
    async with asyncio.timeout(60):
        with pytest.raises(BackendError, match=r"did not answer \w+ /v1/\S+ within 0.2 s"):
            await backend.open(SLOT)
    assert LeaseBook(backends.leases).read()[0]
    standin.faults()
    await backend.aclose()
    assert LeaseBook(backends.leases).read() == ([], [])


@pytest.mark.parametrize(
    ("token", "said"), [(None, "it requires an ACL token"), ("wrong", "the ACL token does not allow it")]
)
async def test_a_token_that_is_missing_or_wrong_is_told_from_other_failures(
    standin: StandIn, backends: Backends, token: str | None, said: str
) -> None:
    standin.faults(token="right")
    error = await _failure(backends, **({} if token is None else {"token": token}))
    assert isinstance(error, NomadAccessError)
    assert error.fatal
    assert said in str(error)
    assert "403 Permission denied" in str(error)
    assert "NOMAD_TOKEN" in (error.hint or "")


async def test_the_token_opens_sandboxes_and_is_written_nowhere(
    standin: StandIn, backends: Backends, caplog: pytest.LogCaptureFixture
) -> None:
    standin.faults(token="right-and-secret")
    backend = backends(token="right-and-secret")
    async with await backend.open(SLOT) as sandbox:
        assert (await sandbox.exec("echo in; env")).output.startswith("in\n")
        assert (
            "right-and-secret"
            not in (await sandbox.exec("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")).output
        )
        leases = [path.read_text(encoding="utf-8") for path in backends.leases.glob("*.json")]
        assert len(leases) == 2
        shown = [*leases, str(sandbox.provenance), repr(backend.options), repr(backend.api.address), caplog.text]
        assert not any("right-and-secret" in text for text in shown)
        assert all('"withheld": ["token"]' in lease for lease in leases)


@pytest.mark.parametrize("form", [dict, list])
async def test_the_password_of_a_registry_reaches_nomad_and_no_lease(
    standin: StandIn, backends: Backends, form: type
) -> None:
    auth = {"username": "me", "password": "registry-secret"}
    backend = backends(docker_config={"auth": [auth] if form is list else auth})
    async with await backend.open(SLOT):
        (job,) = standin.tell("jobs").values()
        found = job["TaskGroups"][0]["Tasks"][0]["Config"]["auth"]
        assert found == ([auth] if form is list else auth)
        leases = [path.read_text(encoding="utf-8") for path in backends.leases.glob("*.json")]
        assert len(leases) == 2
        assert not any("registry-secret" in text for text in [*leases, repr(backend.options)])


async def test_the_token_is_taken_from_nomads_own_variable(
    standin: StandIn, backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOMAD_TOKEN", "from-outside")
    monkeypatch.setenv("NOMAD_ADDR", standin.address)
    standin.faults(token="from-outside")
    async with await backends(nomad_address=None).open(SLOT) as sandbox:
        assert (await sandbox.exec("echo $NOMAD_TOKEN")).output == "\n"


async def test_an_image_that_cannot_be_pulled_is_named_at_once(standin: StandIn, backends: Backends) -> None:
    standin.faults(missing_images=["sbx/none:1"])
    error = await _failure(backends, sandbox_image="sbx/none:1")
    assert "image sbx/none:1 cannot be pulled for sandbox-1" in str(error)
    assert "no such host" in str(error)
    assert "auth" in (error.hint or "")


async def test_what_cannot_be_placed_is_said_with_what_there_is_too_little_of(
    standin: StandIn, backends: Backends
) -> None:
    standin.faults(node_memory=1000)
    error = await _failure(backends, memory=4096)
    assert re.search(r"cannot place sandbox-\d+ of job \S+: too little memory on 1 node\(s\)", str(error))
    assert "options cpu and memory" in (error.hint or "")


async def test_a_config_that_the_driver_does_not_take_ends_the_run(standin: StandIn, backends: Backends) -> None:
    # Nomad has taken the job: that the node's driver is older shows only when it is to start.
    standin.faults(unknown_key="shm_size")
    error = await _failure(backends, docker_config={"shm_size": 1})
    assert isinstance(error, DriverConfigError)
    assert error.fatal
    assert 'No argument or block type is named "shm_size"' in str(error)


async def test_a_container_that_is_started_again_and_again_is_given_up_with_the_reason(
    standin: StandIn, backends: Backends
) -> None:
    standin.faults(restart_loop=True)
    error = await _failure(backends)
    assert "was restarted too often: Exceeded allowed attempts" in str(error)


async def test_a_container_that_never_runs_is_given_up_at_its_time(standin: StandIn, backends: Backends) -> None:
    standin.faults(start_delay=60)
    error = await _failure(backends, start_timeout=0.5)
    assert "did not start within 0.5 s" in str(error)
    assert "start_timeout" in (error.hint or "")


async def test_a_program_that_the_image_lacks_is_named(backends: Backends) -> None:
    error = await _failure(backends, python="/opt/no/python9")
    assert "the image lacks the program" in str(error)
    assert "/opt/no/python9" in str(error)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"exec_status": 404}, "refuses exec in allocation .*404"),
        ({"exec_status": 500}, "refuses exec in allocation .*500"),
        ({"exec_close": True}, "closed with code 1011 No path to node"),
    ],
)
async def test_an_exec_that_nomad_refuses_is_said_with_the_allocation(
    standin: StandIn, backends: Backends, fault: dict[str, Any], said: str
) -> None:
    standin.faults(**fault)
    assert re.search(said, str(await _failure(backends)))


async def test_containers_are_added_while_a_deployment_is_active(standin: StandIn, backends: Backends) -> None:
    standin.faults(deployment=True)
    backend = backends(slots_per_container=1)
    async with await backend.open(SLOT), await backend.open(SLOT) as second:
        (job,) = standin.tell("jobs")
        # What Nomad refuses then is its own request to scale.
        assert await _scale_status(standin, job) == 400
        assert len(standin.running()) == 2
        assert (await second.exec("echo two")).output == "two\n"


async def _scale_status(standin: StandIn, job: str) -> int:
    import aiohttp

    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{standin.address}/v1/job/{job}/scale", json={"Count": 2, "Target": {"Group": "g"}}) as answer,
    ):
        assert await answer.text() == "job scaling blocked due to active deployment"
        return answer.status


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("evict", "evicted: its node is drained, or it was stopped by hand"),
        ("lose", r"is lost \(desired: stop\)"),
        ("kill", "agent"),
        ("drop", "the websocket of alloc exec was closed"),
    ],
)
async def test_a_container_that_goes_takes_its_own_sandboxes_only(
    standin: StandIn, backends: Backends, order: str, said: str
) -> None:
    backend = backends(slots_per_container=2)
    opened = [await backend.open(SLOT) for _ in range(4)]
    gone = _allocation(opened[0])
    theirs = [sandbox for sandbox in opened if _allocation(sandbox) == gone]
    others = [sandbox for sandbox in opened if sandbox not in theirs]
    assert (len(theirs), len(others)) == (2, 2)
    calls = [asyncio.ensure_future(sandbox.exec("sleep 600")) for sandbox in theirs]
    await others[0].exec("true")
    await asyncio.to_thread(standin.order, order, gone)
    for call in calls:
        with pytest.raises(SandboxLostError, match=said):
            await asyncio.wait_for(call, 60)
    for sandbox in others:
        assert (await sandbox.exec("echo on")).output == "on\n"
    # A new container replaces it, with none of its sandboxes.
    async with await backend.open(SLOT) as fresh:
        assert _allocation(fresh) not in {gone, _allocation(others[0])}
    await asyncio.gather(*(sandbox.aclose() for sandbox in opened))


async def test_more_than_the_most_containers_are_waited_for_and_then_told_with_the_numbers(backends: Backends) -> None:
    backend = backends(slots_per_container=1, max_containers=2)
    async with await backend.open(SLOT), await backend.open(SLOT):
        assert isinstance(backend.host_pool, SlotPool)
        # Only now: the others' time included the start of their containers.
        backend.host_pool.options.acquire_timeout = 0.2
        with pytest.raises(
            BackendError, match=r"no slot of pool 'nomad job .*2 in use of 2 slots, 2 hosts of at most 2"
        ):
            await backend.open(SLOT)


async def test_a_certificate_that_is_not_there_is_named(backends: Backends, tmp_path: Path) -> None:
    with pytest.raises(HermesError, match="the certificates for Nomad cannot be read"):
        backends(nomad_address="https://localhost:1", ca_cert=tmp_path / "none.pem")
