"""Real background processes with one behaviour changed; `caught_by` names the tests that must fail."""

from __future__ import annotations

from dataclasses import replace

from backend_wrapping import Local, Passing, with_processes

from hermes_core.contracts.errors import ProcessLimitError
from hermes_testing.suites.backend.processes import BackgroundProcesses
from hermes_testing.suites.backend.terminals import Terminals


class _OnlySaysKilled(Passing):
    async def kill(self, process_id, **options):
        info = await self.inner.poll(process_id)
        return replace(info, running=False, exit_code=143) if info.running else info


class TestSaysKilledWithoutKilling(Local, BackgroundProcesses):
    """A defect of hermes-agent: it reported processes as killed that went on."""

    sandbox_class = with_processes(_OnlySaysKilled)
    caught_by = frozenset(
        {
            "test_killing_ends_what_is_deaf_to_signals",
            "test_killing_takes_everything_a_process_started",
            "test_many_processes_run_or_are_refused",
        }
    )


class _LosesSilently(Passing):
    async def read(self, process_id, *, offset=0, **options):
        piece = await self.inner.read(process_id, offset=offset, **options)
        return replace(piece, start=offset) if offset > 0 and piece.data else piece


class TestLosesOutputWithoutAWord(Local, BackgroundProcesses):
    sandbox_class = with_processes(_LosesSilently)
    caught_by = frozenset({"test_output_that_is_not_kept_is_told"})


class _AsksAnotherShell(Passing):
    async def wait(self, process_id, **options):
        info = await self.inner.wait(process_id, **options)
        return info if info.running else replace(info, exit_code=127)


class TestWaitsInAnotherShell(Local, BackgroundProcesses):
    """A defect of hermes-agent: the exit code was always 127."""

    sandbox_class = with_processes(_AsksAnotherShell)
    caught_by = frozenset(
        {
            "test_a_child_in_the_background_does_not_hold_the_end_up",
            "test_exit_codes_of_processes_are_exact",
            "test_input_reaches_a_process_until_it_is_closed",
            "test_waiting_ends_with_the_process_or_the_time",
        }
    )


class _OneRegistry(Passing):
    everybody: list = []  # noqa: RUF012 - shared by all sandboxes is the defect

    async def start(self, command, **options):
        info = await self.inner.start(command, **options)
        self.everybody.append((self.inner, info.id))
        return info

    async def kill(self, process_id, **options):
        for inner, known in self.everybody:
            if known == process_id:
                return await inner.kill(process_id, **options)
        return await self.inner.kill(process_id, **options)


class TestKillsProcessesOfOtherSandboxes(Local, BackgroundProcesses):
    """A defect of hermes-agent: any rollout could kill any process."""

    sandbox_class = with_processes(_OneRegistry)
    caught_by = frozenset({"test_processes_of_other_sandboxes_are_unknown"})


class _KeepsInputOpen(Passing):
    async def close_stdin(self, process_id):
        await self.inner.poll(process_id)


class TestLeavesTheInputOpen(Local, BackgroundProcesses):
    sandbox_class = with_processes(_KeepsInputOpen)
    caught_by = frozenset(
        {
            "test_input_reaches_a_process_until_it_is_closed",
            "test_input_that_nobody_reads_is_a_broken_pipe",
        }
    )


class _OneReader(Passing):
    def __init__(self, inner):
        super().__init__(inner)
        self.read_until = {}

    async def read(self, process_id, *, offset=0, **options):
        piece = await self.inner.read(process_id, offset=max(offset, self.read_until.get(process_id, 0)), **options)
        if not piece.running:
            self.read_until[process_id] = piece.start + len(piece.data)
        return piece


class TestReadersTakeEachOthersOutput(Local, BackgroundProcesses):
    """A defect of hermes-agent: readers took output from each other."""

    sandbox_class = with_processes(_OneReader)
    caught_by = frozenset(
        {
            "test_output_is_read_from_any_place",
            "test_output_that_is_not_kept_is_told",
        }
    )


class _FewOnly(Passing):
    async def start(self, command, **options):
        if sum(info.running for info in await self.inner.list()) >= 8:
            raise ProcessLimitError("no more")
        return await self.inner.start(command, **options)


class TestAllowsTooFewProcesses(Local, BackgroundProcesses):
    sandbox_class = with_processes(_FewOnly)
    caught_by = frozenset({"test_many_processes_run_or_are_refused"})


class _StartsAnywhere(Passing):
    async def start(self, command, *, cwd=None, **options):
        try:
            return await self.inner.start(command, cwd=cwd, **options)
        except FileNotFoundError:
            return await self.inner.start(command, **options)


class TestStartsSomewhereElseWithoutTheDirectory(Local, BackgroundProcesses):
    sandbox_class = with_processes(_StartsAnywhere)
    caught_by = frozenset({"test_cwd_and_env_of_a_process_are_its_own"})


class _KeyErrors(Passing):
    async def poll(self, process_id):
        try:
            return await self.inner.poll(process_id)
        except ProcessLookupError:
            raise KeyError(process_id) from None


class TestAnUnknownProcessIsAKeyError(Local, BackgroundProcesses):
    sandbox_class = with_processes(_KeyErrors)
    caught_by = frozenset({"test_an_unknown_process_is_ProcessLookupError", "test_processes_end_with_a_renewal"})


class _Quotes(Passing):
    async def start(self, command, **options):
        return replace(await self.inner.start(f"bash -c '{command}'", **options), command=command)


class TestPutsTheCommandIntoQuotes(Local, BackgroundProcesses):
    """A defect of hermes-agent: any apostrophe broke the command."""

    sandbox_class = with_processes(_Quotes)
    caught_by = frozenset(
        {
            "test_a_process_is_described",
            "test_a_process_starts_where_the_session_is",
            "test_any_quoting_starts_as_it_would_in_bash",
            "test_killing_ends_what_is_deaf_to_signals",
            "test_output_of_processes_is_bytes",
        }
    )


class _NoTerminal(Passing):
    async def start(self, command, *, pty=False, rows=30, cols=120, **options):
        return replace(await self.inner.start(command, **options), pty=pty)


class TestGivesAPipeForATerminal(Local, Terminals):
    sandbox_class = with_processes(_NoTerminal)
    caught_by = frozenset(
        {
            "test_a_program_on_a_terminal_is_killed",
            "test_a_terminal_changes_its_size",
            "test_a_terminal_is_one",
            "test_a_terminal_s_input_ends",
            "test_an_interactive_program_is_driven",
            "test_an_interrupt_ends_the_program_not_the_shell",
        }
    )


class _OneSize(Passing):
    async def resize(self, process_id, *, rows, cols):
        await self.inner.poll(process_id)


class TestKeepsTheSizeOfATerminal(Local, Terminals):
    sandbox_class = with_processes(_OneSize)
    caught_by = frozenset({"test_a_terminal_changes_its_size"})
