"""Real local sandboxes with one behaviour changed; `caught_by` names the tests that must fail, all others must pass.

To stay quick, each mutant runs the part of the suite that it touches.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from dataclasses import replace

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_testing.suites.backend_commands import Commands
from hermes_testing.suites.backend_files import Files
from hermes_testing.suites.backend_lifecycle import Lifecycle
from hermes_testing.suites.backend_sessions import Sessions
from hermes_testing.watching import eventually, runs_inside


class Passing:
    """Passes everything on to a real sandbox."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        await self.aclose()


class Backend:
    """Wraps every sandbox of a real backend."""

    def __init__(self, inner, sandbox_class):
        self.inner = inner
        self.sandbox_class = sandbox_class

    async def check(self, spec):
        await self.inner.check(spec)

    async def open(self, spec):
        return self.sandbox_class(await self.inner.open(spec))

    async def aclose(self):
        await self.inner.aclose()


class Local:
    plugin, component = "hermes_core.plugin", "local"
    backend_class, sandbox_class = Backend, Passing
    patience = 4.0
    caught_by: frozenset[str] = frozenset()

    def make(self, registry):
        return self.backend_class(super().make(registry), self.sandbox_class)


class _MixesStreams(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        return replace(result, stdout=result.stdout + result.stderr)


class TestMixesTheStreams(Local, Commands):
    sandbox_class = _MixesStreams
    caught_by = frozenset({"test_stdout_and_stderr_are_kept_apart"})


class _DecodesOutput(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        return replace(result, stdout=result.stdout.decode("utf-8", "replace").encode())


class TestDecodesOutput(Local, Commands):
    sandbox_class = _DecodesOutput
    caught_by = frozenset({"test_bytes_arrive_unchanged", "test_stdin_arrives_unchanged"})


class _CountsWrong(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        return replace(result, omitted_bytes=result.omitted_bytes and result.omitted_bytes + 1)


class TestCountsOmittedBytesWrong(Local, Commands):
    sandbox_class = _CountsWrong
    caught_by = frozenset({"test_long_output_keeps_head_and_tail_and_counts_the_rest"})


async def run_on(sandbox, command):
    """Run a command in the background, and be sure that it runs."""
    await sandbox.exec(f"({command}) >/dev/null 2>&1 &")
    token = re.search(r"600\.\d+", command)
    assert token is None or await eventually(lambda: runs_inside(sandbox, token[0]), seconds=30)


class _LeavesTheCommandRunning(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        if result.timed_out:
            await run_on(self.inner, command)
        return result


class TestTimeoutEndsOnlyTheCall(Local, Commands):
    sandbox_class = _LeavesTheCommandRunning
    patience = 0.5
    caught_by = frozenset({"test_a_timeout_kills_every_process_of_the_command"})


class _PassesTheEnvironmentOn(Passing):
    async def exec(self, command, *, env=None, **options):
        return await self.inner.exec(command, env={**os.environ, **(env or {})}, **options)


class TestPassesTheCallersEnvironmentOn(Local, Commands):
    sandbox_class = _PassesTheEnvironmentOn
    caught_by = frozenset({"test_the_caller_s_secrets_are_invisible"})


class _RunsSomewhereElse(Passing):
    async def exec(self, command, *, cwd=None, **options):
        result = await self.inner.exec(command, cwd=cwd, **options)
        return result if result.exit_code != 126 or cwd is None else await self.inner.exec(command, **options)


class TestRunsSomewhereElseWithoutTheDirectory(Local, Commands):
    sandbox_class = _RunsSomewhereElse
    caught_by = frozenset({"test_an_absent_cwd_is_exit_code_126"})


class _ForgetsTheDirectory(Passing):
    async def exec(self, command, *, cwd=None, **options):
        return await self.inner.exec(command, cwd=cwd or self.inner.workspace, **options)


class TestForgetsTheWorkingDirectory(Local, Sessions):
    sandbox_class = _ForgetsTheDirectory
    caught_by = frozenset(
        {
            "test_state_survives_a_timeout",
            "test_state_survives_the_end_of_the_shell",
            "test_the_working_directory_survives",
        }
    )


class _StartsAnewAfterAFailure(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        if result.exit_code >= 124:
            await self.inner.renew()
        return result


class TestLosesTheSessionToSignalsAndTimeouts(Local, Sessions):
    sandbox_class = _StartsAnewAfterAFailure
    caught_by = frozenset({"test_state_survives_a_timeout", "test_state_survives_the_end_of_the_shell"})


class _WritesText(Passing):
    async def write_file(self, path, data, **options):
        text = data if isinstance(data, str) else data.decode("utf-8", "replace")
        await self.inner.write_file(path, text, **options)


class TestWritesTextOnly(Local, Files):
    sandbox_class = _WritesText
    caught_by = frozenset({"test_bytes_make_the_round_trip"})


class _MissingIsEmpty(Passing):
    async def read_file(self, path, **options):
        try:
            return await self.inner.read_file(path, **options)
        except FileNotFoundError:
            return b""


class TestReadsMissingFilesAsEmpty(Local, Files):
    sandbox_class = _MissingIsEmpty
    caught_by = frozenset({"test_a_missing_file_is_FileNotFoundError"})


class _RenewsNothing(Passing):
    async def renew(self):
        pass


class TestRenewDoesNothing(Local, Lifecycle):
    sandbox_class = _RenewsNothing
    caught_by = frozenset({"test_renew_kills_processes_and_keeps_files"})


class _ClosesOnce(Passing):
    closed = False

    async def aclose(self):
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True
        await self.inner.aclose()


class TestCannotBeClosedTwice(Local, Lifecycle):
    sandbox_class = _ClosesOnce
    caught_by = frozenset({"test_closing_twice_is_fine"})


class _Accepts(Backend):
    async def check(self, spec):
        pass

    async def open(self, spec):
        try:
            return await super().open(spec)
        except SandboxRefusedError:
            return await super().open(
                replace(
                    spec,
                    isolation="none",
                    network="full",
                    image=None,
                    cpu=None,
                    memory_mb=None,
                    pids=None,
                    disk_mb=None,
                    file_size_mb=None,
                )
            )


class TestFallsBackToLess(Local, Lifecycle):
    backend_class = _Accepts
    caught_by = frozenset({"test_what_is_not_declared_is_refused"})


class _Blocks(Passing):
    async def exec(self, command, **options):
        if command.startswith("sleep 2"):
            time.sleep(1.6)
        return await self.inner.exec(command, **options)


class TestHoldsTheEventLoop(Local, Lifecycle):
    sandbox_class = _Blocks
    caught_by = frozenset({"test_the_event_loop_keeps_ticking"})


class _CancelsTheCallOnly(Passing):
    async def exec(self, command, **options):
        try:
            return await self.inner.exec(command, **options)
        except asyncio.CancelledError:
            if "setsid" in command:
                await run_on(self.inner, command)
            raise


class TestCancellingEndsOnlyTheCall(Local, Lifecycle):
    sandbox_class = _CancelsTheCallOnly
    patience = 2.0
    caught_by = frozenset({"test_cancelling_kills_the_command_and_keeps_the_sandbox"})
