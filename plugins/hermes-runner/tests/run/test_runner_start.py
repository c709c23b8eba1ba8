"""What the start of `hermes-core run` leaves out; how long it takes is in benchmarks/run_start.py."""

from __future__ import annotations

import gc
import io
import json
import os
import subprocess
import sys

import pytest

from hermes_core.cli import main
from hermes_runner.config import RunConfig
from hermes_runner.run.run import execute

PRINT = (
    "from hermes_core.cli import main; main({!r}); import json, sys; print(); print(json.dumps(sorted(sys.modules)))"
)
NOT_FOR_A_CONFIG = (
    "hermes_core.rollout",
    "hermes_core.contracts.engine",
    "hermes_core.contracts.model",
    "hermes_core.contracts.rollout",
    "hermes_core.tooling.budget",
    "hermes_core.tooling.selection",
    "hermes_models.clients",
    "hermes_runner.output",
    "hermes_runner.report",
    "hermes_runner.run.local_engine",
    "hermes_runner.run.run",
    "hermes_runner.tasks",
    "hermes_sandbox.backend",
    "hermes_tools.files",
    "hermes_tools.processes",
    "aiohttp",
    "asyncio",
    "concurrent.futures",
    "jinja2",
    "logging",
    "rich",
    "ssl",
    "subprocess",
    "tokenizers",
    "transformers",
)


@pytest.fixture
def tasks(tmp_path):
    lines = (json.dumps({"id": name, "prompt": "Say hi."}) for name in ("a", "b"))
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


@pytest.fixture
def run(tasks, tmp_path, monkeypatch):
    """Run the tasks on a model that does nothing, with no tools, and return the exit status."""
    monkeypatch.setenv("HERMES_PLUGINS", "hermes-sandbox,hermes-tools,hermes-models,hermes-runner")
    flags = ("--model", "nop", "--enabled-toolsets", "", "--out", str(tmp_path / "out"))
    return lambda *given: main(["run", tasks, *flags, *given])


def modules_after(*arguments):
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("HERMES_", "PYTEST_", "COV_"))}
    command = [sys.executable, "-c", PRINT.format(["run", *arguments, "--print-config"])]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environ).stdout
    return json.loads(printed.splitlines()[-1])


@pytest.mark.parametrize(
    "flags", [(), ("--model", "http://127.0.0.1:9/v1", "--group-size", "4", "--max-agent-turns", "2")]
)
def test_printing_the_config_imports_nothing_that_runs_a_rollout(tasks, flags):
    modules = modules_after(tasks, *flags)
    assert "hermes_runner.config" in modules
    assert [name for name in modules if f"{name}.".startswith(tuple(f"{part}." for part in NOT_FOR_A_CONFIG))] == []


@pytest.mark.parametrize("flags", [("--print-config",), ()])
def test_a_run_asks_each_plugin_once_what_it_declares(run, tmp_path, capsys, flags):
    plugin = tmp_path / "asked.py"
    plugin.write_text(
        "import sys\n"
        "from hermes_core import hookimpl\n"
        "@hookimpl\n"
        "def hermes_sinks():\n"
        "    sys.stderr.write('was asked\\n')\n"
        "    return []\n"
    )
    assert run("-p", str(plugin), *flags) == 0
    assert capsys.readouterr().err.count("was asked") == 1


def test_the_plugins_that_the_config_leaves_out_take_no_part(run, tmp_path, capsys):
    (tmp_path / "run.yaml").write_text("plugins: {disable: [hermes-models]}\n")
    assert run("--config", str(tmp_path / "run.yaml")) == 2
    assert "no loaded plugin declares model 'chat'" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [("--print-config",), ()])
def test_the_collector_works_again_after_a_run(run, flags):
    assert run(*flags) == 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_a_collector_that_the_caller_has_stopped_stays_so(run):
    gc.disable()
    try:
        assert run() == 0
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_run_tells_once_that_its_rollouts_begin(registry, tasks, tmp_path):
    recorded = []
    out = tmp_path / "out"
    values = {"tasks": tasks, "out": str(out), "model": "nop", "enabled_toolsets": []}
    config = RunConfig.parse(values, source="the test")

    def note():
        recorded.append((out / "rollouts.jsonl").read_text() if (out / "rollouts.jsonl").exists() else "")

    result = execute(config, registry, api_key=None, stream=io.StringIO(), on_ready=note)
    assert result.summary["rollouts"]["total"] == 2
    assert recorded == [""]
