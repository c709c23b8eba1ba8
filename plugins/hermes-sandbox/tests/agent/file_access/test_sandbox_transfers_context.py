"""The four copying methods that rewards and verifiers call, in the form of hermes-agent's answers."""

from __future__ import annotations

import os

import pytest
from copied_trees import look, make_tree
from sandbox_support import sandbox as open_one

from hermes_core.rollout.plugin_calls import transfers


@pytest.fixture
async def plain():
    async with open_one() as opened:
        yield opened


async def test_a_directory_is_answered_file_by_file(plain, tmp_path):
    make_tree(tmp_path / "tree")
    sent = await transfers.upload_dir(plain, str(tmp_path / "tree"), "tree")
    back = await transfers.download_dir(plain, "tree", str(tmp_path / "back"))
    assert look(tmp_path / "back") == look(tmp_path / "tree")
    assert [answer["exit_code"] for answer in sent] == [0] * 13
    assert [answer["success"] for answer in back] == [True] * 13
    assert {"exit_code": 0, "output": "5 bytes written to tree/plain"} in sent
    assert {"exit_code": 0, "output": "a symlink written to tree/link"} in sent
    assert max(answer["bytes"] for answer in back) == (1 << 20) + 17


async def test_what_is_not_copied_has_an_answer_too(plain, tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "f").touch()
    os.mkfifo(tmp_path / "tree" / "pipe")
    pipe = {"exit_code": -1, "output": f"{tmp_path}/tree/pipe: a named pipe"}
    written = {"exit_code": 0, "output": "0 bytes written to t/f"}
    assert await transfers.upload_dir(plain, str(tmp_path / "tree"), "t") == [written, pipe]
    await plain.exec("mkfifo t/pipe")
    refused = {"success": False, "error": "t/pipe: a named pipe"}
    assert await transfers.download_dir(plain, "t", str(tmp_path / "back")) == [{"success": True, "bytes": 0}, refused]


async def test_a_file_is_answered_with_its_size_or_the_reason(plain, tmp_path):
    (tmp_path / "f").write_bytes(bytes(300_000))
    (tmp_path / "f").chmod(0o755)
    sent = await transfers.upload_file(plain, str(tmp_path / "f"), "new/f")
    assert sent == {"exit_code": 0, "output": "300000 bytes written to new/f"}
    assert (await plain.stat("new/f")).mode == 0o755
    got = await transfers.download_file(plain, "new/f", str(tmp_path / "also" / "new"))
    assert got == {"success": True, "bytes": 300_000}
    for answer in (
        await transfers.upload_file(plain, str(tmp_path / "none"), "x"),
        await transfers.upload_file(plain, str(tmp_path), "x"),
        await transfers.upload_file(plain, str(tmp_path / "f"), "new"),
        *await transfers.upload_dir(plain, str(tmp_path / "f"), "x"),
        *await transfers.upload_dir(plain, str(tmp_path), "new/f"),
    ):
        assert answer["exit_code"] == -1
        assert answer["output"].partition(": ")[2]
    for answer in (
        await transfers.download_file(plain, "none", str(tmp_path / "x")),
        await transfers.download_file(plain, "new", str(tmp_path / "x")),
        await transfers.download_file(plain, "new/f", str(tmp_path)),
        *await transfers.download_dir(plain, "none", str(tmp_path / "x")),
        *await transfers.download_dir(plain, "new/f", str(tmp_path / "x")),
    ):
        assert answer["success"] is False
        assert answer["error"]
    assert not (tmp_path / "x").exists()
