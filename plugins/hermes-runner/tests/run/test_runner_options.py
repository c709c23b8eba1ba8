"""Options of a stranger's tool, model and task source, set by the run's config."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import pytest
from pydantic import BaseModel, ConfigDict, SecretStr
from rollout_script import Script, call, calls, says

from hermes_core.cli import main
from hermes_core.contracts.errors import BrokenComponentError, ConfigError, HermesError
from hermes_core.contracts.task import LoadedTasks, Task
from hermes_core.contracts.tool import ToolResult
from hermes_core.discovery import PluginSettings, load_plugins
from hermes_core.specs import CommandSpec, ModelSpec, TaskSourceSpec, ToolSpec
from hermes_runner.config import RunConfig
from hermes_runner.run.config_redaction import redact_settings, secret_texts
from hermes_runner.run.run import Run

TOOL = ToolSpec(
    name="greet",
    summary="Greet.",
    description="Greet.",
    target="test:Greet",
    parameters={"type": "object", "properties": {}},
    toolset="greeting",
    needs_sandbox=False,
    side_effects="none",
)
MODEL = ModelSpec(name="caller", summary="Calls.", target="test:Caller", embedded=True)
SOURCE = TaskSourceSpec(name="one", summary="One task.", target="test:OneTask", suffixes=(".one",))


class Greet:
    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

        word: str
        key: SecretStr | None = None

    made = 0

    def __init__(self, options):
        self._word = options.word
        type(self).made += 1

    async def call(self, arguments, context):
        return ToolResult(content=self._word)


class Caller:
    class Options(BaseModel):
        answer: str = "none"

    def __init__(self, options):
        self._answer = options.answer

    def client(self, settings):
        del settings
        return Script(*[calls(call("greet")), says(self._answer)] * 4)


class OneTask:
    class Options(BaseModel):
        prompt: str = "none"

    def __init__(self, options):
        self._prompt = options.prompt

    def read(self, path):
        messages = ({"role": "user", "content": self._prompt},)
        return LoadedTasks(tasks=(Task(id="a", messages=messages, source=str(path)),))


ODD_TOOLSET = """
from hermes_core import hookimpl
from hermes_core.specs import ToolsetSpec

@hookimpl
def hermes_toolsets():
    return [ToolsetSpec(name="odd", summary="s", tools=("\\x1b[31mred",))]
"""
OPTIONS = {
    "tool": {"greet": {"word": "hello", "key": "s3cret-key"}},
    "model": {"caller": {"answer": "goodbye"}},
    "task_source": {"one": {"prompt": "Say hello."}},
}


@pytest.fixture
def strangers(registry):
    for spec, target in ((TOOL, Greet), (MODEL, Caller), (SOURCE, OneTask)):
        registry = registry.with_component(spec, target)
    return registry


@pytest.fixture
def config(tmp_path):
    (tmp_path / "tasks.one").write_text("")

    def parse(options):
        given = {"tasks": str(tmp_path / "tasks.one"), "out": str(tmp_path / "out"), "model": "caller"}
        return RunConfig.parse({**given, "enabled_toolsets": ["greeting"], "options": options}, source="the test")

    return parse


async def test_a_config_sets_options_of_a_tool_a_model_and_a_task_source(strangers, config):
    result = await Run(config(OPTIONS), strangers, stream=io.StringIO()).execute()
    line = (result.folder / "rollouts.jsonl").read_text()
    prompt, _, answer, last = json.loads(line)["messages"]
    assert (prompt["content"], answer["content"], last["content"]) == ("Say hello.", "hello", "goodbye")
    files = [path.read_text() for path in result.folder.iterdir() if path.is_file()]
    assert not any("s3cret-key" in text for text in files)


def test_a_secret_option_is_neither_shown_nor_told(strangers, config):
    shown = redact_settings(config(OPTIONS), strangers)["options"]["tool"]["greet"]
    assert shown == {"word": "hello", "key": "(withheld)"}
    assert secret_texts(config(OPTIONS), strangers) == {"s3cret-key"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tool": {"greet": {"wrod": "x"}}}, r"options\.tool\.greet: tool:greet has no option 'wrod'"),
        ({"tool": {"greet": {"word": ["x"]}}}, r"options\.tool\.greet: the options of tool:greet are wrong: word"),
        ({"model": {"calller": {}}}, r"options\.model\.calller: no loaded plugin declares model 'calller'"),
        (
            {"task_source": {"hermes-runner:jsonl": {}}},
            r"(?s)options\.task_source: expected the name 'jsonl'.*\{task_source:jsonl: hermes-runner",
        ),
    ],
)
async def test_a_wrong_option_stops_the_run_before_it_begins_with_its_field(strangers, config, options, said):
    with pytest.raises(ConfigError, match=said):
        await Run(config(options), strangers, stream=io.StringIO()).execute()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("backend", "got 'backend', whose options are in backend_options or backends"),
        ("cli_command", "got 'cli_command', whose options are in the arguments of the command"),
        ("tol", "options: expected tool or model or task_source, got 'tol'"),
    ],
)
def test_options_of_another_kind_are_refused_with_their_place(config, kind, said):
    with pytest.raises(ConfigError, match=said):
        config({kind: {"x": {}}})


@pytest.mark.parametrize("options", [{"tol": {"x": 1}}, {"tol": 1}, {"tool": {}, "tol": []}])
def test_the_kind_of_options_is_checked_before_their_shape(config, options):
    with pytest.raises(ConfigError, match="options: expected tool or model or task_source, got 'tol'"):
        config(options)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"tool": 1}, "options.tool: expected a mapping, got int"), ([], "options: expected a mapping, got list")],
)
def test_options_of_the_wrong_shape_are_told_in_words(config, options, said):
    with pytest.raises(ConfigError, match=said):
        config(options)


def test_the_flag_takes_the_same_options(tmp_path, capsys):
    (tmp_path / "tasks.jsonl").write_text("")
    given = json.dumps({"model": {"oracle": {}}})
    assert main(["run", str(tmp_path / "tasks.jsonl"), "--options", given, "--print-config"], environ={}) == 0
    assert "options:\n  model:\n    oracle: {}\n" in capsys.readouterr().out


def test_a_key_that_a_flag_has_twice_is_refused(capsys):
    assert main(["run", "t.jsonl", "--options", '{"tool": {}, "tool": {}}'], environ={}) == 2
    said = '--options: expected a JSON object, got text that cannot be read: the key "tool" occurs twice in one object'
    assert said in capsys.readouterr().err


async def test_tools_that_are_not_offered_and_names_without_effect_are_told_once_at_the_start(strangers, config):
    toolsets = {"enabled_toolsets": ["greeting", "web"]}
    settings = config(OPTIONS).model_copy(update={"group_size": 2, "backends": {"acme_farm": {}}, **toolsets})
    stream = io.StringIO()
    result = await Run(settings, strangers, stream=stream).execute()
    why = "web: none of its tools is installed: web_search, web_extract"
    before = stream.getvalue().partition("2 rollouts\n")[0].splitlines()
    assert before == [
        "backends: no plugin here declares backend 'acme_farm', so it has no effect",
        f"not offered to the model: {why}",
    ]
    assert result.summary["run"]["skipped_toolsets"] == [why]


async def test_names_of_tools_that_are_not_offered_reach_the_terminal_without_control_characters(tmp_path, config):
    (tmp_path / "odd.py").write_text(ODD_TOOLSET)
    registry = load_plugins(PluginSettings(extra=(str(tmp_path / "odd.py"),)), environ={})
    for spec, target in ((TOOL, Greet), (MODEL, Caller), (SOURCE, OneTask)):
        registry = registry.with_component(spec, target)
    stream = io.StringIO()
    settings = config(OPTIONS).model_copy(update={"enabled_toolsets": ["greeting", "odd"]})
    await Run(settings, registry, stream=stream).execute()
    assert "not offered to the model: odd: none of its tools is installed: \\x1b[31mred\n" in stream.getvalue()
    assert "\x1b[31mred" not in stream.getvalue()


async def test_a_tool_with_options_is_made_once_for_all_rollouts(strangers, config):
    Greet.made = 0
    settings = config(OPTIONS).model_copy(update={"group_size": 4, "max_concurrent": 1})
    await Run(settings, strangers, stream=io.StringIO()).execute()
    assert Greet.made == 2  # once to check the options, once for the runtime


def test_a_command_with_options_is_broken(strangers):
    target = SimpleNamespace(Options=BaseModel, configure=lambda parser: None, run=lambda arguments: 0)
    with pytest.raises(BrokenComponentError, match="it declares Options, which nothing sets: a command has arguments"):
        strangers.with_component(CommandSpec(name="odd", summary="Odd.", target="test:odd"), target)


def test_every_error_of_options_is_the_users(config):
    with pytest.raises(HermesError) as caught:
        config({"sink": {"events": {"max_events": 1}}})
    assert caught.value.blame == "user"
