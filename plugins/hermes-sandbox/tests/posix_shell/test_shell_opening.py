"""Opening a sandbox without Python: what is recorded, and what is refused before anything runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from plain_support import PlainBackend, plain_backend, plain_sandbox, running

from hermes_core.contracts.errors import BackendError, SandboxLacksError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import Sandbox, SandboxSpec
from hermes_core.discovery import contract_violations
from hermes_testing.watching import eventually


async def test_the_sandbox_has_the_contracts_methods_and_says_what_it_is() -> None:
    async with plain_sandbox() as box:
        assert contract_violations(box, Sandbox) == []
        assert (box.provenance["agent"], box.provenance["without_python"]) == ("sh", "this place has no Python")
        assert any("same user" in text for text in box.provenance["weaker"])


@pytest.mark.parametrize("fields", [{"session": "live"}])
async def test_a_spec_that_needs_an_agent_is_refused(fields: dict[str, Any]) -> None:
    async with plain_backend() as backend:
        with pytest.raises(SandboxRefusedError, match="Python") as caught:
            await backend.open(SandboxSpec(**fields))
        assert "python3" in str(caught.value.hint)


async def test_what_it_cannot_do_says_why_and_what_to_install(tmp_path: Path) -> None:
    async with plain_sandbox() as box:
        with pytest.raises(SandboxLacksError, match="install python3"):
            await box.processes.list()
        with pytest.raises(SandboxLacksError):
            await box.archive(["."], tmp_path / "a.tar.gz")
        with pytest.raises(SandboxRefusedError, match="read-only"):
            await box.freeze()
        assert (await box.exec("echo usable")).output == "usable\n"


async def test_renewing_kills_what_runs_and_forgets_the_session() -> None:
    async with plain_sandbox() as box:
        await box.exec("export STATE=old; : >kept; setsid sleep 7676 & cd /")
        # A child that has just been forked does not run its program yet.
        assert await eventually(lambda: len(running(box.id, "7676")) == 1)
        await box.renew()
        assert not running(box.id, "7676")
        assert (await box.exec("echo ${STATE-none} $PWD; ls")).output == f"none {box.workspace}\nkept\n"


async def test_a_second_renewal_at_once_ends_the_shell_that_the_first_one_started() -> None:
    async with plain_sandbox() as box:
        ended: list[Any] = []
        restart = box.host.restart_shell

        async def restart_shell(client: Any) -> Any:
            ended.append(client)
            return await restart(client)

        box.host.restart_shell = restart_shell
        await asyncio.gather(box.renew(), box.renew())
        first, second = ended
        assert first is not second
        assert (await box.exec("echo usable")).output == "usable\n"


async def test_closing_leaves_nothing_and_fails_what_comes_after() -> None:
    async with plain_backend() as backend:
        box = await backend.open(SandboxSpec())
        await box.exec("setsid sleep 7777 & (sleep 7777 &) ; true")
        assert await eventually(lambda: len(running(box.id, "7777")) == 2)
        await box.aclose()
        await box.aclose()
        assert not running(box.id, "7777")
        with pytest.raises(SandboxLostError):
            await box.exec("true")
        with pytest.raises(SandboxLostError):
            await box.read_file("f")


async def test_something_that_is_no_shell_says_what_it_said(tmp_path: Path) -> None:
    backend = PlainBackend(tmp_path, "/bin/ls")
    backend.lease_dir = tmp_path / "leases"
    with pytest.raises(BackendError, match="ls: "):
        await backend.open(SandboxSpec())
    await backend.aclose()
