"""Tests of rollouts that cannot run: refused beforehand, or recorded with the cause and who is to blame."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest

from hermes_core.contracts.errors import HermesError, UserError
from hermes_testing.engine_parts import RAISES
from hermes_testing.model_server import say
from hermes_testing.servers import unreachable_url
from hermes_testing.suites.engine.base import Bench, EngineBase, in_the_background, script

_WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "backend": ({"terminal_backend": "conformance_none"}, "conformance_none"),
    "parser": ({"tool_call_parser": "conformance_none"}, "conformance_none"),
    "isolation": ({"terminal_backend": "local", "isolation": "gvisor"}, "gvisor"),
    "backend_option": ({"backend_options": {"conformance_none": 1}}, "conformance_none"),
}


class Refusals(EngineBase):
    """Errors of the config, of tasks and of the model's server."""

    def test_an_option_that_it_does_not_have_is_a_typed_error(self, bench: Bench) -> None:
        """A misspelt option must not be ignored."""
        with pytest.raises(UserError, match="conformance_none"):
            bench.registry.create("engine", self.component, {**self.options, "conformance_none": 1})

    @pytest.mark.parametrize("what", [*_WRONG, "model"])
    async def test_what_the_run_cannot_begin_with_is_said_as_it_opens(self, bench: Bench, what: str) -> None:
        """Unknown components, refused isolation, a missing model; no rollout runs, and closing works."""
        bench.tasks([script("t", say("answer"))])
        engine = self.make(bench.registry)
        async with unreachable_url(self.model_host) as url:
            nowhere: tuple[dict[str, Any], str] = ({"model": url}, urlsplit(url).netloc)
            values, named = {**_WRONG, "model": nowhere}[what]
            try:
                with pytest.raises(HermesError, match=re.escape(named)):
                    await engine.open(bench.engine_run(**values))
            finally:
                await engine.aclose()
        assert not bench.server.asked

    async def test_a_run_that_cannot_begin_records_nothing(self, bench: Bench) -> None:
        """The run raises the error."""
        with pytest.raises(HermesError, match="conformance_none"):
            await bench.run(script("t", say("answer")), terminal_backend="conformance_none")
        assert bench.lines() == []

    async def test_a_task_that_cannot_run_there_stops_no_other(self, bench: Bench) -> None:
        """It is named with the reason before the first rollout, and skipped."""
        items = [script("good", say("answer")), script("bad", say("answer"), sandbox={"image": "no-such.tar"})]
        result = await bench.run(*items)
        assert bench.recorded_tasks() == ["good"]
        assert [(problem.task_id, bool(problem.message)) for problem in result.problems] == [("bad", True)]
        assert result.clean is False

    async def test_tasks_that_can_run_are_not_refused(self, bench: Bench) -> None:
        """Including those with files, commands and sandbox fields."""
        fields = {"files": {"a.txt": "a"}, "setup": ["test -f a.txt"], "sandbox": {"env": {"A": "1"}}}
        result = await bench.run(script("t", say("answer"), **fields))
        assert (result.problems, [line["reward"] for line in bench.lines()]) == ((), [1.0])

    async def test_a_rollout_that_fails_ends_no_other(self, bench: Bench) -> None:
        """If set-up fails or a verifier raises, the outcome names the cause and others continue."""
        items = [
            script("good", say("answer")),
            script("unready", say("answer"), setup=["exit 3"]),
            script("unjudged", say(RAISES)),
        ]
        await bench.run(*items)
        lines = {line["task_id"]: line for line in bench.lines()}
        assert lines["good"]["reward"] == 1.0
        assert (lines["unready"]["stop_reason"], lines["unready"]["failure"]["blame"]) == ("task_error", "task")
        unjudged = lines["unjudged"]
        assert (unjudged["reward_status"], unjudged["reward_failure"]["blame"]) == ("error", "verifier")

    async def test_a_fatal_error_stops_the_run_as_itself(self, bench: Bench) -> None:
        """A refused key would fail every rollout; waiting requests are ended."""
        items = [script("waits", say("answer", hold=True)), script("denied", say("answer", status=401, times=99))]
        async with in_the_background(bench.run(*items)) as running:
            assert await bench.eventually(running.done)
            error = running.exception()
        assert isinstance(error, HermesError)
        assert (type(error).__name__, error.fatal) == ("ModelAuthError", True)
        assert bench.lines() == []
        assert await bench.eventually(lambda: not bench.server.held.total())

    async def test_the_server_s_key_is_handed_on_and_written_nowhere(self, bench: Bench) -> None:
        """Neither into the records nor into the summary."""
        key = "sk-conformance-0451-not-to-be-written"
        await bench.run(script("t", say("answer")), api_key=key)
        assert bench.server.keys == {"t": {key}}
        written = [path for path in (bench.folder / "out").rglob("*") if path.is_file()]
        assert [path.name for path in written if key.encode() in path.read_bytes()] == []
