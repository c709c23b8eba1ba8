"""Real local sandboxes with one behaviour of their end changed; `caught_by` names the tests that must fail."""

from __future__ import annotations

import asyncio
import contextlib

from backend_wrapping import Backend, Local, Passing

from hermes_core.contracts.errors import SandboxLostError
from hermes_core.contracts.sandbox import ExecResult
from hermes_testing.suites.backend.endings import Endings


class _RenewsNothing(Passing):
    async def renew(self):
        pass


class TestRenewDoesNothing(Local, Endings):
    sandbox_class = _RenewsNothing
    caught_by = frozenset(
        {
            "test_a_closed_sandbox_is_lost",
            "test_nothing_of_a_session_survives_a_renewal",
            "test_renew_kills_processes_and_keeps_files",
            "test_renewing_ends_a_call_in_flight",
        }
    )


class _ClosesOnce(Passing):
    closed = False

    async def aclose(self):
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True
        await self.inner.aclose()


class TestCannotBeClosedTwice(Local, Endings):
    sandbox_class = _ClosesOnce
    caught_by = frozenset({"test_closing_twice_is_fine"})


class _KeepsTheSession(Passing):
    running = 0

    async def exec(self, command, **options):
        self.running += 1
        try:
            return await self.inner.exec(command, **options)
        finally:
            self.running -= 1

    async def renew(self):
        state = b""
        # Not behind a command that runs for long.
        if not self.running:
            with contextlib.suppress(SandboxLostError):
                state = (await self.inner.exec("declare -px; declare -f; umask -p")).stdout
        await self.inner.renew()
        await self.inner.exec(state.decode())


class TestRenewKeepsTheSession(Local, Endings):
    sandbox_class = _KeepsTheSession
    caught_by = frozenset(
        {"test_nothing_of_a_session_survives_a_renewal", "test_renew_kills_processes_and_keeps_files"}
    )


class _ClosesLater(Passing):
    async def aclose(self):
        loop = asyncio.get_running_loop()
        # After all that a busy machine does first.
        loop.call_later(5, lambda: loop.create_task(self.inner.aclose()))


class TestCloseReturnsBeforeItIsGone(Local, Endings):
    sandbox_class = _ClosesLater
    caught_by = frozenset(
        {
            "test_a_closed_sandbox_is_lost",
            "test_a_lease_lasts_as_long_as_the_sandbox",
            "test_nothing_is_left_after_aclose",
        }
    )


class _StopsClosing(Passing):
    async def aclose(self):
        # Longer than a busy machine takes to come to the cancellation.
        await asyncio.sleep(1)
        await self.inner.aclose()


class TestClosingIsGivenUpWhenCancelled(Local, Endings):
    sandbox_class = _StopsClosing
    caught_by = frozenset({"test_closing_is_finished_although_cancelled"})


class _AnswersWhenClosed(Passing):
    async def exec(self, command, **options):
        try:
            return await self.inner.exec(command, **options)
        except SandboxLostError:
            return ExecResult(exit_code=1)


class TestALostSandboxIsAFailedCommand(Local, Endings):
    sandbox_class = _AnswersWhenClosed
    caught_by = frozenset(
        {
            "test_a_closed_sandbox_is_lost",
            "test_closing_ends_calls_in_flight",
            "test_renewing_ends_a_call_in_flight",
        }
    )


class _WritesLeasesLate(Backend):
    def __init__(self, inner, sandbox_class):
        super().__init__(inner, sandbox_class)
        self.take, inner.leases.take = inner.leases.take, self.note

    async def note(self, terms):
        self.noted = terms

    async def open(self, spec):
        sandbox = await super().open(spec)
        await self.take(self.noted)
        return sandbox


class TestALeaseIsWrittenAfterwards(Local, Endings):
    backend_class = _WritesLeasesLate
    caught_by = frozenset({"test_a_lease_is_there_before_the_sandbox"})


class _KeepsLeases(Backend):
    def __init__(self, inner, sandbox_class):
        super().__init__(inner, sandbox_class)
        inner.leases.give_up = self.keep

    async def keep(self, sandbox_id):
        self.kept = sandbox_id


class TestALeaseOutlivesTheSandbox(Local, Endings):
    backend_class = _KeepsLeases
    caught_by = frozenset({"test_a_lease_lasts_as_long_as_the_sandbox"})


class _LeasesVariables(Backend):
    def __init__(self, inner, sandbox_class):
        super().__init__(inner, sandbox_class)
        self.handle, inner.handle = inner.handle, self.with_variables

    def with_variables(self, spec, sandbox_id):
        return {**self.handle(spec, sandbox_id), "env": dict(spec.env)}


class TestALeaseHoldsTheVariables(Local, Endings):
    backend_class = _LeasesVariables
    caught_by = frozenset({"test_a_lease_lasts_as_long_as_the_sandbox"})


class _ReclaimsOnce(Backend):
    async def reclaim(self, handle):
        if handle["sandbox_id"] in vars(self):
            raise FileNotFoundError(handle["root"])
        vars(self)[handle["sandbox_id"]] = True
        await super().reclaim(handle)


class TestReclaimsOnlyWhatIsThere(Local, Endings):
    backend_class = _ReclaimsOnce
    caught_by = frozenset({"test_what_a_killed_caller_left_is_reclaimed_by_its_lease"})
