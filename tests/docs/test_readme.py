"""What the README and the page of benchmarks show is true: figures, the task, the sandbox, the plugin, commands."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import json
import re
import shlex
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
_LINES = 150
"""What one reads in three minutes."""


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands():
    lines = "\n".join(blocks("console")).replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in lines if "hermes-core " in line and line.startswith("$ ")]


def test_the_figures_are_those_of_the_committed_measurement(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    module = importlib.import_module("benchmarks.run")
    results = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    assert module.with_table(BENCHMARKS, results) == BENCHMARKS
    found = results["rollouts"]
    assert f"[{found['ratios']['cpu_ratio_6_turns']:.1f} times](docs/benchmarks.md)" in README
    assert f"{found['ratios']['peak_rss_mb_512']:.0f} MB for 512 rollouts" in README


def test_the_readme_is_read_in_three_minutes():
    assert len(README.splitlines()) <= _LINES


def test_the_figures_of_sandboxes_are_those_of_the_committed_measurements(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    tables = importlib.import_module("benchmarks.sandboxes.page_tables")
    assert tables.with_tables(BENCHMARKS) == BENCHMARKS


def test_the_figures_of_clusters_are_those_of_the_committed_measurement(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    assert importlib.import_module("benchmarks.clusters.page_table").with_table(BENCHMARKS) == BENCHMARKS


def test_the_figures_of_capacity_are_those_of_the_committed_measurement(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    capacity = importlib.import_module("benchmarks.sandboxes.capacity")
    page = (ROOT / "docs" / "capacity.md").read_text()
    assert capacity.with_table(page, json.loads(capacity.RESULT.read_text())) == page


def test_the_task_shown_passes_its_own_check(hermes, tmp_path):
    shown = next(block for block in blocks("json") if '"solution"' in block)
    (tmp_path / "shown.jsonl").write_text(json.dumps(json.loads(shown)) + "\n")
    result = hermes("tasks", "check", "shown.jsonl")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.component("bwrap")
def test_the_sandbox_shown_says_hello(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    shown = next(block for block in blocks("python") if "open_sandbox" in block)
    head, body = shown.split("\n\n", 1)
    names = {}
    exec(f"{head}\nasync def main():\n{textwrap.indent(body, '    ')}", names)  # the README's own text
    asyncio.run(names["main"]())
    assert capsys.readouterr().out.strip() == "0 hello world from /tmp"


def test_the_plugin_shown_declares_a_valid_spec():
    shown = next(block for block in blocks("python") if "hookimpl" in block)
    ast.parse(shown)
    names = {}
    exec(shown, names)
    assert [spec.name for spec in names["hermes_verifiers"]()] == ["acme_words"]


@pytest.mark.parametrize("command", [c for c in commands() if "git clone" not in c and "make" not in c])
def test_every_flag_of_every_command_shown_exists(hermes, command):
    words = shlex.split(command[command.index("hermes-core ") + len("hermes-core ") :])
    subcommand = [word for word in words[:2] if word.islower() and "/" not in word and not word.startswith("-")]
    usage = hermes(*subcommand[:2] if subcommand[0] in {"plugins", "tasks", "sandboxes"} else subcommand[:1], "--help")
    assert usage.returncode == 0
    assert all(word in usage.stdout for word in words if word.startswith("--"))


def test_every_make_target_shown_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"`make ([a-z-]+)`|^\$ make ([a-z-]+)", README + BENCHMARKS, re.MULTILINE))
    targets = {either or other for either, other in targets}
    assert targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
