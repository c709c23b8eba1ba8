"""Tests of opening, refusing, sharing and cancelling sandboxes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hermes_core.contracts.errors import SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import Processes, Sandbox, TerminalBackend
from hermes_core.discovery import contract_violations
from hermes_core.specs import BackendSpec
from hermes_testing.suites.backend.base import SECRET_VALUE, BackendBase
from hermes_testing.suites.base import needs
from hermes_testing.watching import eventually, exists, longest_stall, sleep_token


def _refusals(spec: BackendSpec) -> list[Mapping[str, Any]]:
    """Return requests that a backend with this declaration cannot satisfy."""
    levels = [level for level in ("bwrap", "container", "gvisor") if level not in spec.isolation]
    fields: list[Mapping[str, Any]] = [{"isolation": level} for level in levels]
    modes = [mode for mode in ("allowlist", "none") if mode not in spec.networks]
    fields += [{"network": mode, "allow_hosts": ("example.org",)} for mode in modes]
    limits = {"cpu": 1.0, "memory_mb": 256, "pids": 64, "disk_mb": 256, "file_size_mb": 16}
    fields += [{name: value} for name, value in limits.items() if name.removesuffix("_mb") not in spec.limits]
    return fields if spec.images else [*fields, {"image": "debian:12"}]


class Lifecycle(BackendBase):
    """Everything before the end of a sandbox; for the end see `Endings`."""

    async def test_backend_and_sandbox_have_the_contract_s_methods(
        self, backend: TerminalBackend, sandbox: Sandbox
    ) -> None:
        """They have the same parameters."""
        assert contract_violations(backend, TerminalBackend) == []
        assert contract_violations(sandbox, Sandbox) == []

    @needs("processes")
    async def test_processes_have_the_contract_s_methods(self, shared: Sandbox) -> None:
        """They have the same parameters."""
        assert contract_violations(shared.processes, Processes) == []

    async def test_the_backend_accepts_what_the_suite_asks_for(self, backend: TerminalBackend) -> None:
        """`check` succeeds."""
        await backend.check(self.ask())

    async def test_provenance_says_what_it_was(self, shared: Sandbox) -> None:
        """Backend, isolation and network are recorded with every rollout, as JSON and without secrets."""
        recorded = json.loads(json.dumps(dict(shared.provenance)))
        asked = self.ask()
        assert recorded["backend"] == self.component
        assert (recorded["isolation"], recorded["network"]) == (self.level(), asked.network)
        assert SECRET_VALUE not in json.dumps(recorded)

    async def test_what_is_not_declared_is_refused(self, backend: TerminalBackend, spec: BackendSpec) -> None:
        """Before anything runs; there is no silent fallback to less."""
        for fields in _refusals(spec):
            with pytest.raises(SandboxRefusedError):
                await backend.check(self.ask(**fields))
            with pytest.raises(SandboxRefusedError):
                await (await backend.open(self.ask(**fields))).aclose()

    async def test_two_sandboxes_know_nothing_of_each_other(self, backend: TerminalBackend) -> None:
        """They share neither files nor state, and have different names."""
        async with await backend.open(self.ask()) as one, await backend.open(self.ask()) as two:
            await one.exec("echo private > file; export MINE=1")
            assert one.id != two.id
            assert await two.list_dir() == []
            assert (await two.exec("echo ${MINE-unset}")).output == "unset\n"

    async def test_sandboxes_work_at_the_same_time(self, backend: TerminalBackend) -> None:
        """A quick command does not wait for a slow one in another sandbox."""
        async with await backend.open(self.ask()) as slow, await backend.open(self.ask()) as quick:
            waiting = asyncio.create_task(slow.exec("sleep 600"))
            assert (await quick.exec("echo quick", timeout=self.patience)).output == "quick\n"
            assert not waiting.done()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def test_more_sandboxes_than_start_at_once_all_work(self, backend: TerminalBackend) -> None:
        """Each returns its own result (hermes-agent: with two slots, four rollouts never ended)."""

        async def one(number: int) -> str:
            async with await backend.open(self.ask()) as sandbox:
                return (await sandbox.exec(f"echo {number}")).output

        assert await asyncio.gather(*map(one, range(self.crowd))) == [f"{n}\n" for n in range(self.crowd)]

    async def test_calls_in_one_sandbox_at_the_same_time_keep_their_answers(self, sandbox: Sandbox) -> None:
        """Commands and file calls, in any interleaving."""
        commands = [sandbox.exec(f"echo {n}; cat", stdin=f"in {n}") for n in range(8)]
        writes = [sandbox.write_file(f"f{n}", str(n)) for n in range(8)]
        answers = await asyncio.gather(*commands, *writes)
        assert [answer.output for answer in answers[:8] if answer] == [f"{n}\nin {n}" for n in range(8)]
        assert [await sandbox.read_file(f"f{n}") for n in range(8)] == [str(n).encode() for n in range(8)]

    async def test_the_event_loop_keeps_ticking(self, shared: Sandbox) -> None:
        """A running command does not block it."""
        result, stall = await longest_stall(shared.exec("sleep 2; echo done"))
        assert result.output == "done\n"
        assert stall < 1.5

    async def test_the_event_loop_keeps_ticking_while_files_travel(self, shared: Sandbox, tmp_path: Path) -> None:
        """No transfer call blocks it."""
        (tmp_path / "large").write_bytes(bytes(range(256)) * 80_000)
        data = (tmp_path / "large").read_bytes()
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: shared.write_file("written", data),
            lambda: shared.read_file("written"),
            lambda: shared.upload(tmp_path / "large", "sent"),
            lambda: shared.download("sent", tmp_path / "back"),
            lambda: shared.archive(["sent"], tmp_path / "a.tar.gz"),
        ]
        for call in calls:
            _, stall = await longest_stall(call())
            assert stall < 1.5

    @needs("cancel")
    async def test_cancelling_kills_the_command_and_keeps_the_sandbox(self, sandbox: Sandbox) -> None:
        """Its children die too; state and files remain."""
        token = sleep_token()
        await sandbox.exec("export KEPT=yes")
        call = asyncio.create_task(sandbox.exec(f"touch started; setsid sleep {token} & sleep {token}"))
        assert await eventually(lambda: exists(sandbox, "started"), seconds=self.patience)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await sandbox.exec("echo ${KEPT-lost}")).output == "yes\n"
        assert await self.vanishes(sandbox, token)

    async def test_cancelling_at_once_leaves_the_sandbox_usable(self, shared: Sandbox) -> None:
        """At the first few points where a call can be interrupted."""
        for steps in range(6):
            call = asyncio.create_task(shared.exec("echo interrupted"))
            for _ in range(steps):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            assert (await shared.exec("echo $((6 * 7))")).output == "42\n"

    @needs("visible_processes")
    async def test_a_cancelled_open_leaves_no_process(self, backend: TerminalBackend) -> None:
        """At whatever point it is cancelled."""
        await (await backend.open(self.ask())).aclose()
        before = _children()
        for steps in (0, 1, 2, 5, 20):
            opening = asyncio.create_task(backend.open(self.ask()))
            for _ in range(steps):
                await asyncio.sleep(0.002)
            opening.cancel()
            (opened,) = await asyncio.gather(opening, return_exceptions=True)
            if not isinstance(opened, BaseException):
                await opened.aclose()
        assert await eventually(lambda: _children() <= before, seconds=self.patience)

    async def test_killing_what_runs_the_commands_is_no_hang(self, sandbox: Sandbox) -> None:
        """Killing the parent is harmless, or loses the sandbox, which every later call reports."""
        try:
            await asyncio.wait_for(sandbox.exec("kill -9 $PPID; sleep 0.2; echo survived", timeout=5), 60)
            assert (await sandbox.exec("echo usable")).stdout == b"usable\n"
        except SandboxLostError:
            with pytest.raises(SandboxLostError):
                await sandbox.exec("echo ghost")


def _children() -> set[str]:
    found: set[str] = set()
    for children in Path("/proc/self/task").glob("*/children"):
        found |= set(children.read_text().split())
    return found
