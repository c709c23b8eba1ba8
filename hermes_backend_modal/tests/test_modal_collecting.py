"""A caller that is killed at any moment leaves nothing at the service, once somebody collects."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from dying_caller import run_dying_caller
from standin import StandIn

from hermes_backend_modal.backend import ModalBackend
from hermes_backend_modal.options import ModalOptions
from hermes_core.contracts.leases import Collected
from hermes_sandbox import LeaseBook, SandboxReclaimer
from hermes_testing.registries import isolated_registry

pytestmark = [pytest.mark.slow, pytest.mark.component("bwrap")]


async def _die(standin: StandIn, leases: Path, isolation: str, phase: str) -> int:
    """Run a caller that is killed at a moment, and return its process id."""
    options = {**standin.options, "min_sandboxes": 0, "idle_timeout": 1}
    steps = ("create", "start", "end")
    return await run_dying_caller("modal", options, leases, isolation, phase, part="service", steps=steps)


def _sandboxes_of(standin: StandIn, pid: int) -> list[str]:
    return [
        sandbox["id"] for sandbox in standin.running() if sandbox["tags"].get("hermes_owner", "").startswith(f"{pid}.")
    ]


@pytest.mark.parametrize("isolation", ["gvisor", "container+slot"])
@pytest.mark.parametrize("phase", ["before create", "after create", "after start", "in use", "before end", "after end"])
async def test_nothing_is_left_of_a_caller_that_was_killed(
    standin: StandIn, tmp_path: Path, isolation: str, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = await _die(standin, tmp_path, isolation, phase)
    # A lease has no secrets: the token comes from the environment or the file.
    monkeypatch.setenv("MODAL_TOKEN_ID", standin.options["token_id"])
    monkeypatch.setenv("MODAL_TOKEN_SECRET", standin.options["token_secret"])
    monkeypatch.setenv("MODAL_SERVER_URL", standin.url)
    done = await SandboxReclaimer(LeaseBook(tmp_path), isolated_registry("hermes_backend_modal.plugin")).collect(
        backends=("modal",)
    )
    assert (done.failed, done.problems) == ({}, [])
    assert done.removed != []
    assert _sandboxes_of(standin, pid) == []
    assert LeaseBook(tmp_path).read() == ([], [])


async def test_sweeping_finds_sandboxes_without_leases_by_tags_and_keeps_those_of_living_owners(
    standin: StandIn, tmp_path: Path, backend: ModalBackend
) -> None:
    pids = [await _die(standin, tmp_path / "lost", "gvisor", "in use") for _ in range(3)]
    async with await backend.open(_spec()) as sandbox:
        found = await backend.sweep(remove=False)
        assert all(_sandboxes_of(standin, pid) for pid in pids)
        assert sorted(found) == sorted(await backend.sweep())
        assert sum(len(_sandboxes_of(standin, pid)) for pid in pids) == 0
        assert len(found) >= 3
        assert sandbox.id not in found
        assert (await sandbox.exec("echo alive")).output == "alive\n"


async def test_reclaiming_from_a_pool_whose_owner_lives_is_refused_and_names_the_way(backend: ModalBackend) -> None:
    from hermes_core.contracts.errors import BackendError

    async with await backend.open(_spec(isolation="container+slot")) as sandbox:
        with pytest.raises(BackendError, match="hermes-core sandboxes kill"):
            await backend.reclaim(backend.handle(_spec(isolation="container+slot"), sandbox.id))
        assert (await sandbox.exec("echo alive")).output == "alive\n"


async def test_reclaiming_without_an_app_succeeds_and_creates_none(standin: StandIn) -> None:
    made = ModalBackend(ModalOptions(**standin.options, app_name="never-made"))
    await made.reclaim({"sandbox_id": "x", "pool": "y"})
    assert await made.sweep() == []
    await made.aclose()
    assert "never-made" not in standin.ask()["apps"]


def _spec(**fields: str):
    from hermes_core.contracts.sandbox import SandboxSpec

    return SandboxSpec(**{"isolation": "gvisor", "network": "none", **fields})


async def _leave_with_its_lease(standin: StandIn, leases: Path, isolation: str) -> dict[str, str]:
    """Leave a sandbox and its leases behind, and return what a handle says of where it is."""
    await _die(standin, leases, isolation, "in use")
    book = LeaseBook(leases)
    # As of a caller whose token was the environment's or the file's: the options do not name it.
    for lease in book.read()[0]:
        options = {name: value for name, value in lease.options.items() if name != "token_id"}
        book.write(dataclasses.replace(lease, options=options))
    return dict(book.read()[0][0].handle)


def _use(standin: StandIn, monkeypatch: pytest.MonkeyPatch, token: str | None) -> None:
    monkeypatch.setenv("MODAL_SERVER_URL", standin.url)
    monkeypatch.setattr("modal.config._user_config", {})
    for name, value in {"MODAL_TOKEN_ID": "ak", "MODAL_TOKEN_SECRET": "as"}.items():
        if token is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, f"{value}-{token}")


async def _collect(leases: Path) -> Collected:
    return await SandboxReclaimer(LeaseBook(leases), isolated_registry("hermes_backend_modal.plugin")).collect(
        backends=()
    )


@pytest.mark.parametrize("isolation", ["gvisor", "container+slot"])
@pytest.mark.parametrize(("token", "found"), [("two", "got 'two'"), (None, "expected a token for Modal, got none")])
async def test_a_lease_stays_where_the_present_token_does_not_see_the_sandbox(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str, token: str | None, found: str
) -> None:
    handle = await _leave_with_its_lease(standin, tmp_path, isolation)
    assert handle["workspace"] == "one"
    _use(standin, monkeypatch, token)
    leases = [lease.sandbox_id for lease in LeaseBook(tmp_path).read()[0]]
    done = await _collect(tmp_path)
    assert (done.removed, sorted(done.failed)) == ([], sorted(leases))
    for said in done.failed.values():
        assert "Modal's workspace 'one'" in said
        assert found in said
        assert "MODAL_TOKEN_ID=ak-one MODAL_TOKEN_SECRET=… hermes-core sandboxes gc, with a token of 'one'" in said
    # Any token of that workspace will do.
    _use(standin, monkeypatch, "one-more")
    done = await _collect(tmp_path)
    assert (sorted(done.removed), done.failed) == (sorted(leases), {})
    assert standin.running(hermes_sandbox=leases[0]) == []
    assert LeaseBook(tmp_path).read() == ([], [])


async def test_a_lease_of_before_workspaces_were_noted_is_collected_as_it_was(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _leave_with_its_lease(standin, tmp_path, "gvisor")
    book = LeaseBook(tmp_path)
    (lease,) = book.read()[0]
    old = {name: value for name, value in lease.handle.items() if name not in {"workspace", "app", "token_id"}}
    book.write(dataclasses.replace(lease, handle=old))
    _use(standin, monkeypatch, "one")
    assert (await _collect(tmp_path)).removed == [lease.sandbox_id]
    assert standin.running(hermes_sandbox=lease.sandbox_id) == []
