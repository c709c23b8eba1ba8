"""Parts that cannot be closed after the last rollout: a warning beside the summary, and the same exit code."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal

import pytest

from hermes_core.cli import main
from hermes_core.contracts.errors import SandboxRefusedError
from hermes_core.discovery import PluginSettings, load_plugins
from hermes_runner.config import RunConfig
from hermes_runner.run.run import Run, execute

ALLOWED = ("hermes-sandbox", "hermes-tools", "hermes-models", "hermes-runner")
GC = "→ hermes-core sandboxes gc removes what is left once it can be reached; --all includes what has no lease"


@pytest.fixture
def registry():
    extra = ("rollout_components", "engine_components", "closing_components")
    return load_plugins(PluginSettings(allow=ALLOWED, extra=extra), environ={})


@pytest.fixture
def config(tmp_path):
    task = {"id": "a", "prompt": "Write a.", "verifier": {"name": "half"}, "solution": ["echo a > answer.txt"]}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")

    def new_config(**values):
        given = {"tasks": str(tmp_path / "tasks.jsonl"), "out": str(tmp_path / "out")}
        return RunConfig.parse({**given, "enabled_toolsets": ["terminal"], **values}, source="the test")

    return new_config


TROUBLES = [
    (
        {"terminal_backend": "sticky"},
        "engine 'local' could not be closed: backend 'sticky': node n1 is down",
        "→ `sinfo -R` shows why; then hermes-core sandboxes gc",
    ),
    (
        {"model": "sticky"},
        "engine 'local' could not be closed: the model client: ConnectionError: the line is dead",
        GC,
    ),
    ({"engine": "slips"}, "engine 'slips' could not be closed: KeyError: 'worker'; 2 of its sandboxes may be left", GC),
    ({"engine": "mute"}, "engine 'mute' could not be closed: KeyError: 'worker'\n", GC),
    ({"engine": "exits"}, "engine 'exits' could not be closed: PluginEscapeError: SystemExit: 7", GC),
    (
        {"sinks": [{"name": "sticky"}]},
        "sink sticky: OSError: [Errno 5] Input/output error; what it writes may lack its end",
        "→ every outcome is in rollouts.jsonl",
    ),
]


@pytest.mark.parametrize(("values", "said", "hint"), TROUBLES)
async def test_a_complete_run_that_cannot_close_something_is_clean_and_warns(registry, config, values, said, hint):
    stream = io.StringIO()
    result = await Run(config(**values), registry, stream=stream).execute()
    assert (result.clean, result.summary["rollouts"]["total"]) == (True, 1)
    assert f"warning: {said}" in stream.getvalue()
    assert hint in stream.getvalue()


async def test_everything_that_cannot_be_closed_is_named(registry, config):
    stream = io.StringIO()
    values = config(terminal_backend="sticky", model="sticky", sinks=[{"name": "sticky"}])
    result = await Run(values, registry, stream=stream).execute()
    assert result.clean
    assert all(said in stream.getvalue() for said in ("n1 is down", "the line is dead", "sink sticky"))
    assert result.summary["run"]["sink_errors"] == {}  # it was written before


def test_the_command_prints_the_summary_and_exits_with_zero(config, capsys, tmp_path):
    plugins = [word for name in ("rollout_components", "closing_components") for word in ("-p", name)]
    path = str(config(terminal_backend="sticky").tasks)
    arguments = ["run", path, "--out", str(tmp_path / "out"), "--terminal-backend", "sticky", "--model", "oracle"]
    code = main([*plugins, *arguments, "--enabled-toolsets", "terminal"], environ={})
    out, err = capsys.readouterr()
    assert (code, "reward" in out) == (0, True)
    assert "warning: engine 'local' could not be closed: backend 'sticky': node n1 is down" in err


@pytest.mark.parametrize("trouble", [{"model": "sticky"}, {"engine": "slips"}])
async def test_the_error_that_stopped_a_run_is_raised_and_not_that_of_closing(registry, config, trouble):
    stream = io.StringIO()
    values = config(terminal_backend="sticky", isolation="bwrap", **trouble)
    with pytest.raises(SandboxRefusedError, match="cannot enforce isolation 'bwrap'"):
        await Run(values, registry, stream=stream).execute()
    assert "warning: engine" in stream.getvalue()


async def test_a_cancelled_run_stays_cancelled(registry, config):
    stream = io.StringIO()
    running = asyncio.ensure_future(Run(config(model="sticky", group_size=50), registry, stream=stream).execute())
    while not stream.getvalue():
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert "the line is dead" in stream.getvalue()


class Ending(io.StringIO):
    """Sends this process a signal when the run says that it has begun."""

    def write(self, text):
        if text.startswith("50 rollouts"):
            os.kill(os.getpid(), signal.SIGTERM)
        return super().write(text)


def test_a_run_that_was_ended_keeps_its_status(registry, config):
    stream = Ending()
    with pytest.raises(SystemExit) as ended:
        execute(config(model="sticky", group_size=50), registry, api_key=None, stream=stream)
    assert ended.value.code == 128 + signal.SIGTERM
    assert "the line is dead" in stream.getvalue()
    assert stream.getvalue().endswith("the same command continues the run\n")


def test_tasks_check_prints_its_table_though_the_backend_cannot_be_closed(config, capsys):
    path = str(config().tasks)
    plugins = [word for name in ("rollout_components", "closing_components") for word in ("-p", name)]
    main([*plugins, "tasks", "check", path, "--backend", "sticky"], environ={})
    out, err = capsys.readouterr()
    assert "of 1 task passed" in out
    assert err.startswith("warning: backend 'sticky' could not be closed: node n1 is down\n  → `sinfo -R` shows why")
