"""The suite every lease store passes: when its process is killed, others find its leases."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from pydantic import SecretStr

from hermes_core.contracts.leases import Collected, LeaseStore, LeaseTerms
from hermes_testing.registries import isolated_registry
from hermes_testing.suites import lease_backend
from hermes_testing.suites.base import ComponentSuite
from hermes_testing.suites.lease_backend import NAME, REFUSES, NotingOptions

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

SECRET_KEY = "sk-never-in-a-lease"  # noqa: S105 - made up
_OWNER = """
import asyncio, json, sys
from hermes_core.contracts.leases import LeaseTerms
from hermes_testing import isolated_registry
from hermes_testing.suites.lease_backend import NotingOptions

async def own(plugin, component, options, steps):
    store = isolated_registry(plugin).create("lease_store", component, options)
    for name, arguments in steps:
        if name == "take" or name == "cancel":
            terms = LeaseTerms(**{**arguments, "options": NotingOptions(**arguments["options"])})
            taking = asyncio.ensure_future(store.take(terms))
            if name == "cancel":
                await asyncio.sleep(0)
                if not taking.cancel():  # it was quicker
                    await store.give_up(terms.sandbox_id)
            await asyncio.wait((taking,))
            name == "cancel" or taking.result()
        else:
            await getattr(store, name)(*arguments)
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(own(*json.loads(sys.argv[1])))
"""
"""A process that uses its own store, and then waits to be killed."""


class LeaseStoreSuite(ComponentSuite):
    """Behaviour of a lease store, with killed processes, and a backend that records what it reclaims.

    Set `plugin` and `component`, and implement `options_at`, so that each test writes leases to a different place.
    """

    kind = "lease_store"

    def options_at(self, folder: Path) -> Mapping[str, Any]:
        """Return options, as plain JSON values, that write leases to the place named by `folder`."""
        raise NotImplementedError

    @pytest.fixture
    def registry(self) -> Registry:
        """A registry with this plugin, and the backend that records what it reclaims."""
        return isolated_registry(self.plugin, lease_backend.__name__)

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """The folder for the backend's records."""
        path = tmp_path / "notes"
        path.mkdir()
        return path

    async def test_a_lease_is_held_until_it_is_given_up(self, registry: Registry, tmp_path: Path, folder: Path) -> None:
        """`count` is the number of this object's leases."""
        store = self._store(registry, tmp_path)
        other = self._store(registry, tmp_path)
        assert store.count == 0
        await store.take(_terms("s1", folder))
        await store.take(_terms("s2", folder))
        assert (store.count, other.count) == (2, 0)
        await store.give_up("s1")
        assert store.count == 1
        await store.give_up("s2")
        assert store.count == 0

    async def test_giving_up_what_is_not_there_is_fine(self, registry: Registry, tmp_path: Path, folder: Path) -> None:
        """Whether it ever existed or not."""
        store = self._store(registry, tmp_path)
        await store.give_up("never")
        await store.take(_terms("s1", folder))
        await store.give_up("s1")
        await store.give_up("s1")
        assert store.count == 0

    async def test_nothing_is_there_at_first(self, registry: Registry, tmp_path: Path) -> None:
        """Collecting is the first step of a run."""
        assert await self._store(registry, tmp_path).collect(registry) == Collected()

    async def test_what_lives_is_never_collected(self, registry: Registry, tmp_path: Path, folder: Path) -> None:
        """Neither by its own store nor by another one, however old its lease is."""
        store = self._store(registry, tmp_path)
        await store.take(_terms("s1", folder, lifetime=0.0))
        for one in (store, self._store(registry, tmp_path)):
            assert (await one.collect(registry)).removed == []
        assert (_notes(folder), store.count) == ([], 1)
        await store.give_up("s1")

    async def test_what_a_killed_process_leased_is_collected(
        self, registry: Registry, tmp_path: Path, folder: Path
    ) -> None:
        """Once, by the handle in the lease, with the backend's options."""
        await self._kill_owner_after(
            tmp_path, ("take", _lease_fields("s1", folder)), ("take", _lease_fields("s2", folder))
        )
        store = self._store(registry, tmp_path)
        found = await store.collect(registry)
        assert (sorted(found.removed), found.failed) == (["s1", "s2"], {})
        assert sorted(note["handle"]["place"] for note in _notes(folder)) == ["place of s1", "place of s2"]
        assert (await store.collect(registry)).removed == []
        assert len(_notes(folder)) == 2

    async def test_the_living_keep_theirs_beside_the_dead(
        self, registry: Registry, tmp_path: Path, folder: Path
    ) -> None:
        """Each lease is judged separately."""
        await self._kill_owner_after(tmp_path, ("take", _lease_fields("dead", folder)))
        store = self._store(registry, tmp_path)
        await store.take(_terms("living", folder))
        assert (await store.collect(registry)).removed == ["dead"]
        await store.give_up("living")

    async def test_two_that_collect_at_once_reclaim_each_sandbox_once(
        self, registry: Registry, tmp_path: Path, folder: Path
    ) -> None:
        """Several runs may start at the same time."""
        await self._kill_owner_after(tmp_path, *(("take", _lease_fields(f"s{number}", folder)) for number in range(8)))
        stores = [self._store(registry, tmp_path) for _ in range(4)]
        found = await asyncio.gather(*(store.collect(registry) for store in stores))
        removed = sorted(sandbox_id for one in found for sandbox_id in one.removed)
        assert removed == sorted({note["handle"]["place"].removeprefix("place of ") for note in _notes(folder)})
        assert (removed, len(_notes(folder))) == ([f"s{number}" for number in range(8)], 8)

    async def test_what_cannot_be_reclaimed_keeps_its_lease(
        self, registry: Registry, tmp_path: Path, folder: Path
    ) -> None:
        """The result says why; a later attempt may succeed."""
        await self._kill_owner_after(tmp_path, ("take", _lease_fields("s1", folder)))
        store = self._store(registry, tmp_path)
        (folder / REFUSES).touch()
        found = await store.collect(registry)
        assert (found.removed, list(found.failed)) == ([], ["s1"])
        assert "it refuses" in found.failed["s1"]
        (folder / REFUSES).unlink()
        assert (await store.collect(registry)).removed == ["s1"]

    async def test_what_was_given_up_is_not_collected(self, registry: Registry, tmp_path: Path, folder: Path) -> None:
        """Its owner has removed it."""
        await self._kill_owner_after(tmp_path, ("take", _lease_fields("s1", folder)), ("give_up", ["s1"]))
        assert (await self._store(registry, tmp_path).collect(registry)).removed == []

    async def test_an_amended_handle_is_the_one_that_is_reclaimed(
        self, registry: Registry, tmp_path: Path, folder: Path
    ) -> None:
        """The location of a sandbox may become known only after its lease was written."""
        amended = ("amend", ["s1", {"place": "elsewhere"}])
        await self._kill_owner_after(tmp_path, ("take", _lease_fields("s1", folder)), amended)
        await self._store(registry, tmp_path).collect(registry)
        assert [note["handle"] for note in _notes(folder)] == [{"place": "elsewhere"}]

    async def test_amending_what_is_not_held_writes_nothing(
        self, registry: Registry, tmp_path: Path, folder: Path
    ) -> None:
        """It would be a lease without an owner."""
        amended = ("amend", ["s1", {"place": "elsewhere"}])
        await self._kill_owner_after(tmp_path, ("take", _lease_fields("s1", folder)), ("give_up", ["s1"]), amended)
        assert await self._store(registry, tmp_path).collect(registry) == Collected()

    async def test_taking_that_is_cancelled_leaves_no_lease(
        self, registry: Registry, tmp_path: Path, folder: Path
    ) -> None:
        """No sandbox is created then."""
        await self._kill_owner_after(tmp_path, ("cancel", _lease_fields("s1", folder)))
        assert await self._store(registry, tmp_path).collect(registry) == Collected()

    async def test_secrets_of_the_options_are_not_written(
        self, registry: Registry, tmp_path: Path, folder: Path
    ) -> None:
        """And not passed to the backend that is created from the lease."""
        given = _lease_fields("s1", folder)
        given["options"]["key"] = SECRET_KEY
        await self._kill_owner_after(tmp_path, ("take", given))
        assert not any(SECRET_KEY.encode() in text for text in _contents(tmp_path))
        assert (await self._store(registry, tmp_path).collect(registry)).removed == ["s1"]
        assert [note["has_key"] for note in _notes(folder)] == [False]

    def _options(self, tmp_path: Path) -> dict[str, Any]:
        return {**self.options, **self.options_at(tmp_path / "leases")}

    def _store(self, registry: Registry, tmp_path: Path) -> LeaseStore:
        made = registry.create(self.kind, self.component, self._options(tmp_path))
        return cast("LeaseStore", made)

    async def _kill_owner_after(self, tmp_path: Path, *steps: tuple[str, Any]) -> None:
        """Run the steps in another process, and kill it."""
        given = json.dumps([self.plugin, self.component, self._options(tmp_path), steps])
        owner = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _OWNER, given, stdout=asyncio.subprocess.PIPE, env=dict(os.environ)
        )
        assert owner.stdout is not None
        try:
            ready = await owner.stdout.readline()
        finally:
            if owner.returncode is None:
                owner.kill()
            await owner.wait()
        assert ready == b"ready\n"


def _lease_fields(sandbox_id: str, folder: Path) -> dict[str, Any]:
    return {
        "sandbox_id": sandbox_id,
        "backend": NAME,
        "handle": {"place": f"place of {sandbox_id}"},
        "options": {"folder": str(folder)},
    }


def _terms(sandbox_id: str, folder: Path, **fields: Any) -> LeaseTerms:
    options = NotingOptions(folder=folder, key=SecretStr(SECRET_KEY))
    return LeaseTerms(**{**_lease_fields(sandbox_id, folder), **fields, "options": options})


def _contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


def _notes(folder: Path) -> list[dict[str, Any]]:
    path = folder / "notes"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
