"""The pages about plugins: every example is loaded as a user would load it, and used once for what it is."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from docs_pages import DOCS, blocks, page, rows, words

import hermes_testing
from hermes_core.cli import main
from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.model import ModelReply
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.contracts.task import Task
from hermes_core.discovery import KINDS, PluginSettings, load_plugins, load_tasks
from hermes_core.rollout import GroupPlan, RolloutSpec, Runtime, run_rollout
from hermes_core.specs import Ref
from hermes_core.tooling import select_tools
from hermes_runner import Run, RunConfig
from hermes_sandbox import open_sandbox

_NOTHING = "\N{EN DASH}"
PAGES = {
    name: "cli_command" if name == "command" else name
    for name in sorted(path.stem for path in DOCS.glob("plugins/[a-z]*.md"))
}
"""The kind of component that each page is about."""
PACKAGED = ("command", "sink", "task_source", "toolset", "toolset_distribution")
"""Pages whose file is a package for its suite, as they say."""
BASICS = (
    "test_it_loads or every_target or declarations_are_data or solved_task or answers_with_text or failures_are "
    "or reply_is_a_turn or contract_s_method or entry_point_resolves or provenance_says_what or streams_are_kept "
    "or held_until_it_is_given_up or amended_handle"
)
"""Some tests of each suite, by words of their names; the deep tier runs all of them."""


def files(name):
    """The Python blocks of a page, by the path in their first line."""
    found = blocks(page(f"plugins/{name}.md"), "python")
    return {block.partition("\n")[0].removeprefix("# "): block for block in found}


def module_of(name):
    return next(Path(path).stem for path in files(name) if not path.startswith("test_"))


def column(table, head):
    return [words(row[head])[0] if words(row[head]) else row[head] for row in table]


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """Leases are the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def example(tmp_path):
    """Write the example of a page and load it by its path, beside all that is installed."""

    def load(name, **settings):
        path = tmp_path / f"{module_of(name)}.py"
        path.write_text(files(name)[path.name])
        return load_plugins(PluginSettings(extra=(str(path),), **settings), environ={})

    return load


@pytest.fixture
def ran(tmp_path):
    """Run tasks with the oracle, or what the config says; gives the recorded rollouts."""

    async def run(registry, *tasks, **config):
        path = tmp_path / "tasks.jsonl"
        path.write_text("".join(json.dumps(task) + "\n" for task in tasks))
        values = {"tasks": str(path), "out": str(tmp_path / "out"), "mistake_rate": 0, **config}
        result = await Run(RunConfig.parse(values, source="the test"), registry, stream=io.StringIO()).execute()
        assert result.clean
        return [json.loads(line) for line in (tmp_path / "out" / "rollouts.jsonl").read_text().splitlines()]

    return run


def hello_task(**fields):
    checks = [{"path": "hello.txt", "equals": "hello\n"}]
    verifier = {"name": "file_content", "options": {"checks": checks}}
    return {"id": "hello", "prompt": "Greet.", "verifier": verifier, "solution": ["echo hello > hello.txt"], **fields}


def test_the_table_of_kinds_is_that_of_the_code():
    table = rows(page("plugins/README.md"), "kind")
    contracts = [kind.protocol or _NOTHING for kind in KINDS.values()]
    expected = [contract.removeprefix("hermes_core.contracts.").replace(":", ".") for contract in contracts]
    assert column(table, 0) == [*KINDS]
    assert column(table, 1) == [kind.hook for kind in KINDS.values()]
    assert column(table, 2) == [kind.spec.__name__ for kind in KINDS.values()]
    assert column(table, 3) == expected


def test_the_table_of_kinds_names_the_suite_and_the_page_of_each():
    for cells in rows(page("plugins/README.md"), "kind"):
        [kind], [suite] = words(cells[0]), words(cells[4])
        assert getattr(getattr(hermes_testing, suite), "kind", kind) == kind
        name = re.search(r"\((\w+)\.md\)", cells[5])
        assert PAGES[name[1]] == kind


@pytest.mark.parametrize("name", PAGES)
def test_a_page_names_its_hook_its_spec_its_contract_and_its_suite(name):
    kind, text = KINDS[PAGES[name]], page(f"plugins/{name}.md")
    [suite] = [
        words(cells[4])[0] for cells in rows(page("plugins/README.md"), "kind") if words(cells[0]) == [kind.name]
    ]
    contract = [] if kind.protocol is None else [kind.protocol.replace(":", ".")]
    missing = [word for word in (kind.hook, kind.spec.__name__, *contract) if f"`{word}`" not in text]
    assert missing == []
    assert f"({suite}):" in text


@pytest.mark.parametrize("name", PAGES)
def test_every_command_of_a_page_adds_the_page_s_own_example(name):
    added = re.findall(r"-p \./(\w+)\.py", page(f"plugins/{name}.md"))
    assert added
    assert set(added) == {module_of(name)}


async def test_the_tool_is_called_in_a_rollout(example, ran):
    calls = [{"tool": "word_count", "arguments": {"path": path}} for path in ("text.txt", "absent.txt")]
    toolsets = ["terminal", "counting"]
    task = {"id": "a", "prompt": "Count.", "files": {"text.txt": "one two\nthree\n"}, "solution": calls}
    [line] = await ran(
        example("tool"),
        {**task, "enabled_toolsets": toolsets, "verifier": {"name": "exit_code", "options": {"command": "true"}}},
    )
    answers = [message["content"] for message in line["messages"] if message["role"] == "tool"]
    assert answers[0] == "3"
    assert answers[1].startswith("cannot read absent.txt: ")
    assert [error["tool_name"] for error in line["tool_errors"]] == ["word_count"]


async def test_the_verifier_gives_partial_credit(example, ran):
    verifier = {"name": "has_words", "options": {"words": ["red", "blue"]}}
    solutions = {"half": ["echo red > answer.txt"], "none": ["true"]}
    registry = example("verifier")
    lines = await ran(
        registry,
        *(
            {"id": key, "prompt": f"Write {key}.", "solution": steps, "verifier": verifier}
            for key, steps in solutions.items()
        ),
    )
    assert {line["task_id"]: line["reward"] for line in lines} == {"half": 0.5, "none": 0.0}


async def test_the_parser_reads_what_a_model_of_its_name_writes(example):
    registry = example("parser")
    assert registry.parser_for("globex/small") == registry.parser_for("other", "… <call> …") == "call_tags"
    assert registry.parser_for("globex") is None
    text = 'I look.<call>{"name": "todo", "arguments": {}}</call>'
    parser = registry.create("parser", "call_tags")
    stream = parser.stream()
    for character in text:
        stream.feed(character)
    stream.finish()
    result = parser.parse(text)
    assert [call.name for call in result.calls] == ["todo"]
    assert stream.result() == result
    assert parser.render(result) == text


class Raw:
    """A model on a server that returns raw text."""

    def __init__(self):
        self.provenance = {"protocol": "raw"}

    async def chat(self, request):
        is_first = len(request.conversation) == 1
        return ModelReply(content='<call>{"name": "todo", "arguments": {}}</call>' if is_first else "Done.")


async def test_the_parser_finds_the_calls_of_a_rollout(example):
    registry = example("parser")
    task = Task(id="a", messages=({"role": "user", "content": "Look."},))
    group = GroupPlan(group_id="g", task=task, tools=select_tools(registry, enabled_toolsets=["todo"]))
    async with Runtime(registry, parser=Ref(kind="parser", name="call_tags")) as runtime:
        outcome = await run_rollout(RolloutSpec(rollout_id="r", group=group), runtime, Raw())
    assert (outcome.counters["tool_calls_executed_ok"], outcome.final_response) == (1, "Done.")


async def test_the_model_completes_a_rollout(example, ran):
    [line] = await ran(example("model"), hello_task(), model="greeter")
    assert (line["reward"], line["final_response"]) == (1.0, "I have written the file.")


async def test_the_task_source_reads_a_table_and_says_which_rows_are_no_tasks(example, ran, tmp_path):
    registry = example("task_source")
    table = tmp_path / "questions.csv"
    table.write_text('id,prompt,answer\nsum,"1, 2 and 39?",42\nempty,,1\n')
    loaded = load_tasks(table, registry)
    assert [task.id for task in loaded.tasks] == ["sum"]
    assert [str(problem) for problem in loaded.problems] == [
        f"{table}:3: task 'empty': expected a value in column prompt, got none"
    ]
    table.write_text("id,prompt,answer\nsum,What is 41 + 1?,42\n")
    [line] = await ran(registry, tasks=str(table))
    assert (line["task_id"], line["reward"]) == ("sum", 1.0)


async def test_the_sink_gets_every_rollout_once(example, ran, tmp_path):
    sink = {"name": "rewards_csv", "options": {"delimiter": ";"}}
    lines = await ran(example("sink"), hello_task(), group_size=2, sinks=[sink])
    with (tmp_path / "out" / "rewards.csv").open(newline="") as file:
        table = list(csv.DictReader(file, delimiter=";"))
    assert sorted(row["rollout"] for row in table) == sorted(line["rollout_id"] for line in lines)
    assert {(row["task"], row["reward"]) for row in table} == {("hello", "1.0")}


async def test_the_engine_completes_a_run(example, ran, tmp_path):
    lines = await ran(example("engine"), hello_task(), group_size=3, engine="desks", engine_options={"desks": 1})
    engine = json.loads((tmp_path / "out" / "summary.json").read_text())["run"]["engine"]
    assert [line["reward"] for line in lines] == [1.0] * 3
    assert (engine["name"], engine["desks"]) == ("desks", 1)


async def test_the_service_keeps_what_the_calls_of_one_rollout_share(example, ran):
    calls = [{"tool": "remember", "arguments": {"text": text}} for text in ("red", "blue")]
    task = {"prompt": "Remember.", "solution": calls, "enabled_toolsets": ["terminal", "remembering"]}
    verifier = {"name": "exit_code", "options": {"command": "true"}}
    lines = await ran(example("service"), *({**task, "id": key, "verifier": verifier} for key in "ab"))
    answers = [[m["content"] for m in line["messages"] if m["role"] == "tool"] for line in lines]
    assert answers == [["red", "red\nblue"]] * 2


async def test_the_lease_store_holds_the_lease_of_a_sandbox_for_as_long_as_it_is_there(example, tmp_path):
    registry = example("lease_store", prefer={"lease_store:files": "sqlite_leases"})
    store, backend = registry.create("lease_store", "files"), registry.create("backend", "local")
    backend.lease_with(store)
    async with await backend.open(SandboxSpec()) as sandbox:
        assert sandboxes_in_database(tmp_path / "state") == [sandbox.id]
        assert (await store.collect(registry)).removed == []
    assert (sandboxes_in_database(tmp_path / "state"), store.count) == ([], 0)
    await backend.aclose()


def sandboxes_in_database(state):
    """Return the sandboxes in the example's database, which is the only place of leases."""
    assert [path.name for path in state.rglob("*.json")] == []
    with contextlib.closing(sqlite3.connect(state / "hermes-core" / "leases.db")) as database:
        return [row[0] for row in database.execute("SELECT id FROM leases")]


def test_the_command_prints_what_it_was_asked(tasks, tmp_path, capsys):
    path = tmp_path / "count_tasks.py"
    path.write_text(files("command")[path.name])
    given = str(tasks(hello_task(), "{"))
    assert main(["-p", str(path), "count-tasks", given], environ={}) == 1
    assert capsys.readouterr().out == "1 tasks, 1 problems\n"


def test_the_figure_that_the_page_of_commands_prints_is_that_of_the_shipped_tasks(example, tmp_path):
    [printed] = re.findall(r"prints `(\d+) tasks, 0 problems`", page("plugins/command.md"))
    loaded = load_tasks(DOCS.parent / "examples" / "terminal_tasks.jsonl", example("command"))
    assert len(loaded.tasks) == int(printed)


def test_the_toolset_is_selected_with_what_it_includes(example):
    found = select_tools(example("toolset"), enabled_toolsets=["reading"])
    assert (found.names, found.skipped) == (("read_file", "search_files", "todo"), ())


async def test_the_distribution_draws_the_toolsets_of_each_group(example, ran):
    registry = example("toolset_distribution")
    draws = {select_tools(registry, distribution="coding_mix", seed=seed).drawn for seed in range(40)}
    drawn = [("terminal",), ("terminal", "file"), ("terminal", "file", "todo"), ("terminal", "todo")]
    assert sorted(draws) == drawn
    lines = await ran(registry, hello_task(), hello_task(id="again"), distribution="coding_mix")
    assert {tuple(line["provenance"]["toolsets"]) for line in lines} <= draws


async def test_the_backend_opens_a_sandbox_that_leaves_nothing(example, tmp_path):
    async with open_sandbox("scratch", registry=example("backend"), lease_dir=tmp_path / "leases") as sandbox:
        root = Path(sandbox.workspace).parent
        assert (await sandbox.exec("echo hello > a; cat a; pwd")).output == f"hello\n{sandbox.workspace}\n"
    assert not root.exists()


def install(folder, distribution, entry_points):
    """Leave the metadata of an installed distribution in a folder."""
    info = folder / f"{distribution.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0.1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in entry_points.items())
    (info / "entry_points.txt").write_text(f"[hermes_core.plugins]\n{lines}")


@pytest.fixture
def package(tmp_path):
    """The package of the index, installed into a folder, which is returned; its tests lie there, too."""
    folder = tmp_path / "site"
    for path, text in files("README").items():
        target = folder / Path(*Path(path).parts[1:])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    for name in ("__init__.py", "py.typed"):
        (folder / "acme_loud" / name).touch()
    [project] = blocks(page("plugins/README.md"), "toml")
    project = tomllib.loads(project)["project"]
    install(folder, project["name"], project["entry-points"]["hermes_core.plugins"])
    return folder


async def test_the_package_of_the_index_is_found_by_its_entry_point(package, ran, monkeypatch):
    monkeypatch.syspath_prepend(str(package))
    registry = load_plugins(PluginSettings(), environ={})
    task = {"id": "a", "prompt": "Shout.", "solution": [], "answer": "DONE", "verifier": {"name": "loud"}}
    [line] = await ran(registry, task, enabled_toolsets=[])
    assert registry.component("verifier", "loud").plugin.id == "acme-loud:loud"
    assert line["reward"] == 1.0
    with pytest.raises(ConfigError, match="share") as refused:
        registry.create("verifier", "loud", {"share": "all", "token": "sk-1234567890"})
    assert "sk-1234567890" not in str(refused.value)


def test_the_doctor_finds_nothing_wrong_with_the_package_of_the_index(package, hermes):
    shown = hermes("plugins", "show", "verifier:loud", "--schema", env={"PYTHONPATH": str(package)})
    assert (shown.returncode, '"token"' in shown.stdout) == (0, True)
    report = hermes(
        "-p",
        "no:hermes-backend-ray",
        "plugins",
        "doctor",
        env={"PYTHONPATH": str(package), "HERMES_PLUGINS": "acme-loud"},
    )
    assert report.returncode == 0, report.stdout + report.stderr
    assert "acme-loud" in report.stdout


@pytest.fixture
def bench(package):
    """All examples with their tests in one folder, as an author has them."""
    for name in PAGES:
        module, found = module_of(name), files(name)
        is_package = name in PACKAGED
        target = package / module / "__init__.py" if is_package else package / f"{module}.py"
        target.parent.mkdir(exist_ok=True)
        target.write_text(found[f"{module}.py"])
        (package / f"test_{module}.py").write_text(found[f"test_{module}.py"])
        if is_package:
            (target.parent / "py.typed").touch()
            install(package, f"acme-{module.replace('_', '-')}", {module: module})
    return package


def run_tests(folder, *options):
    """Run the tests in a folder as their author does; returns the counts by their words."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--rootdir",
        str(folder),
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), "HOME": str(folder)}
    done = subprocess.run(
        [*command, *options, str(folder)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {word: int(count) for count, word in re.findall(r"(\d+) (passed|skipped|failed)", done.stdout)}


def test_every_example_passes_the_basics_of_its_suite(bench):
    counts = run_tests(bench, "-k", BASICS)
    assert counts["passed"] >= 3 * len(PAGES)


@pytest.mark.slow
def test_every_example_passes_all_of_its_suite(bench):
    assert run_tests(bench)["passed"] > 500
