"""File calls and copies of slots that have users of their own, under an agent that is root."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest
from copied_trees import litter, look
from sandbox_support import UID, slot_fields

from hermes_sandbox.agent.file_access.archive_format import DIRECTORY, FILE, entry_record
from hermes_sandbox.backends import PYTHON_FLAGS
from hermes_sandbox.protocol.agent_process import AgentProcess
from hermes_sandbox.protocol.client import AgentClient
from hermes_sandbox.protocol.slots import AgentSlot
from hermes_sandbox.protocol.transfers import archive, download, upload

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a slot a user of its own")


@pytest.fixture
def room():
    """A directory that every user can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="hermes-test-") as name:
        Path(name).chmod(0o755)
        (Path(name) / "private").mkdir(mode=0o700)
        (Path(name) / "private" / "secret").write_text("secret")
        (Path(name) / "secret").write_text("secret")
        (Path(name) / "secret").chmod(0o600)
        yield Path(name)
        assert (Path(name) / "secret").read_text() == (Path(name) / "private" / "secret").read_text() == "secret"
        assert [*look(Path(name) / "private")] == ["secret", "."]


@pytest.fixture
async def slot(room):
    process = await AgentProcess.start([sys.executable, *PYTHON_FLAGS], environment={"PATH": "/usr/bin:/bin"})
    client = await AgentClient.connect(process.stream, {"marker": "m", "limits": {}}, timeout=60)
    fields = slot_fields(room / "workspace", uid=UID, umask=0o027)
    yield await AgentSlot.open(client, fields, exclusive=False)
    await client.aclose()
    await process.end(60)


async def test_what_is_sent_belongs_to_the_user(slot, room, tmp_path):
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    (tmp_path / "tree" / "sub" / "f").write_text("x")
    await upload(slot, tmp_path / "tree", "new/tree")
    await upload(slot, tmp_path / "tree" / "sub" / "f", "f")
    owners = {path.lstat().st_uid for path in (room / "workspace").rglob("*")}
    assert owners == {UID}
    assert (room / "workspace" / "new").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("way", ["secret", "private/secret", "private"])
async def test_a_symlink_leads_a_copy_nowhere_that_the_user_could_not_go(slot, room, tmp_path, way):
    """The agent can go everywhere; what it does for a slot it does as the slot's user."""
    link = room / "workspace" / "link"
    link.symlink_to(room / way)
    with pytest.raises(PermissionError):
        await download(slot, "link", tmp_path / "got")
    assert not (tmp_path / "got").exists()
    (tmp_path / "f").write_text("overwritten")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "secret").write_text("overwritten")
    source = tmp_path / "tree" if way == "private" else tmp_path / "f"
    with pytest.raises(PermissionError):
        await upload(slot, source, "link")
    with pytest.raises(PermissionError):
        await slot.upload({"op": "write", "path": f"link/{'secret' if way == 'private' else ''}", "mode": None}, b"x")


async def test_what_the_user_may_not_read_is_left_out(slot, room, tmp_path):
    inside = room / "workspace" / "t"
    inside.mkdir()
    (inside / "mine").write_text("mine")
    for name in ("hers", "shut/hers"):
        (inside / name).parent.mkdir(exist_ok=True, mode=0o700)
        (inside / name).write_text("hers")
        (inside / name).chmod(0o600)
    copied = await download(slot, "t", tmp_path / "t")
    kept = await archive(slot, ["t"], tmp_path / "a", max_bytes=None, max_entries=None)
    assert copied.omitted == (("hers", "Permission denied"), ("shut", "Permission denied"))
    assert kept.omitted == (("t/hers", "Permission denied"), ("t/shut", "Permission denied"))
    assert sorted(look(tmp_path / "t")) == [".", "mine"]


async def test_a_copy_under_way_ends_with_its_slot_and_leaves_no_part_of_a_file(slot, room):
    await slot.request({"op": "unpack", "copy": "c", "path": "d", "single": False})
    await slot.request({"op": "give", "copy": "c"}, entry_record(DIRECTORY) + entry_record(FILE, b"f", number=9))
    assert len(litter(room)) == 1
    await slot.aclose()
    assert litter(room) == []
