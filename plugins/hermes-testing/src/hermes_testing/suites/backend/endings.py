"""Tests of renewing and closing sandboxes, and of leftovers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_core.contracts.leases import LeaseTerms, LeasingBackend
from hermes_core.contracts.sandbox import Sandbox, SandboxSpec, TerminalBackend
from hermes_testing.suites.backend.base import SECRET_VALUE, BackendBase, leases
from hermes_testing.suites.base import needs
from hermes_testing.watching import begin, eventually, longest_stall, processes_here, runs_inside, sleep_token

_OWNER = """
import asyncio, json, sys
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.rollout.leasing import supply_lease_store
from hermes_testing import isolated_registry

async def own(plugin, component, options, fields, command):
    registry = isolated_registry(plugin)
    backend = registry.create("backend", component, options)
    supply_lease_store(backend, registry, component)
    sandbox = await backend.open(SandboxSpec(**fields))
    await sandbox.exec(command)
    print(sandbox.id, flush=True)
    await asyncio.Event().wait()

asyncio.run(own(*json.loads(sys.argv[1])))
"""
"""A caller with one open sandbox, which waits to be killed."""


class Endings(BackendBase):
    """`renew`, `aclose`, and leases."""

    async def test_renew_kills_processes_and_keeps_files(self, sandbox: Sandbox) -> None:
        """Background processes and the session's state are gone."""
        token = sleep_token()
        await sandbox.write_file("kept", b"1")
        await sandbox.exec(f"export STATE=old; setsid sleep {token} & echo started")
        assert await self.starts(sandbox, token)
        await sandbox.renew()
        assert not await runs_inside(sandbox, token)
        assert await sandbox.read_file("kept") == b"1"
        assert (await sandbox.exec("echo ${STATE-none}; pwd")).output == f"none\n{sandbox.workspace}\n"

    async def test_nothing_of_a_session_survives_a_renewal(self, sandbox: Sandbox) -> None:
        """Functions, options and umask are gone: a new agent starts with a new session."""
        await sandbox.exec("mkdir d; cd d; echo() { printf forged; }; set -u; umask 0")
        await sandbox.renew()
        seen = await sandbox.exec("echo ${UNSET}; touch f; stat -c %a f")
        assert (seen.output in {"\n644\n", "\n600\n", "\n640\n"}, seen.exit_code) == (True, 0)

    async def test_renewing_ends_a_call_in_flight(self, sandbox: Sandbox) -> None:
        """The call reports that the sandbox is lost; later calls work."""
        call = await begin(sandbox, "sleep 600", seconds=self.patience)
        await sandbox.renew()
        with pytest.raises(SandboxLostError):
            await asyncio.wait_for(call, self.patience)
        assert (await sandbox.exec("echo next")).output == "next\n"

    async def test_a_sandbox_is_renewed_again_and_again(self, sandbox: Sandbox) -> None:
        """The third agent works as well as the first."""
        for number in range(3):
            await sandbox.exec(f"echo {number} >> log")
            await sandbox.renew()
        assert await sandbox.read_file("log") == b"0\n1\n2\n"

    async def test_closing_twice_is_fine(self, own_backend: TerminalBackend) -> None:
        """For the sandbox and for the backend, one after another or at the same time."""
        sandbox = await own_backend.open(self.ask())
        await asyncio.gather(sandbox.aclose(), sandbox.aclose())
        await sandbox.aclose()
        await own_backend.aclose()

    async def test_a_closed_sandbox_is_lost(self, backend: TerminalBackend, tmp_path: Path) -> None:
        """Every call reports that."""
        sandbox = await backend.open(self.ask())
        await sandbox.aclose()
        for call in (
            sandbox.exec("echo ghost"),
            sandbox.read_file("ghost"),
            sandbox.write_file("ghost", b""),
            sandbox.list_dir(),
            sandbox.download("ghost", tmp_path / "ghost"),
            sandbox.renew(),
        ):
            with pytest.raises(SandboxLostError):
                await call

    async def test_closing_ends_calls_in_flight(self, backend: TerminalBackend) -> None:
        """No call hangs; each reports that the sandbox is lost."""
        sandbox = await backend.open(self.ask())
        running = await begin(sandbox, "sleep 600", seconds=self.patience)
        queued = asyncio.create_task(sandbox.exec("echo never"))
        await asyncio.sleep(0)
        await sandbox.aclose()
        for call in (running, queued):
            with pytest.raises(SandboxLostError):
                await asyncio.wait_for(call, self.patience)

    @needs("processes")
    async def test_closing_ends_whoever_waits_for_a_process(self, backend: TerminalBackend) -> None:
        """A wait for a process ends like other calls."""
        sandbox = await backend.open(self.ask())
        info = await sandbox.processes.start("exec sleep 600")
        waiting = asyncio.create_task(sandbox.processes.wait(info.id))
        assert (await sandbox.processes.poll(info.id)).running
        await sandbox.aclose()
        with pytest.raises(SandboxLostError):
            await asyncio.wait_for(waiting, self.patience)

    @needs("visible_processes")
    @pytest.mark.parametrize("closer", ["sandbox", "backend"])
    async def test_nothing_is_left_after_aclose(self, own_backend: TerminalBackend, closer: str) -> None:
        """When it returns, there is no process, wherever it hid, and no file that this machine can see."""
        token = sleep_token()
        sandbox = await own_backend.open(self.ask())
        await sandbox.exec(f"touch {token}; setsid sleep {token} & (sleep {token} &) ; sleep {token} & disown -a")
        assert await eventually(lambda: len(processes_here(token)) == 3, seconds=self.patience)
        await (sandbox if closer == "sandbox" else own_backend).aclose()
        assert processes_here(token) == []
        # Visible on this machine only if the sandbox shares its paths.
        assert not await asyncio.to_thread(Path(sandbox.workspace, token).exists)

    @needs("visible_processes")
    async def test_closing_is_finished_although_cancelled(self, backend: TerminalBackend) -> None:
        """Cancelling the caller of close does not stop the closing."""
        token = sleep_token()
        for steps in (0, 1, 5):
            sandbox = await backend.open(self.ask())
            await sandbox.exec(f"setsid sleep {token} & true")
            assert await self.starts(sandbox, token)
            closing = asyncio.create_task(sandbox.aclose())
            await asyncio.sleep(0)
            for _ in range(steps):
                await asyncio.sleep(0)
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
        assert await eventually(lambda: processes_here(token) == [], seconds=self.patience)

    async def test_opening_and_closing_do_not_block_the_event_loop(self, backend: TerminalBackend) -> None:
        """Other tasks run while a sandbox starts, is renewed and ends."""

        async def open_and_close() -> None:
            async with await backend.open(self.ask()) as sandbox:
                await sandbox.renew()

        await open_and_close()  # an import on first use does not count as a stall
        _, stall = await longest_stall(open_and_close())
        assert stall < 1.5

    @needs("leases")
    async def test_a_lease_is_there_before_the_sandbox(
        self, own_backend: TerminalBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If the caller is killed while it opens a sandbox, the lease is already written."""
        known: list[set[str]] = []
        create: Any = getattr(own_backend, "create", None)

        async def watch_create(spec: Any, sandbox_id: str) -> Any:
            known.append({lease.sandbox_id for lease in await leases()} & {sandbox_id})
            return await create(spec, sandbox_id)

        if create is None:
            await assert_nothing_opens_without_a_lease(own_backend, self.ask(), monkeypatch)
            return
        monkeypatch.setattr(own_backend, "create", watch_create)
        async with await own_backend.open(self.ask()) as sandbox:
            assert known == [{sandbox.id}]

    @needs("leases")
    async def test_a_lease_lasts_as_long_as_the_sandbox(self, own_backend: TerminalBackend) -> None:
        """It names the rollout and a living owner but no variable's value; closing removes it."""
        variables = {**self.ask().env, "KEY_OF_THE_SUITE": SECRET_VALUE}
        sandbox = await own_backend.open(self.ask(rollout_id="rollout-7", env=variables))
        held = {lease.sandbox_id: lease for lease in await leases()}
        assert (held[sandbox.id].rollout_id, held[sandbox.id].owner()) == ("rollout-7", "alive")
        assert SECRET_VALUE not in repr(held[sandbox.id])
        await sandbox.aclose()
        assert sandbox.id not in {lease.sandbox_id for lease in await leases()}

    @needs("leases", "visible_processes")
    async def test_what_a_killed_caller_left_is_reclaimed_by_its_lease(self, own_backend: TerminalBackend) -> None:
        """By another process that knows only the lease; reclaiming twice is fine."""
        token = sleep_token()
        sandbox_id = await self._killed_owner(f"setsid sleep {token} >/dev/null 2>&1 & true")
        found = {lease.sandbox_id: lease for lease in await leases()}
        lease = found[sandbox_id]
        assert lease.owner() == "dead"
        assert isinstance(own_backend, LeasingBackend)
        await own_backend.reclaim(lease.handle)
        assert await eventually(lambda: processes_here(token) == [], seconds=self.patience)
        await own_backend.reclaim(lease.handle)
        for other in found.values():  # resources shared with other sandboxes have separate leases
            if (other.backend, other.owner_pid, other.owner_start) == (
                lease.backend,
                lease.owner_pid,
                lease.owner_start,
            ):
                await own_backend.reclaim(other.handle)

    async def _killed_owner(self, command: str) -> str:
        """Open a sandbox in a process that is then killed, and return its id."""
        given = json.dumps([self.plugin, self.component, dict(self.options), dict(self.sandbox_fields), command])
        owner = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _OWNER, given, stdout=asyncio.subprocess.PIPE, env=dict(os.environ)
        )
        assert owner.stdout is not None
        sandbox_id = (await owner.stdout.readline()).decode().strip()
        owner.send_signal(signal.SIGKILL)
        await owner.wait()
        assert sandbox_id
        return sandbox_id


async def assert_nothing_opens_without_a_lease(
    backend: TerminalBackend, spec: SandboxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refuse every lease: then a backend whose creation cannot be observed must not open a sandbox."""
    assert isinstance(backend, LeasingBackend)
    assert backend.leases is not None

    async def refuse(terms: LeaseTerms) -> None:
        raise BackendError(f"no lease for {terms.sandbox_id}")

    monkeypatch.setattr(backend.leases, "take", refuse)
    with pytest.raises(BackendError, match="no lease for"):
        await backend.open(spec)
