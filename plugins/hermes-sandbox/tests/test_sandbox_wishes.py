"""Limits that a task only wishes for, and users that it names, where a backend has neither."""

from __future__ import annotations

import asyncio
import os

import pytest
from sandbox_support import backend, require

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.local import files

TOLD = "disk is not limited as tasks wish"


async def test_what_cannot_be_enforced_is_left_out_said_once_and_recorded(caplog):
    wish = SandboxSpec(isolation="none", disk_mb=8, wishes=("disk_mb",))
    async with backend() as made:
        await made.check(wish)
        for opened in await asyncio.gather(made.open(wish), made.open(wish)):
            async with opened as sandbox:
                assert (await sandbox.exec("head -c 20M /dev/zero >f; stat -c %s f")).output == f"{20 << 20}\n"
                assert sandbox.provenance["limits"]["disk"].startswith("none: ")
                assert "disk_mb at isolation 'none'" in sandbox.provenance["limits"]["disk"]
        async with await made.open(SandboxSpec(isolation="none")) as sandbox:
            assert "disk" not in sandbox.provenance["limits"]
    (told,) = [record.getMessage() for record in caplog.records if TOLD in record.getMessage()]
    assert "set sandbox.disk_mb in the run's config" in told


async def test_what_can_be_enforced_is(caplog):
    require("bwrap")
    if os.geteuid() != 0:
        pytest.skip("only root can limit a disk")
    async with (
        backend() as made,
        await made.open(SandboxSpec(isolation="bwrap", disk_mb=8, wishes=("disk_mb",))) as sandbox,
    ):
        assert sandbox.provenance["limits"]["disk"] == "tmpfs"
    assert TOLD not in caplog.text


async def test_what_turns_out_when_the_place_is_made_is_left_out_as_well(monkeypatch):
    require("bwrap")

    def fails(*_):
        raise PermissionError("only root may mount")

    monkeypatch.setattr(files, "mount_sized", fails)
    async with backend() as made:
        with pytest.raises(SandboxRefusedError, match="disk_mb cannot be enforced here"):
            await made.open(SandboxSpec(isolation="bwrap", disk_mb=8))
        async with await made.open(SandboxSpec(isolation="bwrap", disk_mb=8, wishes=("disk_mb",))) as sandbox:
            assert "only root may mount" in sandbox.provenance["limits"]["disk"]


async def test_a_refusal_for_another_reason_stays_one(caplog):
    async with backend() as made:
        for refuse in (made.check, made.open):
            with pytest.raises(SandboxRefusedError, match="image 'debian'"):
                await refuse(SandboxSpec(image="debian", disk_mb=8, wishes=("disk_mb",)))
    assert TOLD not in caplog.text


@pytest.mark.parametrize("wishes", [("image",), ("disk_mb",), ()])
async def test_only_limits_are_left_out(wishes):
    async with backend() as made:
        with pytest.raises(SandboxRefusedError, match="image 'debian'"):
            await made.check(SandboxSpec(image="debian", wishes=wishes))


@pytest.mark.parametrize("user", ["agent", "1000", "root"])
async def test_a_user_is_refused_where_commands_cannot_be_another_one_s(user):
    async with backend() as made:
        for refuse in (made.check, made.open):
            with pytest.raises(SandboxRefusedError, match=f"user '{user}'") as caught:
                await refuse(SandboxSpec(user=user))
            assert "docker" in caught.value.hint


async def test_who_follows_no_image_takes_no_notice():
    async with backend() as made, await made.open(SandboxSpec(as_image=True)) as sandbox:
        assert (await sandbox.exec("pwd")).output == f"{sandbox.workspace}\n"
