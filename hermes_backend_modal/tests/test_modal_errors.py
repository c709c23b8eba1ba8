"""Errors of the service name the party, the thing and the next step."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import modal
import pytest
from standin import StandIn

from hermes_backend_modal.backend import ModalBackend
from hermes_backend_modal.failures import (
    ImageBuildError,
    ModalAuthError,
    ModalExhaustedError,
    ModalMissingError,
    ModalRequestError,
    ModalTimeoutError,
    ModalUnreachableError,
)
from hermes_backend_modal.options import ModalOptions
from hermes_core.contracts.errors import ConfigError, HermesError, NoPythonError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_pool import SlotPool
from hermes_sandbox import LeaseBook
from hermes_testing.watching import eventually

pytestmark = pytest.mark.component("bwrap")
SPEC = SandboxSpec(isolation="gvisor", network="none")


async def _fails(tmp_path: Path, kind: type[HermesError], options: dict[str, Any], spec: SandboxSpec = SPEC) -> str:
    """Open a sandbox that cannot be had and return what is said; nothing may be left of it."""
    made = ModalBackend(ModalOptions(**options))
    made.lease_dir = tmp_path
    try:
        with pytest.raises(kind) as caught:
            await made.open(spec)
    finally:
        await made.aclose()
    assert LeaseBook(tmp_path).read() == ([], [])
    assert type(caught.value) is kind
    assert caught.value.hint
    return str(caught.value)


@pytest.fixture
def none_left(standin: StandIn):
    before = len(standin.running())
    yield
    assert len(standin.running()) == before


async def test_no_token_says_where_one_comes_from(standin, tmp_path, monkeypatch):
    monkeypatch.delenv("MODAL_TOKEN_ID", raising=False)
    monkeypatch.delenv("MODAL_TOKEN_SECRET", raising=False)
    monkeypatch.setattr("modal.config._user_config", {})
    said = await _fails(tmp_path, ModalAuthError, {"server_url": standin.url})
    assert "expected a token for Modal, got none" in said
    assert "modal token new" in said


async def test_half_a_token_in_the_environment_says_which_half_is_missing(standin, tmp_path, monkeypatch):
    monkeypatch.setenv("MODAL_TOKEN_ID", "ak-one")
    monkeypatch.delenv("MODAL_TOKEN_SECRET", raising=False)
    monkeypatch.setattr("modal.config._user_config", {})
    assert "its secret is missing" in await _fails(tmp_path, ModalAuthError, {"server_url": standin.url})


async def test_a_token_that_is_wrong_is_the_user_s_to_change(standin, tmp_path):
    said = await _fails(tmp_path, ModalAuthError, {**standin.options, "token_secret": "as-wrong"})
    assert "do not match" in said
    assert "as-wrong" not in said
    assert ModalAuthError.fatal
    assert not ModalAuthError.retryable


async def test_a_section_that_the_configuration_does_not_have_is_named(standin, tmp_path):
    said = await _fails(tmp_path, ConfigError, {"server_url": standin.url, "config_profile": "nobody"})
    assert "modal token new --profile nobody" in said


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"environment": "nowhere"}, "Environment 'nowhere' not found"),
        ({"app_name": "never", "create_app": False}, "App 'never' not found"),
        ({"secrets": "absent"}, "Secret 'absent' not found"),
        ({"volumes": {"/models": "absent"}}, "Volume 'absent' not found"),
    ],
)
async def test_what_is_not_there_is_named(standin, tmp_path, none_left, options, named):
    said = await _fails(tmp_path, ModalMissingError, {**standin.options, **options})
    assert named in said
    assert "→ modal " in said


async def test_an_image_that_cannot_be_built_shows_the_end_of_its_log(standin, tmp_path, none_left):
    spec = SandboxSpec(isolation="gvisor", image="missing:1")
    said = await _fails(tmp_path, ImageBuildError, standin.options, spec)
    assert "image 'missing:1' cannot be built" in said
    assert "error: manifest for missing:1 not found" in said


async def test_an_image_without_python_says_how_to_get_one(standin, tmp_path, none_left):
    spec = SandboxSpec(isolation="gvisor", image="without-python:1")
    assert "add_python" in await _fails(tmp_path, NoPythonError, standin.options, spec)


async def test_an_image_s_id_that_is_not_there_is_named(standin, tmp_path, none_left):
    said = await _fails(tmp_path, ModalMissingError, {**standin.options, "image": "im-nowhere"})
    assert "im-nowhere" in said


async def test_a_dockerfile_that_is_not_there_is_named(standin, tmp_path):
    spec = SandboxSpec(isolation="gvisor", image=f"dockerfile:{tmp_path}/Dockerfile")
    assert "Dockerfile" in await _fails(tmp_path, ModalUnreachableError, standin.options, spec)


async def test_a_quota_that_is_reached_is_retryable_and_says_what_to_lower(standin, tmp_path, none_left):
    standin.ask("fail", call="SandboxCreateV2", status="RESOURCE_EXHAUSTED", text="limit of 100 reached", times=99)
    said = await _fails(tmp_path, ModalExhaustedError, standin.options)
    assert "limit of 100 reached" in said
    assert "max_sandboxes" in said
    assert ModalExhaustedError.retryable


async def test_a_request_that_the_service_refuses_is_not_asked_again(standin, tmp_path, none_left):
    standin.ask("fail", call="SandboxCreateV2", status="INVALID_ARGUMENT", text="memory is too large", times=1)
    assert "memory is too large" in await _fails(tmp_path, ModalRequestError, standin.options)


async def test_a_service_that_does_not_answer_is_given_up_in_time(standin, tmp_path, none_left):
    standin.ask("slow", call="AppGetOrCreate", seconds=600)
    said = await asyncio.wait_for(_fails(tmp_path, ModalTimeoutError, {**standin.options, "service_timeout": 0.3}), 60)
    assert "did not answer within 0.3 s" in said


async def test_no_server_at_the_address_is_reported_in_time(standin, tmp_path):
    options = {**standin.options, "server_url": "http://127.0.0.1:1", "service_timeout": 0.5}
    said = await asyncio.wait_for(_fails(tmp_path, ModalTimeoutError, options), 60)
    assert "status.modal.com" in said


async def test_a_sandbox_that_was_made_unheard_is_ended(standin, tmp_path, none_left):
    standin.ask("slow", call="created", seconds=600)
    await _fails(tmp_path, ModalTimeoutError, {**standin.options, "create_timeout": 0.5})
    standin.ask("well")


async def test_a_moment_of_unavailability_is_bridged(standin, backend):
    for call in ("AppGetOrCreate", "SandboxCreateV2", "TaskExecStart", "TaskExecStdinWrite"):
        standin.ask("fail", call=call, status="UNAVAILABLE", text="restarting", times=1)
    async with await backend.open(SPEC) as sandbox:
        assert (await sandbox.exec("echo yes")).output == "yes\n"


@pytest.mark.parametrize(("status", "said"), [(4, "max_lifetime"), (3, "ended from outside"), (10, "took more memory")])
async def test_a_sandbox_that_ends_in_use_says_why(standin, backend, status, said):
    sandbox = await backend.open(SPEC)
    call = asyncio.create_task(sandbox.exec("sleep 600"))
    await asyncio.sleep(0)
    standin.ask("end", sandbox=sandbox.provenance["modal_sandbox"], status=status)
    with pytest.raises(SandboxLostError, match=said):
        await asyncio.wait_for(call, 60)
    with pytest.raises(SandboxLostError):
        await sandbox.exec("echo ghost")
    await sandbox.aclose()


async def test_the_service_s_time_limit_ends_a_sandbox_and_says_so(standin, tmp_path):
    made = ModalBackend(ModalOptions(**standin.options, max_lifetime=900))
    made.lease_dir = tmp_path
    sandbox = await made.open(SPEC)
    standin.ask("age", sandbox=sandbox.provenance["modal_sandbox"], seconds=900)
    with pytest.raises(SandboxLostError, match="its lifetime of 900 s was over"):
        await asyncio.wait_for(sandbox.exec("sleep 600"), 60)
    await sandbox.aclose()
    await made.aclose()


async def test_limits_of_one_slot_alone_are_refused(backend):
    with pytest.raises(SandboxRefusedError, match="share its cpu, memory_mb"):
        await backend.check(SandboxSpec(isolation="container+slot", cpu=1.0, memory_mb=64))


async def test_slots_that_would_all_be_root_are_refused(standin, tmp_path):
    made = ModalBackend(ModalOptions(**standin.options, user="root"))
    with pytest.raises(SandboxRefusedError, match="cannot all be root"):
        await made.check(SandboxSpec(isolation="container+slot"))
    await made.aclose()


POOLED = SandboxSpec(isolation="container+slot", network="none")


async def test_an_image_whose_building_does_not_end_is_given_up_in_time_and_named(standin, tmp_path, none_left):
    standin.ask("slow", call="ImageJoinStreaming", seconds=600)
    spec = SandboxSpec(isolation="gvisor", image="slow-to-build:1")
    options = {**standin.options, "build_timeout": 1.0}
    said = await asyncio.wait_for(_fails(tmp_path, ModalTimeoutError, options, spec), 60)
    assert "image 'slow-to-build:1' cannot be built: not finished within 1 s" in said
    assert "build_timeout" in said


@pytest.mark.parametrize("spec", [SPEC, POOLED], ids=["gvisor", "container+slot"])
@pytest.mark.parametrize("call", ["WorkspaceNameLookup", "AppGetOrCreate", "AuthTokenGet", "SandboxCreateV2"])
async def test_an_expired_token_is_reported_at_once_in_every_call(standin, tmp_path, none_left, spec, call):
    standin.ask("fail", call=call, status="UNAUTHENTICATED", text="Token expired", times=99)
    made = ModalBackend(ModalOptions(**standin.options))
    made.lease_dir = tmp_path
    async with asyncio.timeout(60):
        with pytest.raises(ModalAuthError, match="Modal says: Token expired") as caught:
            await made.open(spec)
        await made.aclose()
    assert "modal token new" in str(caught.value)
    assert LeaseBook(tmp_path).read() == ([], [])


async def test_a_quota_that_is_reached_keeps_waiting_rollouts_for_those_that_have_a_slot(standin, tmp_path):
    made = ModalBackend(ModalOptions(**standin.options, slots_per_sandbox=1, min_sandboxes=0, acquire_timeout=300))
    made.lease_dir = tmp_path
    running = await made.open(POOLED)
    standin.ask("fail", call="SandboxCreateV2", status="RESOURCE_EXHAUSTED", text="limit of 1 reached", times=999)
    asked = standin.ask()["calls"]["SandboxCreateV2"]
    opening = asyncio.create_task(made.open(POOLED))

    async def was_refused() -> bool:
        return standin.ask()["calls"]["SandboxCreateV2"] > asked

    assert await eventually(was_refused, seconds=60)
    assert (await running.exec("echo on")).output == "on\n"
    assert not opening.done()
    await running.aclose()
    async with await asyncio.wait_for(opening, 60) as second:
        assert (await second.exec("echo second")).output == "second\n"
    await made.aclose()


@pytest.mark.parametrize(
    ("status", "text", "hint"),
    [
        ("RESOURCE_EXHAUSTED", "limit of 1 reached", "max_sandboxes"),
        ("UNAUTHENTICATED", "Token expired", "modal token new"),
    ],
)
async def test_what_keeps_a_pool_from_growing_is_the_reason_when_the_time_is_up_and_leaves_the_others_alone(
    standin, tmp_path, status, text, hint
):
    options = {"slots_per_sandbox": 1, "min_sandboxes": 0, "acquire_timeout": 300}
    made = ModalBackend(ModalOptions(**standin.options, **options))
    made.lease_dir = tmp_path
    async with await made.open(POOLED) as running:
        pool = made.host_pool
        assert isinstance(pool, SlotPool)
        standin.ask("fail", call="SandboxCreateV2", status=status, text=text, times=999)
        waiting = asyncio.create_task(made.open(POOLED))
        assert await eventually(lambda: pool.stats().last_failure is not None, seconds=60)
        pool.options.acquire_timeout = 0.2
        with pytest.raises(
            HermesError, match=f"a sandbox of app 'atropos-sandbox' cannot be created.*{text}"
        ) as caught:
            await asyncio.wait_for(made.open(POOLED), 60)
        assert hint in str(caught.value)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (await running.exec("echo on")).output == "on\n"
        standin.ask("well")
    await made.aclose()
    assert LeaseBook(tmp_path).read() == ([], [])


async def test_the_stand_in_fails_on_calls_and_fields_that_it_does_not_know(standin, backend):
    client = await backend.service.client()
    known = list(standin.ask()["unknown"])
    with pytest.raises(modal.exception.Error, match="does not know FunctionGet"):
        await modal.Function.from_name("an-app", "f", client=client).hydrate.aio()
    app = await backend.service.app()
    with pytest.raises(modal.exception.Error, match=r"SandboxCreateV2 does not know definition\.cloud_provider_str"):
        await modal.Sandbox.create.aio(
            "true", app=app, client=client, cloud="aws", image=await backend.service.image("python:3.11")
        )
    found = standin.ask()["unknown"][len(known) :]
    assert {said.partition(" ")[0] for said in found} == {"FunctionGet", "SandboxCreateV2"}
    standin.ask("forget")
