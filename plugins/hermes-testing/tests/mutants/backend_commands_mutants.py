"""Real local sandboxes with one behaviour of commands changed; `caught_by` names the tests that must fail."""

from __future__ import annotations

import os
from dataclasses import replace

from backend_wrapping import Local, Passing, run_on

from hermes_testing.suites.backend_commands import Commands


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
    caught_by = frozenset(
        {
            "test_long_output_keeps_head_and_tail_and_counts_the_rest",
            "test_output_of_200_megabytes_takes_little_memory",
        }
    )


class _LeavesTheCommandRunning(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        if result.timed_out:
            await run_on(self.inner, command)
        return result


class TestTimeoutEndsOnlyTheCall(Local, Commands):
    sandbox_class = _LeavesTheCommandRunning
    caught_by = frozenset({"test_a_timeout_kills_every_process_of_the_command"})


class _ForgetsWhatWasPrinted(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        return replace(result, stdout=b"") if result.timed_out else result


class TestTimeoutLosesTheOutput(Local, Commands):
    sandbox_class = _ForgetsWhatWasPrinted
    caught_by = frozenset(
        {
            "test_a_timeout_is_exit_code_124_with_what_was_printed",
            "test_output_without_end_ends_at_the_timeout",
        }
    )


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


class _TakesACodeForATimeout(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        return replace(result, timed_out=result.exit_code == 124)


class TestTakesExitCode124ForATimeout(Local, Commands):
    sandbox_class = _TakesACodeForATimeout
    caught_by = frozenset({"test_exit_code_124_alone_is_no_timeout"})


class _CutsSilently(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        return replace(result, truncated=False, omitted_bytes=0)


class TestCutsOutputWithoutAWord(Local, Commands):
    sandbox_class = _CutsSilently
    caught_by = frozenset(
        {
            "test_a_flood_on_both_streams_ends",
            "test_long_output_keeps_head_and_tail_and_counts_the_rest",
            "test_output_of_200_megabytes_takes_little_memory",
            "test_output_without_end_ends_at_the_timeout",
        }
    )


class _CollectsTheOutput(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        self.collected = b"x" * result.omitted_bytes
        return result


class TestCollectsAllOfTheOutput(Local, Commands):
    sandbox_class = _CollectsTheOutput
    caught_by = frozenset({"test_output_of_200_megabytes_takes_little_memory"})


class _RunsTwice(Passing):
    async def exec(self, command, *, execution_id=None, **options):
        return await self.inner.exec(command, **options)


class TestRunsAnExecutionTwice(Local, Commands):
    sandbox_class = _RunsTwice
    caught_by = frozenset(
        {"test_a_repeat_of_a_running_execution_gets_its_answer", "test_a_repeated_execution_id_runs_nothing"}
    )


class _NamedByTheCommand(Passing):
    async def exec(self, command, *, execution_id=None, **options):
        return await self.inner.exec(command, execution_id=execution_id and command, **options)


class TestTakesTheCommandForTheExecution(Local, Commands):
    sandbox_class = _NamedByTheCommand
    caught_by = frozenset({"test_other_execution_ids_are_other_executions"})


class _DropsWhatItCannotSend(Passing):
    async def exec(self, command, **options):
        return await self.inner.exec(command.replace("\0", "").replace("\ud800", ""), **options)


class TestDropsCharactersOfACommand(Local, Commands):
    sandbox_class = _DropsWhatItCannotSend
    caught_by = frozenset({"test_what_no_process_can_be_given_is_refused_clearly"})


class _ExportsForGood(Passing):
    async def exec(self, command, *, env=None, **options):
        for name in env or {}:
            if name.isidentifier() and "\0" not in env[name] and "\ud800" not in env[name]:
                await self.inner.exec(f'export {name}="$GIVEN"', env={"GIVEN": env[name]})
        return await self.inner.exec(command, env=env, **options)


class TestVariablesOfACallStay(Local, Commands):
    sandbox_class = _ExportsForGood
    caught_by = frozenset({"test_env_holds_for_one_call"})
