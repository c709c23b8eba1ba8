"""Real local sandboxes with one behaviour of sessions changed; `caught_by` names the tests that must fail."""

from __future__ import annotations

from dataclasses import replace

from backend_wrapping import Backend, Local, Passing

from hermes_testing.suites.backend.sessions import LiveSessions, Sessions


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


class _ForgetsAliases(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        if command.startswith("alias"):
            await self.inner.exec("\\unalias -a")
        return result


class TestForgetsAliases(Local, Sessions):
    sandbox_class = _ForgetsAliases
    caught_by = frozenset({"test_aliases_survive"})


class TestForgetsAliasesOfALiveSession(Local, LiveSessions):
    sandbox_class = _ForgetsAliases
    caught_by = frozenset({"test_a_live_session_is_one_shell"})


class _ForgetsTheErrors(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        return replace(result, stderr=b"") if result.timed_out else result


class TestTimeoutOfALiveSessionLosesStderr(Local, LiveSessions):
    sandbox_class = _ForgetsTheErrors
    caught_by = frozenset({"test_a_live_session_survives_a_timeout"})


class _MergesAfterwards(Passing):
    async def exec(self, command, *, merge_stderr=False, **options):
        result = await self.inner.exec(command, **options)
        if not merge_stderr:
            return result
        return replace(result, stdout=result.stdout + result.stderr, stderr=b"")


class TestMergesTwoPipesOfALiveSession(Local, LiveSessions):
    sandbox_class = _MergesAfterwards
    caught_by = frozenset({"test_a_live_session_merges_the_streams_of_single_calls"})


class _MergesFromThenOn(Passing):
    async def exec(self, command, *, merge_stderr=False, **options):
        self.merges = merge_stderr or self.__dict__.get("merges", False)
        return await self.inner.exec(command, merge_stderr=self.merges, **options)


class TestMergesFromThenOnInALiveSession(Local, LiveSessions):
    sandbox_class = _MergesFromThenOn
    caught_by = frozenset({"test_a_live_session_merges_the_streams_of_single_calls"})


class _LosesALiveSession(Passing):
    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        if result.timed_out:
            await self.inner.renew()
        return result


class TestLosesALiveSessionAtATimeout(Local, LiveSessions):
    sandbox_class = _LosesALiveSession
    caught_by = frozenset({"test_a_live_session_survives_a_timeout"})


class _NeverLive(Backend):
    async def open(self, spec):
        return await super().open(replace(spec, session="robust"))


class TestGivesAFreshShellForALiveOne(Local, LiveSessions):
    backend_class = _NeverLive
    caught_by = frozenset(
        {
            "test_a_live_session_has_job_control",
            "test_a_live_session_is_one_shell",
        }
    )
