"""Real local sandboxes with one behaviour of commands changed; `caught_by` names the tests that must fail."""

from __future__ import annotations

import asyncio
import itertools
import os
from dataclasses import replace

from backend_wrapping import Backend, Local, Passing, run_on

from hermes_testing.suites.backend.commands import Commands


class _MixesStreams(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        return replace(result, stdout=result.stdout + result.stderr)


class TestMixesTheStreams(Local, Commands):
    sandbox_class = _MixesStreams
    caught_by = frozenset(
        {
            "test_a_repeated_execution_id_runs_nothing",
            "test_a_repeated_execution_has_the_streams_of_the_first",
            "test_a_timeout_is_exit_code_124_with_what_was_printed",
            "test_separate_streams_never_mix",
            "test_stdout_and_stderr_are_kept_apart",
        }
    )


class _MergesAlways(Passing):
    async def exec(self, command, **options):
        return await self.inner.exec(command, **{**options, "merge_stderr": True})


class TestMergesTheStreamsUnasked(Local, Commands):
    sandbox_class = _MergesAlways
    caught_by = frozenset(
        {
            "test_a_flood_on_both_streams_ends",
            "test_a_repeated_execution_has_the_streams_of_the_first",
            "test_a_repeated_execution_id_runs_nothing",
            "test_a_timeout_is_exit_code_124_with_what_was_printed",
            "test_output_is_stdout_and_then_stderr",
            "test_separate_streams_never_mix",
            "test_stdout_and_stderr_are_kept_apart",
        }
    )


class _MergesAfterwards(Passing):
    async def exec(self, command, *, merge_stderr=False, **options):
        result = await self.inner.exec(command, **options)
        if not merge_stderr:
            return result
        return replace(result, stdout=result.stdout + result.stderr, stderr=b"")


class TestMergesTwoPipes(Local, Commands):
    sandbox_class = _MergesAfterwards
    caught_by = frozenset(
        {
            "test_a_repeated_execution_has_the_streams_of_the_first",
            "test_merged_streams_have_one_limit",
            "test_merged_streams_keep_the_order_of_their_writes",
        }
    )


class _SwapsTwoWrites(Passing):
    async def exec(self, command, *, merge_stderr=False, **options):
        result = await self.inner.exec(command, merge_stderr=merge_stderr, **options)
        lines = result.stdout.splitlines(keepends=True)
        if not merge_stderr or len(lines) < 200:
            return result
        lines[100:102] = reversed(lines[100:102])
        stdout = b"".join(lines)
        return replace(result, stdout=stdout, output=stdout.decode())


class TestMergesWithTwoWritesInTheWrongOrder(Local, Commands):
    sandbox_class = _SwapsTwoWrites
    caught_by = frozenset(
        {
            "test_merged_streams_have_one_limit",
            "test_merged_streams_keep_the_order_of_their_writes",
        }
    )


class _KeepsTheHeadOfMergedOutput(Passing):
    async def exec(self, command, *, merge_stderr=False, **options):
        result = await self.inner.exec(command, merge_stderr=merge_stderr, **options)
        if not merge_stderr or not result.truncated:
            return result
        stdout = result.stdout[: len(result.stdout) // 2]
        return replace(result, stdout=stdout, output=stdout.decode())


class TestKeepsTheHeadOfMergedOutput(Local, Commands):
    sandbox_class = _KeepsTheHeadOfMergedOutput
    caught_by = frozenset({"test_merged_streams_have_one_limit"})


class _TellsStderrFirst(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        return replace(result, output=(result.stderr + result.stdout).decode("utf-8", "replace"))


class TestTellsStderrFirst(Local, Commands):
    sandbox_class = _TellsStderrFirst
    caught_by = frozenset(
        {"test_a_timeout_is_exit_code_124_with_what_was_printed", "test_output_is_stdout_and_then_stderr"}
    )


class _RepeatsOnlyTheSameForm(Passing):
    async def exec(self, command, *, execution_id=None, merge_stderr=False, **options):
        name = execution_id and f"{execution_id} {merge_stderr}"
        return await self.inner.exec(command, execution_id=name, merge_stderr=merge_stderr, **options)


class TestTakesAnotherFormForAnotherExecution(Local, Commands):
    sandbox_class = _RepeatsOnlyTheSameForm
    caught_by = frozenset({"test_a_repeated_execution_has_the_streams_of_the_first"})


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
            "test_merged_streams_have_one_limit",
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
    caught_by = frozenset(
        {"test_a_timed_out_execution_is_known_too", "test_a_timeout_kills_every_process_of_the_command"}
    )


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


class _ForgetsTheErrors(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        return replace(result, stderr=b"") if result.timed_out else result


class TestTimeoutLosesStderr(Local, Commands):
    sandbox_class = _ForgetsTheErrors
    caught_by = frozenset({"test_a_timeout_is_exit_code_124_with_what_was_printed"})


class _ForgetsTheText(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        return replace(result, output="") if result.timed_out else result


class TestTimeoutLosesTheText(Local, Commands):
    sandbox_class = _ForgetsTheText
    caught_by = frozenset({"test_a_timeout_is_exit_code_124_with_what_was_printed"})


class _CountsStdoutOnly(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        return replace(result, omitted_bytes=result.omitted_bytes // 2) if len(result.stderr) > 1000 else result


class TestCountsOmittedBytesOfOneStream(Local, Commands):
    sandbox_class = _CountsStdoutOnly
    caught_by = frozenset({"test_a_flood_on_both_streams_ends"})


class _KeepsTheHeadOfStderr(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        return replace(result, stderr=result.stderr[:65536])


class TestKeepsTheHeadOfStderr(Local, Commands):
    sandbox_class = _KeepsTheHeadOfStderr
    caught_by = frozenset({"test_a_flood_on_both_streams_ends"})


class _HasNoClock(Passing):
    async def exec(self, command, **options):
        return replace(await self.inner.exec(command, **options), seconds=0.0)


class TestTakesNoTime(Local, Commands):
    sandbox_class = _HasNoClock
    caught_by = frozenset({"test_a_result_tells_how_long_the_command_took"})


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
            "test_merged_streams_have_one_limit",
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
        {
            "test_a_repeat_of_a_running_execution_gets_its_answer",
            "test_a_repeated_execution_has_the_streams_of_the_first",
            "test_a_repeated_execution_id_runs_nothing",
            "test_a_timed_out_execution_is_known_too",
            "test_the_last_64_executions_are_known",
        }
    )


class _NamedByTheCommand(Passing):
    async def exec(self, command, *, execution_id=None, **options):
        return await self.inner.exec(command, execution_id=execution_id and command, **options)


class TestTakesTheCommandForTheExecution(Local, Commands):
    sandbox_class = _NamedByTheCommand
    caught_by = frozenset(
        {
            "test_a_repeated_execution_has_the_streams_of_the_first",
            "test_other_execution_ids_are_other_executions",
            "test_the_last_64_executions_are_known",
        }
    )


class _RemembersTwo(Passing):
    def __init__(self, inner):
        super().__init__(inner)
        self.known, self.numbers = {}, itertools.count()

    async def exec(self, command, *, execution_id=None, **options):
        if execution_id is not None:
            execution_id = self.known.setdefault(execution_id, f"{execution_id}-{next(self.numbers)}")
            self.known = dict([*self.known.items()][-2:])
        return await self.inner.exec(command, execution_id=execution_id, **options)


class TestRemembersTwoExecutions(Local, Commands):
    sandbox_class = _RemembersTwo
    caught_by = frozenset({"test_the_last_64_executions_are_known"})


class _ForgetsWhatTimedOut(Passing):
    def __init__(self, inner):
        super().__init__(inner)
        self.forgotten = set()

    async def exec(self, command, *, execution_id=None, **options):
        known = f"{execution_id} again" if execution_id in self.forgotten else execution_id
        result = await self.inner.exec(command, execution_id=known, **options)
        if result.timed_out and execution_id is not None:
            self.forgotten.add(execution_id)
        return result


class TestRunsAgainWhatTimedOut(Local, Commands):
    sandbox_class = _ForgetsWhatTimedOut
    caught_by = frozenset({"test_a_timed_out_execution_is_known_too"})


class _Memory(Backend):
    """One object for all its sandboxes."""

    async def open(self, spec):
        sandbox = await super().open(spec)
        sandbox.known = self.__dict__.setdefault("known", {})
        return sandbox


class _RemembersForAll(Passing):
    async def exec(self, command, *, execution_id=None, **options):
        if execution_id is None:
            return await self.inner.exec(command, **options)
        if execution_id not in self.known:
            self.known[execution_id] = asyncio.ensure_future(self.inner.exec(command, **options))
        return await self.known[execution_id]


class TestAnExecutionIsKnownToAllSandboxes(Local, Commands):
    backend_class, sandbox_class = _Memory, _RemembersForAll
    caught_by = frozenset({"test_an_execution_is_one_of_its_sandbox"})


class _RepeatsOnlyStdout(Passing):
    def __init__(self, inner):
        super().__init__(inner)
        self.known = set()

    async def exec(self, command, *, execution_id=None, **options):
        result = await self.inner.exec(command, execution_id=execution_id, **options)
        is_known = execution_id is not None and execution_id in self.known
        self.known.add(execution_id)
        return replace(result, stderr=b"") if is_known else result


class TestRepeatsOnlyStdout(Local, Commands):
    sandbox_class = _RepeatsOnlyStdout
    caught_by = frozenset(
        {
            "test_a_repeated_execution_has_the_streams_of_the_first",
            "test_a_repeated_execution_id_runs_nothing",
        }
    )


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
