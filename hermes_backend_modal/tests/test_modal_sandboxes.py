"""The requested properties of a sandbox, and their effect on commands."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from hermes_backend_modal.backend import ModalBackend
from hermes_backend_modal.options import ModalOptions
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_testing.watching import TooSoon, eventually, with_more_time

pytestmark = pytest.mark.component("bwrap")
SPEC = SandboxSpec(isolation="gvisor", network="none")


class Opened:
    """A sandbox of a backend with further options, and what the service was asked for."""

    def __init__(self, standin: Any, tmp_path: Path, spec: SandboxSpec, **options: Any) -> None:
        self._standin, self._spec = standin, spec
        self._backend = ModalBackend(ModalOptions(**{**standin.options, **options}))
        self._backend.lease_dir = tmp_path

    async def __aenter__(self) -> tuple[Any, dict[str, Any]]:
        self._sandbox = await self._backend.open(self._spec)
        (asked,) = self._standin.running(hermes_sandbox=self._sandbox.id)
        return self._sandbox, asked

    async def __aexit__(self, *_: object) -> None:
        await self._sandbox.aclose()
        await self._backend.aclose()


async def test_options_reach_the_service(standin, tmp_path):
    options = {
        "cpu": 2.0,
        "memory": 512,
        "region": ["us-east", "eu"],
        "volumes": {"/models": "models:ro"},
        "tags": {"team": "rl"},
        "max_lifetime": 900,
        "idle_timeout": 60,
    }
    spec = SandboxSpec(isolation="gvisor", network="none", rollout_id="task-7.2")
    async with Opened(standin, tmp_path, spec, **options) as (sandbox, asked):
        assert asked["timeout"] == 900
        assert asked["idle_timeout"] == 60
        assert asked["milli_cpu"] == [2000, 0]
        assert asked["memory_mb"] == [512, 0]
        assert asked["regions"] == ["us-east", "eu"]
        assert asked["volumes"] == ["/models"]
        assert asked["tags"]["team"] == "rl"
        assert asked["tags"]["hermes_rollout"] == "task-7.2"
        assert asked["tags"]["hermes_owner"].startswith(f"{os.getpid()}.")
        assert sandbox.provenance["given"] == {"cpu": 2.0, "memory_mb": 512}


async def test_a_task_s_limits_are_hard_ones(standin, tmp_path):
    spec = SandboxSpec(isolation="gvisor", cpu=0.5, memory_mb=256)
    async with Opened(standin, tmp_path, spec) as (sandbox, asked):
        assert asked["milli_cpu"] == [500, 500]
        assert asked["memory_mb"] == [256, 256]
        limits = sandbox.provenance["limits"]
        assert (limits["cpu"], limits["memory"]) == ("0.5 cores", "256 MB")


async def test_an_unshared_sandbox_records_that_this_backend_sets_no_process_limit(standin, tmp_path):
    async with Opened(standin, tmp_path, SPEC, pids=50) as (sandbox, _):
        assert sandbox.provenance["limits"]["pids"] == "none: the sandbox has its own kernel, and no limit"
        assert (await sandbox.exec("ulimit -u")).output != "50\n"


async def test_a_slot_that_is_full_leaves_the_others_and_the_agent_their_processes(standin, tmp_path):
    backend = ModalBackend(ModalOptions(**standin.options, pids=40))
    backend.lease_dir = tmp_path
    spec = SandboxSpec(isolation="container+slot", network="none")
    async with await backend.open(spec) as one, await backend.open(spec) as other:
        # The stand-in's kernel holds users to a number; under gVisor the agent finds that none does, and says that.
        assert one.provenance["limits"]["pids"] == "40 of its user, by RLIMIT_NPROC"
        crowd = await one.processes.start("for i in {1..60}; do sleep 60 & done; true")

        async def hits_the_number():
            return b"Resource temporarily unavailable" in (await one.processes.read(crowd.id)).data

        assert await eventually(hits_the_number)
        assert (await other.exec("for i in {1..20}; do sleep 60 & done; jobs -r | wc -l")).output == "20\n"
        await one.renew()
        assert (await one.exec("echo $(echo room)")).output == "room\n"
    await backend.aclose()


async def test_a_sandbox_with_a_gpu_goes_the_older_way_and_works(standin, tmp_path):
    async with Opened(standin, tmp_path, SPEC, gpu="A10G") as (sandbox, asked):
        assert asked["gpu"] == "A10G"
        assert (await sandbox.exec("echo yes")).output == "yes\n"
        await sandbox.renew()
        assert (await sandbox.exec("echo again")).output == "again\n"


async def test_variables_of_image_secrets_and_options_reach_the_commands_and_the_service_s_own_do_not(
    standin, tmp_path
):
    (tmp_path / "Dockerfile").write_text("FROM python:3.11\nENV FROM_IMAGE=1\n", encoding="utf-8")
    spec = SandboxSpec(isolation="gvisor", image=f"dockerfile:{tmp_path}/Dockerfile", env={"OWN": "spec"})
    options = {"secrets": "wandb", "env_vars": "A=1;OWN=option"}
    async with Opened(standin, tmp_path / "leases", spec, **options) as (sandbox, _):
        found = dict(line.split("=", 1) for line in (await sandbox.exec("env")).output.splitlines())
        assert (found["FROM_IMAGE"], found["WANDB_API_KEY"], found["A"], found["OWN"]) == (
            "1",
            "of-the-secret",
            "1",
            "spec",
        )
        assert not any(name.startswith("MODAL_") for name in found)
        assert "of-the-secret" not in json.dumps(dict(sandbox.provenance))


@pytest.mark.parametrize("isolation", ["gvisor", "container+slot"])
async def test_a_frozen_workspace_can_be_read_and_not_written(standin, tmp_path, isolation):
    spec = SandboxSpec(isolation=isolation, network="none")
    backend = ModalBackend(ModalOptions(**standin.options))
    backend.lease_dir = tmp_path
    async with await backend.open(spec) as sandbox:
        await sandbox.exec("mkdir -p a/b; echo 1 > a/b/f; ln -s /etc out; chmod 0 a/b")
        await sandbox.freeze()
        assert (await sandbox.exec("cat a/b/f")).output == "1\n"
        for attempt in ("echo 2 > a/b/f", "rm -f a/b/f", "touch new", "chmod 777 a", "rm -rf a"):
            assert (await sandbox.exec(attempt)).exit_code != 0, attempt
    await backend.aclose()


async def test_root_is_recorded_as_weaker(standin, tmp_path):
    async with Opened(standin, tmp_path, SPEC, user="root") as (sandbox, _):
        assert (await sandbox.exec("id -u")).output == "0\n"
        assert sandbox.provenance["weaker"] == ["commands are root inside"]


async def test_a_command_without_a_timeout_gets_that_of_the_option(standin, tmp_path):
    async with Opened(standin, tmp_path, SPEC, execution_timeout=0.5) as (sandbox, _):
        assert (await asyncio.wait_for(sandbox.exec("sleep 600"), 60)).timed_out


async def test_only_so_many_start_at_once(standin, tmp_path):

    async def three_overlap(seconds):
        standin.ask("peak")
        standin.ask("slow", call="created", seconds=seconds)
        backend = ModalBackend(ModalOptions(**standin.options, concurrent_starts=3))
        backend.lease_dir = tmp_path
        try:
            opened = await asyncio.gather(*(backend.open(SPEC) for _ in range(9)))
            await asyncio.gather(*(sandbox.aclose() for sandbox in opened))
        finally:
            await backend.aclose()
        most = standin.ask()["most_at_once"]
        TooSoon.unless(most >= 3, "three starts had not come together")
        return most

    assert await with_more_time(three_overlap) == 3


async def test_an_image_is_built_once_however_many_ask(standin, tmp_path):
    before = standin.ask()["calls"].get("ImageGetOrCreate", 0)
    backend = ModalBackend(ModalOptions(**standin.options, image="once:1"))
    backend.lease_dir = tmp_path
    opened = await asyncio.gather(*(backend.open(SPEC) for _ in range(4)))
    assert standin.ask()["calls"]["ImageGetOrCreate"] - before == 1
    await asyncio.gather(*(sandbox.aclose() for sandbox in opened))
    await backend.aclose()


async def test_two_backends_with_different_tokens_live_side_by_side(standin, tmp_path):
    before = dict(os.environ)
    two = {**standin.options, "token_id": "ak-two", "token_secret": "as-two"}
    async with (
        Opened(standin, tmp_path, SPEC) as (one, asked_one),
        Opened(standin, tmp_path, SPEC, **two) as (other, asked_other),
    ):
        assert (asked_one["workspace"], asked_other["workspace"]) == ("one", "two")
        assert (await one.exec("echo 1")).output + (await other.exec("echo 2")).output == "1\n2\n"
        stranger = ModalBackend(ModalOptions(**two))
        await stranger.reclaim({"sandbox_id": one.id})
        await stranger.aclose()
        assert (await one.exec("echo still")).output == "still\n"
    assert dict(os.environ) == before


async def test_the_environment_and_the_sdk_s_file_are_asked_in_this_order(standin, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "modal.config._user_config", {"lab": {"token_id": "ak-two", "token_secret": "as-two", "active": True}}
    )
    monkeypatch.setattr("modal.config._profile", "lab")
    monkeypatch.setenv("MODAL_SERVER_URL", standin.url)
    nothing = {"token_id": None, "token_secret": None, "server_url": None}
    async with Opened(standin, tmp_path, SPEC, **nothing) as (_, asked):
        assert asked["workspace"] == "two"
    monkeypatch.setenv("MODAL_TOKEN_ID", "ak-one")
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "as-one")
    async with Opened(standin, tmp_path, SPEC, **nothing) as (_, asked):
        assert asked["workspace"] == "one"
    async with Opened(standin, tmp_path, SPEC, **nothing, config_profile="lab") as (_, asked):
        assert asked["workspace"] == "two"


async def test_cancelling_the_creation_of_a_sandbox_leaves_none(standin, tmp_path):
    standin.ask("slow", call="created", seconds=0.5)
    backend = ModalBackend(ModalOptions(**standin.options))
    backend.lease_dir = tmp_path
    before = standin.ask()["calls"].get("SandboxCreateV2", 0)
    opening = asyncio.create_task(backend.open(SPEC))
    while standin.ask()["calls"].get("SandboxCreateV2", 0) == before:
        await asyncio.sleep(0.01)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not [found for found in standin.running() if found["tags"]["hermes_owner"].startswith(f"{os.getpid()}.")]
    await backend.aclose()


@pytest.mark.parametrize(("mode", "level"), [("pool", "container+slot"), ("direct", "gvisor")])
async def test_the_mode_is_the_default_isolation(standin, tmp_path, mode, level):
    made = ModalBackend(ModalOptions(**standin.options, mode=mode))
    made.lease_dir = tmp_path
    async with await made.open(SandboxSpec()) as sandbox:
        assert sandbox.provenance["isolation"] == level
    await made.aclose()


@pytest.mark.parametrize("image", ["python:3.11", "debian_slim", "debian_slim:3.12"])
async def test_an_image_is_named_as_people_name_it(standin, tmp_path, image):
    async with Opened(standin, tmp_path, SPEC, image=image) as (sandbox, _):
        assert (await sandbox.exec("echo yes")).output == "yes\n"
        assert sandbox.provenance["image"] == image


async def test_an_image_that_exists_is_used_by_its_id(standin, tmp_path):
    async with Opened(standin, tmp_path, SPEC) as (_, asked):
        known = asked["image"]
    async with Opened(standin, tmp_path, SPEC, image=known) as (sandbox, asked):
        assert asked["image"] == known
        assert (await sandbox.exec("echo yes")).output == "yes\n"
