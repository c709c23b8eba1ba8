"""The lease store that a config prefers is the one that a run's backend uses, whichever backend that is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hermes_core import PluginSettings, load_plugins
from hermes_core.contracts.leases import LeasingBackend
from hermes_core.rollout import supply_lease_store
from hermes_sandbox import LeaseBook, open_sandbox
from hermes_sandbox.backends import AgentBackend

STORE = '''
import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from hermes_core import hookimpl
from hermes_core.specs import LeaseStoreSpec
from hermes_sandbox import FileLeaseStore


@hookimpl
def hermes_lease_stores():
    return [LeaseStoreSpec(name="files", summary="Notes calls.", target="noting_leases:NotingLeases")]


class NotingLeases:
    """Notes each call in a file, and keeps the leases in a directory that hermes-sandbox does not know."""

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

        folder: Path = Field(default_factory=lambda: Path.home() / "noted")

    def __init__(self, options):
        self._notes = options.folder / "notes"
        self._store = FileLeaseStore.at(options.folder / "leases")
        options.folder.mkdir(exist_ok=True)

    @property
    def count(self):
        return self._store.count

    async def take(self, terms):
        await self._store.take(terms)
        self._note("take", terms.sandbox_id)

    async def amend(self, sandbox_id, handle):
        await self._store.amend(sandbox_id, handle)

    async def give_up(self, sandbox_id):
        await self._store.give_up(sandbox_id)
        self._note("give_up", sandbox_id)

    async def collect(self, registry):
        collected = await self._store.collect(registry)
        self._note("collect", *collected.removed)
        return collected

    def _note(self, *words):
        with self._notes.open("a") as file:
            file.write(json.dumps(words) + "\\n")
'''
SETTINGS = PluginSettings(extra=("./noting_leases.py",), prefer={"lease_store:files": "noting_leases"})
TASK = {
    "id": "hello",
    "prompt": "Write.",
    "solution": ["touch done"],
    "verifier": {"name": "exit_code", "options": {"command": "test -e done"}},
}
BACKENDS = {
    "local": {},
    "docker": {},
    "modal": {},
    "nomad": {},
    "ray": {},
    "singularity": {},
    "slurm": {},
    "ssh": {"host": "nowhere"},
    "pool": {"backends": [{"backend": "local", "options": {"slots_per_agent": 2}}]},
}
"""All shipped backends that lease, with the options that they cannot be made without."""

KILLED = """
import asyncio, os, signal
from hermes_core import PluginSettings, load_plugins
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.rollout import Runtime

async def own():
    settings = PluginSettings(extra=("./noting_leases.py",), prefer={"lease_store:files": "noting_leases"})
    async with Runtime(load_plugins(settings)) as runtime, runtime.open_sandbox(SandboxSpec()) as sandbox:
        print(sandbox.id, sandbox.workspace, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(own())
"""


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Write the plugin, with which runs in its folder lease."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    (tmp_path / "noting_leases.py").write_text(STORE)


@pytest.fixture
def run(store, hermes, tasks, tmp_path):
    """Run a task with the plugin, which the config prefers, and return what its store was asked."""
    config = {
        "tasks": str(tasks(TASK)),
        "model": "oracle",
        "plugins": {"extra": ["./noting_leases.py"], "prefer": {"lease_store:files": "noting_leases"}},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(config))

    def run_once(output):
        ended = hermes("run", "--config", "run.yaml", "--out", output)
        assert ended.returncode == 0, ended.stderr
        return [json.loads(line) for line in (tmp_path / "noted" / "notes").read_text().splitlines()]

    return run_once


def test_a_run_leases_in_the_store_that_its_config_prefers(run, tmp_path):
    notes = run("out")
    assert notes[0] == ["collect"]
    ids = [sandbox_id for word, *sandbox_id in notes if word == "take"]
    assert ids
    assert sorted(ids) == sorted(sandbox_id for word, *sandbox_id in notes if word == "give_up")
    assert not (tmp_path / ".local").exists()


def test_the_next_run_removes_through_it_what_a_killed_process_left(run, tmp_path):
    owner = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, capture_output=True, text=True, check=False)
    sandbox_id, workspace = owner.stdout.split()
    assert [lease.sandbox_id for lease in LeaseBook(tmp_path / "noted" / "leases").read()[0]] == [sandbox_id]
    assert ["collect", sandbox_id] in run("out")
    assert LeaseBook(tmp_path / "noted" / "leases").read() == ([], [])
    assert not (tmp_path / workspace).exists()


def test_without_a_preference_the_store_of_hermes_sandbox_is_used_and_told_once(store, hermes, tasks, tmp_path):
    """Commands without a config were refused, and told to write a line into the config that they do not take."""
    for words in (("tasks", "check", tasks(TASK)), ("run", tasks(TASK), "--model", "oracle", "--out", "out")):
        ended = hermes("-p", "./noting_leases.py", *words)
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr.count("leases are written to that of hermes-sandbox:sandbox") == 1
        assert 'prefer: {"lease_store:files": PLUGIN}' in ended.stderr
    assert (tmp_path / ".local" / "state" / "hermes-core" / "sandboxes").is_dir()
    assert not (tmp_path / "noted").exists()


async def test_a_registry_without_a_preference_opens_sandboxes_and_tells_it(store, caplog, tmp_path):
    registry = load_plugins(PluginSettings(extra=("./noting_leases.py",)))
    async with open_sandbox(registry=registry) as sandbox:
        leases = LeaseBook(tmp_path / ".local" / "state" / "hermes-core" / "sandboxes").read()[0]
        assert [lease.sandbox_id for lease in leases] == [sandbox.id]
    (record,) = caplog.records
    assert record.getMessage().startswith("lease_store 'files' is declared by hermes-sandbox:sandbox, local:noting")


def test_a_run_is_refused_if_nothing_chooses_between_stores_of_others(store, hermes, tasks, tmp_path):
    (tmp_path / "other_leases.py").write_text(STORE.replace("noting_leases", "other_leases"))
    stores = ("-p", "./noting_leases.py", "-p", "./other_leases.py", "-p", "no:hermes-sandbox")
    ended = hermes(*stores, "run", tasks(TASK), "--model", "oracle", "--backend", "docker", "--out", "out")
    assert ended.returncode == 2, ended.stderr
    assert 'prefer: {"lease_store:files": "local:noting_leases"}' in ended.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", BACKENDS)
async def test_every_shipped_backend_leases_in_the_store_that_is_preferred(store, name):
    registry = load_plugins(SETTINGS)
    backend = registry.create("backend", name, BACKENDS[name])
    assert isinstance(backend, LeasingBackend)
    assert type(supply_lease_store(backend, registry, name)).__name__ == "NotingLeases"
    assert isinstance(backend, AgentBackend)
    assert backend.lease_store is backend.leases
    assert all(member.backend.leases is backend.leases for member in getattr(backend, "members", ()))
    await backend.aclose()


async def test_a_store_that_an_application_chose_before_is_not_replaced(store, tmp_path):
    registry = load_plugins(SETTINGS)
    backend = registry.create("backend", "local")
    backend.lease_dir = tmp_path / "leases"
    own = backend.leases
    assert supply_lease_store(backend, registry, "local") is own
    assert backend.lease_dir == tmp_path / "leases"
    await backend.aclose()
