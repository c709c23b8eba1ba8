"""Real local sandboxes with one behaviour of their life changed; `caught_by` names the tests that must fail."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from backend_wrapping import Backend, Local, Passing, run_on

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_testing.suites.backend.base import SECRET_VALUE
from hermes_testing.suites.backend.lifecycle import Lifecycle


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
            time.sleep(4)
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
    caught_by = frozenset({"test_cancelling_kills_the_command_and_keeps_the_sandbox"})


class _BlocksWhileFilesTravel(Passing):
    async def upload(self, source, path):
        time.sleep(4)
        return await self.inner.upload(source, path)


class TestHoldsTheEventLoopForAFile(Local, Lifecycle):
    sandbox_class = _BlocksWhileFilesTravel
    caught_by = frozenset({"test_the_event_loop_keeps_ticking_while_files_travel"})


class _RecordsTooMuch(Passing):
    @property
    def provenance(self):
        return {**self.inner.provenance, "key": SECRET_VALUE}


class TestRecordsASecret(Local, Lifecycle):
    sandbox_class = _RecordsTooMuch
    caught_by = frozenset({"test_provenance_says_what_it_was"})


class _HasOneName(Passing):
    id = "sandbox"


class TestAllSandboxesHaveOneName(Local, Lifecycle):
    sandbox_class = _HasOneName
    caught_by = frozenset({"test_two_sandboxes_know_nothing_of_each_other"})
