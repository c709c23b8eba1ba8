"""Promises to a stranger whose backend leases its sandboxes without our base class: what it leaves is removed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import textwrap

import pytest

from hermes_core.cli import main
from hermes_core.contracts.leases import LeaseTerms
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.discovery import PluginSettings, load_plugins
from hermes_core.rollout import Runtime
from hermes_core.specs import Ref
from hermes_sandbox import open_sandbox
from hermes_sandbox.leases.book import LeaseBook, default_lease_dir
from hermes_sandbox.leases.file_store import FileLeaseStore, lease_in_files
from hermes_testing.suites.backend.endings import assert_nothing_opens_without_a_lease

PLUGIN = """
import uuid
from pathlib import Path

from pydantic import BaseModel

from hermes_core.contracts.leases import LeaseTerms
from hermes_core.contracts.sandbox import ExecResult
from hermes_core.hookspecs import hookimpl
from hermes_core.specs import BackendSpec


@hookimpl
def hermes_backends():
    return [BackendSpec(name="folders", summary="A folder each.", target="stranger_folders:Folders", is_remote=True)]


class Options(BaseModel):
    parent: Path


class Folders:
    Options = Options

    def __init__(self, options):
        self.options, self.leases = options, None

    def lease_with(self, store):
        self.leases = store

    async def check(self, spec):
        async with await self.open(spec):
            pass

    async def open(self, spec):
        folder = self.options.parent / uuid.uuid4().hex
        terms = LeaseTerms(
            sandbox_id=folder.name, backend="folders", handle={"folder": str(folder)}, options=self.options
        )
        await self.leases.take(terms)
        folder.mkdir()
        return Folder(folder, self.leases)

    async def reclaim(self, handle):
        folder = Path(handle["folder"])
        if (folder / "breaks").exists():
            raise RuntimeError("not today")
        if folder.exists():
            folder.rmdir()

    async def sweep(self, *, remove=True):
        return []

    async def aclose(self):
        pass


class Folder:
    provenance = {"backend": "folders"}

    def __init__(self, folder, leases):
        self.folder, self.leases, self.id = folder, leases, folder.name

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.aclose()

    async def exec(self, command, **_):
        return ExecResult(exit_code=0)

    async def aclose(self):
        self.folder.rmdir()
        await self.leases.give_up(self.id)
"""
OWNER = """
import asyncio, json, sys
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.discovery import PluginSettings, load_plugins
from hermes_core.rollout.runtime import Runtime
from hermes_core.specs import Ref

async def own(options):
    registry = load_plugins(PluginSettings(extra=("stranger_folders",)))
    async with Runtime(registry, backend=Ref(kind="backend", name="folders", options=options)) as runtime:
        async with runtime.open_sandbox(SandboxSpec()) as sandbox:
            print(sandbox.id, flush=True)
            await asyncio.Event().wait()

asyncio.run(own(json.loads(sys.argv[1])))
"""


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """Put the stranger's module on the path, and return the options of its backend."""
    (tmp_path / "stranger_folders.py").write_text(textwrap.dedent(PLUGIN))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # What other dead owners left in the machine's own is not this test's.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    parent = tmp_path / "folders"
    parent.mkdir()
    yield {"parent": str(parent)}
    sys.modules.pop("stranger_folders", None)


@pytest.fixture
def registry(stranger):
    return load_plugins(PluginSettings(extra=("stranger_folders",)))


async def killed_owner(options, tmp_path):
    """Open a sandbox in a process that is killed then, and return its id."""
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, json.dumps(options), stdout=asyncio.subprocess.PIPE, env=environ
    )
    sandbox_id = (await owner.stdout.readline()).decode().strip()
    owner.kill()
    await owner.wait()
    assert sandbox_id
    return sandbox_id


async def test_a_strangers_sandbox_has_a_lease_for_as_long_as_it_is_open(stranger, registry):
    async with Runtime(registry, backend=Ref(kind="backend", name="folders", options=stranger)) as runtime:
        async with runtime.open_sandbox(SandboxSpec()) as sandbox:
            (lease,) = LeaseBook(default_lease_dir()).read()[0]
            assert (lease.sandbox_id, lease.backend, lease.owner()) == (sandbox.id, "folders", "alive")
            assert (lease.options, runtime.leases.count) == (stranger, 1)
        assert (LeaseBook(default_lease_dir()).read(), runtime.leases.count) == (([], []), 0)


async def test_what_a_killed_process_left_of_a_strangers_backend_is_collected(stranger, tmp_path, capsys):
    sandbox_id = await killed_owner(stranger, tmp_path)
    assert [path.name for path in (tmp_path / "folders").iterdir()] == [sandbox_id]
    assert await asyncio.to_thread(main, ["-p", "stranger_folders", "sandboxes", "gc"]) == 0
    assert capsys.readouterr().out == f"removed {sandbox_id}\n"
    assert list((tmp_path / "folders").iterdir()) == []
    assert LeaseBook(default_lease_dir()).read() == ([], [])


async def test_a_backend_that_breaks_over_one_keeps_no_other_from_being_collected(stranger, registry, tmp_path):
    broken, other = await killed_owner(stranger, tmp_path), await killed_owner(stranger, tmp_path)
    (tmp_path / "folders" / broken / "breaks").touch()
    found = await FileLeaseStore().collect(registry)
    assert found.removed == [other]
    assert found.failed == {broken: "backend 'folders' raised RuntimeError: not today"}


@pytest.mark.parametrize("command", [("doctor", "folders"), ("sandboxes", "probe", "folders")])
def test_a_strangers_backend_is_tried_with_where_to_lease(stranger, capsys, command):
    options = ["--backend-options", json.dumps(stranger)]
    main(["-p", "stranger_folders", *command, *options])
    assert "works" in capsys.readouterr().out
    assert LeaseBook(default_lease_dir()).read() == ([], [])


async def test_what_cannot_be_read_is_told_although_nothing_is_dead(registry):
    store = FileLeaseStore()
    store.book.directory.mkdir(parents=True)
    (store.book.directory / "torn.json").write_text("{")
    found = await store.collect(registry)
    assert (found.removed, found.failed) == ([], {})
    assert "torn.json is not a lease" in found.problems[0]


async def test_a_lease_is_given_up_where_it_was_taken(stranger, tmp_path, monkeypatch):
    store = FileLeaseStore()
    await store.take(LeaseTerms(sandbox_id="s1", backend="folders", handle={}))
    before = default_lease_dir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    await store.give_up("s1")
    assert LeaseBook(before).read() == ([], [])


async def test_the_suite_tells_a_strangers_backend_that_leases_from_one_that_does_not(registry, stranger, monkeypatch):
    backend = registry.create("backend", "folders", stranger)
    lease_in_files(backend)
    await assert_nothing_opens_without_a_lease(backend, SandboxSpec(), monkeypatch)

    async def open_unleased(spec):
        return None

    monkeypatch.setattr(backend, "open", open_unleased)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        await assert_nothing_opens_without_a_lease(backend, SandboxSpec(), monkeypatch)


async def test_the_next_run_removes_what_a_killed_one_left(stranger, registry, tmp_path):
    sandbox_id = await killed_owner(stranger, tmp_path)
    async with Runtime(registry, backend=Ref(kind="backend", name="folders", options=stranger)) as runtime:
        _ = runtime.backend
        assert (await runtime.leases.collect(registry)).removed == [sandbox_id]
    assert list((tmp_path / "folders").iterdir()) == []


async def test_a_sandbox_of_a_strangers_backend_is_opened_with_leases_in_a_directory(stranger, registry, tmp_path):
    leases = tmp_path / "leases"
    async with open_sandbox("folders", options=stranger, registry=registry, lease_dir=leases) as sandbox:
        assert [lease.sandbox_id for lease in LeaseBook(leases).read()[0]] == [sandbox.id]
    assert LeaseBook(leases).read() == ([], [])
