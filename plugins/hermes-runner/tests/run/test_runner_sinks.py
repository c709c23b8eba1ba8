"""Sinks of a run: the summary after the last outcome, and the report, which is one of them."""

from __future__ import annotations

import asyncio
import io
import json
import re
import threading
from collections import Counter
from pathlib import Path

import pytest

from hermes_core.cli import main
from hermes_core.contracts.errors import OutputError, UserError
from hermes_core.contracts.events import SummarySink
from hermes_core.specs import SinkSpec
from hermes_runner.config import RunConfig
from hermes_runner.run.run import Run
from hermes_runner.run.sinks import SinkFeed
from hermes_testing.watching import TooSoon, with_more_time


@pytest.fixture
def config(tmp_path):
    task = {"id": "a", "prompt": "Write a.", "verifier": {"name": "half"}, "solution": ["echo a > answer.txt"]}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")

    def new_config(**values):
        given = {"tasks": str(tmp_path / "tasks.jsonl"), "out": str(tmp_path / "out"), "enabled_toolsets": ["terminal"]}
        return RunConfig.parse({**given, **values}, source="the test")

    return new_config


class Noting:
    """A sink that notes its calls, and which files the folder has when it gets the summary."""

    def __init__(self, trouble=None):
        self.calls = []
        self.summary = None
        self.on_disk = None
        self._trouble = trouble

    def open(self, folder):
        self._folder = Path(folder)
        self.calls.append("open")

    def write(self, outcome):
        del outcome
        self.calls.append("write")

    def write_summary(self, summary):
        self.calls.append("summary")
        self.summary = summary
        self.on_disk = json.loads((self._folder / "summary.json").read_text())
        if self._trouble is not None:
            raise self._trouble

    def close(self):
        self.calls.append("close")


def with_sink(registry, sink, name="noting"):
    return registry.with_component(SinkSpec(name=name, summary="Notes.", target="test:Noting"), sink)


async def run(registry, settings):
    stream = io.StringIO()
    result = await Run(settings, registry, stream=stream).execute()
    return result, stream.getvalue()


async def test_a_sink_gets_the_summary_once_after_the_last_outcome_and_before_close(registry, config):
    sink = Noting()
    result, _ = await run(with_sink(registry, sink), config(sinks=["noting"], group_size=3))
    assert sink.calls == ["open", "write", "write", "write", "summary", "close"]
    assert sink.summary == result.summary
    assert sink.on_disk == json.loads(json.dumps(result.summary))


async def test_a_sink_without_write_summary_is_not_a_summary_sink(registry, config):
    class Plain(Noting):
        write_summary = None

    sink = Plain()
    await run(with_sink(registry, sink), config(sinks=["noting"]))
    assert isinstance(Noting(), SummarySink)
    assert sink.calls == ["open", "write", "close"]


async def test_what_a_sink_failed_to_take_is_in_the_summary_that_it_gets(registry, config):
    class Full(Noting):
        def write(self, outcome):
            raise ConnectionError("the table is full")

    sink = Full()
    await run(with_sink(registry, sink), config(sinks=["noting"], group_size=2))
    assert sink.on_disk["run"]["sink_errors"] == {"noting: ConnectionError: the table is full": 2}


async def test_an_interrupted_run_hands_its_summary_over_and_writes_its_report(registry, config, tmp_path):
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Signalling(Noting):
        def write(self, outcome):
            super().write(outcome)
            loop.call_soon_threadsafe(begun.set)

    sink = Signalling()
    registry = with_sink(registry, sink)
    running = asyncio.ensure_future(run(registry, config(sinks=["noting"], group_size=500, max_concurrent=1)))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    recorded = len((tmp_path / "out" / "rollouts.jsonl").read_bytes().splitlines())
    assert sink.calls == ["open", *["write"] * recorded, "summary", "close"]
    assert sink.summary["rollouts"]["total"] == recorded < 500
    assert (tmp_path / "out" / "report.html").read_text().count('class="rollout"') == recorded


async def test_what_goes_wrong_with_the_summary_is_a_warning_that_names_the_way_out(registry, config, tmp_path):
    sink = Noting(ValueError("no such column"))
    result, said = await run(with_sink(registry, sink), config(sinks=["noting"]))
    assert result.clean
    assert "warning: sink noting: ValueError: no such column; what it writes may lack its end" in said
    assert f"→ every outcome is in rollouts.jsonl; hermes-core report {tmp_path / 'out'} builds report.html" in said
    assert sink.calls[-1] == "close"


async def test_a_summary_that_cannot_be_written_is_the_runs_error_when_all_sinks_are_closed(registry, config):
    sink, other = Noting(OutputError("the table is full", hint="drop one")), Noting()
    registry = with_sink(with_sink(registry, sink), other, "other")
    with pytest.raises(OutputError, match=r"^sink noting: the table is full\n  → drop one$"):
        await run(registry, config(sinks=["noting", "other"]))
    assert sink.calls[-2:] == other.calls[-2:] == ["summary", "close"]


async def test_the_second_sink_that_cannot_write_the_summary_is_named_in_a_warning(registry, config):
    first, second = (Noting(OutputError(f"table {number} is full")) for number in (1, 2))
    registry = with_sink(with_sink(registry, first), second, "other")
    stream = io.StringIO()
    with pytest.raises(OutputError, match="sink noting: table 1 is full"):
        await Run(config(sinks=["noting", "other"]), registry, stream=stream).execute()
    assert "warning: sink other: table 2 is full; what it writes may lack its end" in stream.getvalue()


async def test_a_sink_that_changes_what_it_gets_changes_it_for_nobody_else(registry, config):
    class Changing(Noting):
        def write(self, outcome):
            outcome["messages"].clear()
            outcome.pop("reward")

        def write_summary(self, summary):
            summary["rollouts"].clear()
            summary.pop("run")

    class Keeping(Noting):
        def write(self, outcome):
            self.outcome = outcome

    keeping = Keeping()
    registry = with_sink(with_sink(registry, Changing(), "changing"), keeping)
    result, _ = await run(registry, config(sinks=["changing", "noting"]))
    recorded = json.loads((result.folder / "rollouts.jsonl").read_text())
    assert keeping.outcome == recorded
    assert keeping.summary == result.summary == json.loads((result.folder / "summary.json").read_text())


async def test_a_sink_that_takes_too_long_with_the_summary_is_left_behind():
    class Slow(Noting):
        def write_summary(self, summary):
            self.calls.append("summary")
            assert never.wait(60)

    async def attempt(seconds):
        sink = Slow()
        feed = SinkFeed("slow", sink, Counter(), limit=60, summary_limit=seconds)
        await feed.open("")
        try:
            trouble = await feed.write_summary({})
            TooSoon.unless("summary" in sink.calls, "the call had not begun")
            assert trouble == f"slow: took more than {seconds:g} s and was not waited for, with the summary"
            assert await feed.close() is None
            assert "close" not in sink.calls
        finally:
            never.set()

    never = threading.Event()
    await with_more_time(attempt)


async def test_a_sink_that_gives_up_by_itself_is_fed_on_and_closed():
    class Impatient(Noting):
        def write(self, outcome):
            super().write(outcome)
            raise TimeoutError("no answer in 5 s")

    sink, errors = Impatient(), Counter()
    feed = SinkFeed("impatient", sink, errors, limit=60)
    await feed.open("")
    for _ in range(2):
        feed.put(b"{}")
    assert await feed.close() is None
    assert sink.calls == ["open", "write", "write", "close"]
    assert errors == {"impatient: TimeoutError: no answer in 5 s": 2}


async def test_without_the_report_no_page_is_written_and_none_is_named(registry, config, tmp_path):
    result, _ = await run(registry, config(report=False))
    assert not (tmp_path / "out" / "report.html").exists()
    assert "report" not in result.summary["run"]
    assert main(["report", str(tmp_path / "out")], environ={}) == 0
    assert (tmp_path / "out" / "report.html").read_text().count('class="rollout"') == 1


async def test_the_report_can_be_left_out_and_wanted_of_one_folder(registry, config, tmp_path):
    await run(registry, config(report=False))
    await run(registry, config(group_size=2))
    assert (tmp_path / "out" / "report.html").read_text().count('class="rollout"') == 2


async def test_a_report_that_is_listed_among_the_sinks_is_written_once(registry, config, tmp_path):
    settings = config(sinks=["report"])
    assert [sink.name for sink in settings.all_sinks()] == ["report"]
    await run(registry, settings)
    assert (tmp_path / "out" / "report.html").exists()


def test_a_report_that_is_both_listed_and_left_out_is_refused(config, capsys):
    said = "expected one of report: false (--no-report) and a sink 'report', got both"
    with pytest.raises(UserError, match=re.escape(said)):
        config(sinks=["report"], report=False)
    file = Path(config().tasks).with_name("run.yaml")
    file.write_text("sinks: [report]\n")
    assert main(["run", config().tasks, "--config", str(file), "--no-report"], environ={}) == 2
    assert said in capsys.readouterr().err


async def test_no_report_is_left_that_lacks_rollouts_recorded_later(registry, config, tmp_path):
    await run(registry, config())
    assert (tmp_path / "out" / "report.html").exists()
    await run(registry, config(group_size=2, report=False))
    assert len((tmp_path / "out" / "rollouts.jsonl").read_bytes().splitlines()) == 2
    assert not (tmp_path / "out" / "report.html").exists()


def test_a_report_that_cannot_be_written_fails_the_command_and_says_what_writes_it(config, tmp_path, capsys):
    (tmp_path / "out" / "report.html").mkdir(parents=True)
    arguments = ["-p", "rollout_components", "run", config().tasks, "--out", str(tmp_path / "out")]
    code = main([*arguments, "--model", "oracle"], environ={})
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert "report.html could not be written" in said.err
    assert f"then: hermes-core report {tmp_path / 'out'}" in said.err
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["rollouts"]["total"] == 1


def test_a_sink_that_is_named_twice_is_refused(config):
    with pytest.raises(UserError, match="sinks: expected each sink once, got 'noting' 2 times"):
        config(sinks=["noting", {"name": "noting", "options": {"project": "b"}}])
