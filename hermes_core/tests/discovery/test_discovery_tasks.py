"""Which task source reads a path, and what is said where none does."""

from __future__ import annotations

import pytest

from hermes_core.contracts.errors import ConfigError, PluginError
from hermes_core.discovery import PluginSettings, Registry
from hermes_core.discovery.hooks import HookManager
from hermes_core.discovery.tasks import load_tasks

WORDS = """
@hookimpl
def hermes_task_sources():
    return [TaskSourceSpec(name="words", summary="A task a word.", target="SELF:Words", suffixes=(".words",))]

class Words:
    def read(self, path):
        from hermes_core.contracts.task import Task
        from hermes_core.contracts.task import LoadedTasks

        words = enumerate(path.read_text().split())
        return LoadedTasks(tasks=tuple(Task(id=word, messages=(), source=f"{path}:{n}") for n, word in words))
"""


@pytest.fixture
def path(tmp_path):
    written = tmp_path / "tasks.words"
    written.write_text("one two one")
    return written


def test_the_source_that_claims_the_ending_reads_the_file(site, load, path):
    site.install("acme-words", WORDS)
    loaded = load_tasks(path, load("acme-words"))
    assert [task.id for task in loaded.tasks] == ["one", "two"]
    assert [str(problem) for problem in loaded.problems] == [
        f"{path}:2: task 'one': this id is taken by the task at {path}:0; ids must be unique"
    ]


def test_an_ending_that_two_plugins_claim_is_an_error_that_names_both(site, load, path):
    site.install("acme-words", WORDS)
    site.install("lab-words", WORDS.replace('"words"', '"letters"'))
    with pytest.raises(PluginError, match="letters, words"):
        load_tasks(path, load("acme-words", "lab-words"))


def test_an_ending_that_no_plugin_claims_names_those_that_are_claimed(site, load, path):
    site.install("acme-words", WORDS)
    other = path.rename(path.with_suffix(".csv"))
    with pytest.raises(ConfigError, match=r"expected \.words \(words\), got \.csv"):
        load_tasks(other, load("acme-words"))
    assert load_tasks(other, load("acme-words"), source="words").tasks


def test_without_any_task_source_the_package_to_install_is_named(path):
    empty = Registry([], HookManager(), settings=PluginSettings(), environ={})
    with pytest.raises(ConfigError, match=r"no task source is loaded.*\n.*pip install hermes-runner$"):
        load_tasks(path, empty)


def test_a_package_that_is_installed_and_not_admitted_is_to_be_admitted(site, load, path):
    site.install("hermes-runner", WORDS)
    site.install("acme-words", "")
    with pytest.raises(ConfigError, match=r"hermes-runner has it, and is .*; admit hermes-runner in HERMES_PLUGINS"):
        load_tasks(path, load("acme-words"))


def test_a_package_that_is_installed_and_broken_is_to_be_looked_at(site, load, path):
    site.install("hermes-runner", "raise RuntimeError('boom')")
    with pytest.raises(ConfigError, match="is installed; see: hermes-core plugins show hermes-runner"):
        load_tasks(path, load("hermes-runner"))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise KeyError('id')", "KeyError: 'id'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("return None", "AttributeError: 'NoneType'"),
    ],
)
def test_a_source_that_raises_is_told_with_its_plugin(site, load, path, body, said):
    """It was a raw traceback without the plugin's name."""
    site.install("acme-words", WORDS.partition("        from hermes_core")[0] + f"        {body}\n")
    with pytest.raises(PluginError) as caught:
        load_tasks(path, load("acme-words"))
    assert caught.value.message.startswith(f"task source 'words' of plugin acme-words:words raised {said}")
    assert "--debug prints the traceback" in str(caught.value.hint)
    assert caught.value.__cause__ is not None


def test_what_a_source_says_itself_stays_as_it_is(site, load, path):
    body = "from hermes_core.contracts.errors import ConfigError; raise ConfigError('no words today')"
    site.install("acme-words", WORDS.partition("        from hermes_core")[0] + f"        {body}\n")
    with pytest.raises(ConfigError, match=r"^no words today$"):
        load_tasks(path, load("acme-words"))
