"""Sandboxes beside one another, cancelled, renewed, closed, refused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hermes_core.contracts.errors import SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import Sandbox, TerminalBackend
from hermes_core.discovery.conformance import complaints
from hermes_core.specs import BackendSpec
from hermes_testing.suites.backend_base import BackendBase
from hermes_testing.suites.base import needs
from hermes_testing.watching import eventually, longest_stall, processes_here, runs_inside, sleep_token


def _refusals(spec: BackendSpec) -> list[Mapping[str, Any]]:
    """Return requests that a backend with this declaration cannot fulfil."""
    levels = [level for level in ("bwrap", "container", "gvisor") if level not in spec.isolation]
    fields: list[Mapping[str, Any]] = [{"isolation": level} for level in levels]
    modes = [mode for mode in ("allowlist", "none") if mode not in spec.networks]
    fields += [{"network": mode, "allow_hosts": ("example.org",)} for mode in modes]
    limits = {"cpu": 1.0, "memory_mb": 256, "pids": 64, "disk_mb": 256, "file_size_mb": 16}
    fields += [{name: value} for name, value in limits.items() if name.removesuffix("_mb") not in spec.limits]
    return fields if spec.images else [*fields, {"image": "debian:12"}]


class Lifecycle(BackendBase):
    """From open to aclose."""

    async def test_backend_and_sandbox_have_the_contract_s_methods(
        self, backend: TerminalBackend, sandbox: Sandbox
    ) -> None:
        """With the same parameters."""
        assert complaints(backend, TerminalBackend) == []
        assert complaints(sandbox, Sandbox) == []

    async def test_the_backend_accepts_what_the_suite_asks_for(self, backend: TerminalBackend) -> None:
        """`check` tries it and is content."""
        await backend.check(self.ask())

    async def test_provenance_says_what_it_was(self, sandbox: Sandbox, spec: BackendSpec) -> None:
        """Backend, isolation and network are recorded with every rollout."""
        assert {"backend", "isolation", "network"} <= set(sandbox.provenance)
        assert sandbox.provenance["isolation"] == (self.ask().isolation or spec.isolation[0])

    async def test_what_is_not_declared_is_refused(self, backend: TerminalBackend, spec: BackendSpec) -> None:
        """Before anything runs; never a silent fallback to less."""
        for fields in _refusals(spec):
            with pytest.raises(SandboxRefusedError):
                await backend.check(self.ask(**fields))
            with pytest.raises(SandboxRefusedError):
                await (await backend.open(self.ask(**fields))).aclose()

    async def test_no_network_is_none(self, backend: TerminalBackend, spec: BackendSpec) -> None:
        """With network "none" not even a listener on this machine is reached."""
        if "none" not in spec.networks:
            return  # then it is refused, which another test checks
        levels = [level for level in spec.isolation if level != "none"] or ["none"]
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, await backend.open(self.ask(network="none", isolation=levels[0])) as sandbox:
            result = await sandbox.exec(f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached")
        assert result.output == ""

    async def test_two_sandboxes_know_nothing_of_each_other(self, backend: TerminalBackend) -> None:
        """Neither files nor state are shared, and each has a name of its own."""
        async with await backend.open(self.ask()) as one, await backend.open(self.ask()) as two:
            await one.exec("echo private > file; export MINE=1")
            assert one.id != two.id
            assert await two.list_dir() == []
            assert (await two.exec("echo ${MINE-unset}")).output == "unset\n"

    async def test_sandboxes_work_at_the_same_time(self, backend: TerminalBackend) -> None:
        """A quick command does not wait for a slow one elsewhere."""
        async with await backend.open(self.ask()) as slow, await backend.open(self.ask()) as quick:
            waiting = asyncio.create_task(slow.exec("sleep 600"))
            assert (await quick.exec("echo quick", timeout=self.patience)).output == "quick\n"
            assert not waiting.done()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def test_many_sandboxes_open_together(self, backend: TerminalBackend) -> None:
        """Each answers its own question."""

        async def one(number: int) -> str:
            async with await backend.open(self.ask()) as sandbox:
                return (await sandbox.exec(f"echo {number}")).output

        assert await asyncio.gather(*map(one, range(6))) == [f"{n}\n" for n in range(6)]

    async def test_calls_in_one_sandbox_at_the_same_time_keep_their_answers(self, sandbox: Sandbox) -> None:
        """Commands and file calls, interleaved as they may be."""
        commands = [sandbox.exec(f"echo {n}; cat", stdin=f"in {n}") for n in range(8)]
        writes = [sandbox.write_file(f"f{n}", str(n)) for n in range(8)]
        answers = await asyncio.gather(*commands, *writes)
        assert [answer.output for answer in answers[:8] if answer] == [f"{n}\nin {n}" for n in range(8)]
        assert [await sandbox.read_file(f"f{n}") for n in range(8)] == [str(n).encode() for n in range(8)]

    async def test_the_event_loop_keeps_ticking(self, sandbox: Sandbox) -> None:
        """While a command runs."""
        result, stall = await longest_stall(sandbox.exec("sleep 2; echo done"))
        assert result.output == "done\n"
        assert stall < 1.5

    async def test_opening_does_not_block_the_event_loop(self, backend: TerminalBackend) -> None:
        """Somebody else finds time while a sandbox starts and ends."""

        async def open_and_close() -> None:
            await (await backend.open(self.ask())).aclose()

        _, stall = await longest_stall(open_and_close())
        assert stall < 1.5

    @needs("cancel")
    async def test_cancelling_kills_the_command_and_keeps_the_sandbox(self, sandbox: Sandbox) -> None:
        """With all its children; state and files are still there."""
        token = sleep_token()
        await sandbox.exec("export KEPT=yes")
        call = asyncio.create_task(sandbox.exec(f"touch started; setsid sleep {token} & sleep {token}"))
        assert await eventually(lambda: _exists(sandbox, "started"), seconds=self.patience)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await sandbox.exec("echo ${KEPT-lost}")).output == "yes\n"
        assert await self.vanishes(sandbox, token)

    async def test_cancelling_at_once_leaves_the_sandbox_usable(self, sandbox: Sandbox) -> None:
        """At the first few points where a call can be interrupted."""
        for steps in range(6):
            call = asyncio.create_task(sandbox.exec("echo interrupted"))
            for _ in range(steps):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            assert (await sandbox.exec("echo $((6 * 7))")).output == "42\n"

    async def test_renew_kills_processes_and_keeps_files(self, sandbox: Sandbox) -> None:
        """Background processes are gone, and so is the session's state."""
        token = sleep_token()
        await sandbox.write_file("kept", b"1")
        await sandbox.exec(f"export STATE=old; setsid sleep {token} & echo started")
        assert await runs_inside(sandbox, token)
        await sandbox.renew()
        assert not await runs_inside(sandbox, token)
        assert await sandbox.read_file("kept") == b"1"
        assert (await sandbox.exec("echo ${STATE-none}; pwd")).output.startswith("none\n")

    async def test_closing_twice_is_fine(self, backend: TerminalBackend) -> None:
        """For the sandbox and for the backend."""
        sandbox = await backend.open(self.ask())
        await sandbox.aclose()
        await sandbox.aclose()
        await backend.aclose()

    async def test_a_closed_sandbox_is_lost(self, backend: TerminalBackend) -> None:
        """Commands and files alike say so."""
        sandbox = await backend.open(self.ask())
        await sandbox.aclose()
        with pytest.raises(SandboxLostError):
            await sandbox.exec("echo ghost")
        with pytest.raises(SandboxLostError):
            await sandbox.read_file("ghost")

    async def test_closing_ends_a_call_in_flight(self, backend: TerminalBackend) -> None:
        """It does not hang, it says that the sandbox is lost."""
        sandbox = await backend.open(self.ask())
        call = asyncio.create_task(sandbox.exec("touch started; sleep 600"))
        assert await eventually(lambda: _exists(sandbox, "started"), seconds=self.patience)
        await sandbox.aclose()
        with pytest.raises(SandboxLostError):
            await asyncio.wait_for(call, self.patience)

    @needs("visible_processes")
    @pytest.mark.parametrize("closer", ["sandbox", "backend"])
    async def test_nothing_is_left_after_aclose(self, backend: TerminalBackend, closer: str) -> None:
        """No process, wherever it hid, and no file where this machine can see it."""
        token = sleep_token()
        sandbox = await backend.open(self.ask())
        await sandbox.exec(f"touch {token}; setsid sleep {token} & (sleep {token} &) ; sleep {token} & disown -a")
        assert await eventually(lambda: len(processes_here(token)) == 3, seconds=self.patience)
        await (sandbox if closer == "sandbox" else backend).aclose()
        assert await eventually(lambda: processes_here(token) == [], seconds=self.patience)
        # Visible on this machine only where the sandbox shares its paths.
        assert not await asyncio.to_thread(Path(sandbox.workspace, token).exists)

    @needs("visible_processes")
    async def test_a_cancelled_open_leaves_no_process(self, backend: TerminalBackend) -> None:
        """Whenever the cancellation comes."""
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
        """A command that kills its parent is either harmless or loses the sandbox, which every later call says."""
        try:
            await asyncio.wait_for(sandbox.exec("kill -9 $PPID; sleep 0.2; echo survived", timeout=5), 60)
            assert (await sandbox.exec("echo usable")).stdout == b"usable\n"
        except SandboxLostError:
            with pytest.raises(SandboxLostError):
                await sandbox.exec("echo ghost")


async def _exists(sandbox: Sandbox, path: str) -> bool:
    try:
        await sandbox.stat(path)
    except FileNotFoundError:
        return False
    return True


def _children() -> set[str]:
    found: set[str] = set()
    for children in Path("/proc/self/task").glob("*/children"):
        found |= set(children.read_text().split())
    return found
