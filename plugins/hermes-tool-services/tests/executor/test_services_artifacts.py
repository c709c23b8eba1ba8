"""Artifacts of a trajectory's workspace, through the executor, on the real local backend."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from services_backends import local_backend
from services_executor import plugins

from hermes_tool_services import ArtifactRefusedError, ToolExecutor
from hermes_tool_services.wire import (
    MOST_BYTES,
    ArtifactArchiveRequestPayload,
    ArtifactArchiveResponsePayload,
    ArtifactListRequestPayload,
    ArtifactListResponsePayload,
    ArtifactReadRequestPayload,
    ArtifactReadResponsePayload,
    ByteRange,
)
from hermes_tools.agent_tools import ToolCall


class Workspace:
    """One trajectory of an executor."""

    def __init__(self, executor: ToolExecutor) -> None:
        self.executor = executor

    async def run(self, command: str) -> None:
        result = await self.executor.execute("t1", ToolCall("terminal", {"command": command}))
        assert result.success, result

    async def read(self, path: str, **fields: Any) -> ArtifactReadResponsePayload:
        request = ArtifactReadRequestPayload(trajectory_id="t1", path=path, **fields)
        return await self.executor.read_artifact(request)

    async def list(self, path: str = ".", **fields: Any) -> ArtifactListResponsePayload:
        request = ArtifactListRequestPayload(trajectory_id="t1", path=path, **fields)
        return await self.executor.list_artifacts(request)

    async def archive(self, path: str = ".", **fields: Any) -> ArtifactArchiveResponsePayload:
        request = ArtifactArchiveRequestPayload(trajectory_id="t1", path=path, **fields)
        return await self.executor.archive_artifacts(request)


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[Workspace]:
    backend = local_backend(tmp_path)
    async with ToolExecutor(backend, registry=plugins()) as executor:
        made = Workspace(executor)
        await made.run("true")
        yield made
    await backend.aclose()


async def test_the_hash_is_of_the_whole_file_however_little_is_read(workspace: Workspace) -> None:
    await workspace.run("seq 1 300000 > big.txt")
    expected = "".join(f"{number}\n" for number in range(1, 300001)).encode()
    found = await workspace.read("big.txt", max_bytes=10, include_sha256=True)
    assert (found.content, found.bytes, found.truncated) == ("1\n2\n3\n4\n5\n", 10, True)
    assert found.file_size == len(expected)
    assert found.sha256 == hashlib.sha256(expected).hexdigest()


@pytest.mark.parametrize(
    ("fields", "content", "truncated"),
    [
        ({}, "0123456789", False),
        ({"max_bytes": 10}, "0123456789", False),
        ({"max_bytes": 9}, "012345678", True),
        ({"range": ByteRange(start=3, length=4)}, "3456", False),
        ({"range": ByteRange(start=3, length=4), "max_bytes": 3}, "345", True),
        ({"range": ByteRange(start=8)}, "89", False),
        ({"range": ByteRange(start=8, length=99)}, "89", False),
        ({"range": ByteRange(start=50, length=5)}, "", False),
        ({"max_bytes": 0}, "", True),
    ],
)
async def test_truncated_is_exact(
    workspace: Workspace, fields: dict[str, Any], content: str, *, truncated: bool
) -> None:
    await workspace.run("printf 0123456789 > ten")
    found = await workspace.read("ten", **fields)
    assert (found.content, found.truncated, found.file_size) == (content, truncated, 10)


async def test_bytes_come_as_base64(workspace: Workspace) -> None:
    await workspace.run(r"printf '\377\000\001' > raw.png")
    found = await workspace.read("raw.png", encoding="base64")
    assert (base64.b64decode(found.content), found.mime) == (b"\xff\x00\x01", "image/png")
    assert (await workspace.read("raw.png")).content == "\ufffd\0\x01"


async def test_the_workspace_is_called_the_same_everywhere_and_its_real_place_is_not_told(workspace: Workspace) -> None:
    await workspace.run("mkdir -p a; echo x > a/f")
    real = workspace.executor.slots[0].sandbox.workspace
    found = await workspace.read("/workspace/a/f")
    assert found.path == "/workspace/a/f"
    assert (await workspace.read(f"{real}/a/f")).path == "/workspace/a/f"
    texts: list[object] = [found, await workspace.list("/workspace", recursive=True), await workspace.archive("a")]
    for missing in ("/workspace/nothing", f"{real}/../x"):
        with pytest.raises(ArtifactRefusedError) as raised:
            await workspace.read(missing)
        texts += [raised.value.message.replace(missing, "")]
    assert not [text for text in texts if real in str(text)]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/etc/passwd", 403),
        ("../x", 403),
        ("a/../../x", 403),
        ("/workspace/../x", 403),
        ("/workspacex", 403),
        ("out", 403),
        ("out/passwd", 403),
        ("loop", 404),
        ("dangling", 404),
        ("none", 404),
        ("a/none", 404),
        ("a/f/none", 400),
        ("a", 400),
        ("pipe", 400),
        ("", 400),
        ("a\0b", 400),
    ],
)
async def test_what_cannot_be_read_is_refused_with_its_code(workspace: Workspace, path: str, status: int) -> None:
    await workspace.run(
        "mkdir a; echo x > a/f; ln -s /etc out; ln -s loop loop; ln -s nowhere dangling; mkfifo pipe; true"
    )
    with pytest.raises(ArtifactRefusedError) as raised:
        await workspace.read(path)
    assert raised.value.status == status


async def test_a_symlink_inside_the_workspace_is_followed(workspace: Workspace) -> None:
    await workspace.run("mkdir -p 'odd dir'; echo x > \"odd dir/it's\"; ln -s 'odd dir' link")
    found = await workspace.read("link/it's")
    assert (found.content, found.path) == ("x\n", "/workspace/odd dir/it's")


@pytest.mark.parametrize(("asked", "count", "truncated"), [(None, 5, False), (5, 5, False), (4, 4, True), (0, 0, True)])
async def test_a_listing_says_exactly_whether_there_is_more(
    workspace: Workspace, asked: int | None, count: int, *, truncated: bool
) -> None:
    await workspace.run("mkdir d; touch a b d/c; ln -s /etc link")
    found = await workspace.list(recursive=True, max_entries=asked)
    assert (len(found.entries), found.truncated) == (count, truncated)
    if asked is None:
        kinds = {entry.path: (entry.is_dir, entry.kind) for entry in found.entries}
        assert kinds["d/c"] == (False, "file")
        assert kinds["link"] == (False, "symlink")
        assert not [path for path in kinds if path.startswith("link/")]


async def test_a_listing_of_one_directory_stays_there(workspace: Workspace) -> None:
    await workspace.run("mkdir d; echo four > d/c; touch a")
    assert [entry.path for entry in (await workspace.list()).entries] == ["a", "d"]
    (only,) = (await workspace.list("d")).entries
    assert (only.path, only.size) == ("d/c", 5)
    with pytest.raises(ArtifactRefusedError) as raised:
        await workspace.list("a")
    assert raised.value.status == 400


def members(found: ArtifactArchiveResponsePayload) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(found.content))) as archive:
        return {member.name.removeprefix("./"): member for member in archive.getmembers()}


async def test_an_archive_keeps_symlinks_as_such(workspace: Workspace) -> None:
    await workspace.run("mkdir d; echo x > d/f; ln -s /etc/passwd d/link")
    found = await workspace.archive("d")
    packed = members(found)
    assert packed["d/link"].issym()
    assert packed["d/f"].size == 2
    assert (found.bytes, found.omitted) == (len(base64.b64decode(found.content)), [])
    assert found.sha256 == hashlib.sha256(base64.b64decode(found.content)).hexdigest()


async def test_what_a_limit_keeps_out_of_an_archive_is_listed(workspace: Workspace) -> None:
    await workspace.run("mkdir d; for n in 1 2 3 4 5; do echo $n > d/$n; done; head -c 5000 /dev/zero > d/big")
    few = await workspace.archive("d", max_entries=3)
    packed = set(members(few))
    omitted = {entry.path for entry in few.omitted}
    assert {path.removeprefix("d/") for path in omitted | packed - {"d"}} >= {"1", "2", "3", "4", "5", "big"}
    assert omitted
    assert not packed & omitted
    small = await workspace.archive("d", max_bytes=1000)
    assert [entry.path for entry in small.omitted if "big" in entry.path]
    assert not [path for path in members(small) if "big" in path]


async def test_of_very_many_omissions_an_answer_has_the_first_and_their_number(workspace: Workspace) -> None:
    await workspace.run("mkdir d; cd d; seq -f %06g 1 3000 | xargs touch")
    found = await workspace.archive("d", max_entries=1)
    assert (len(found.omitted), found.omitted_count) == (1000, 3000)
    none = await workspace.archive("d")
    assert (none.omitted, none.omitted_count) == ([], 0)


async def test_the_whole_workspace_can_be_packed(workspace: Workspace) -> None:
    await workspace.run("mkdir d; echo x > d/f")
    assert "d/f" in members(await workspace.archive())


@pytest.mark.parametrize(
    "refused",
    [
        lambda workspace: workspace.read("f", max_bytes=MOST_BYTES + 1),
        lambda workspace: workspace.list(max_entries=1_000_000),
        lambda workspace: workspace.archive(max_bytes=MOST_BYTES + 1),
    ],
)
async def test_a_limit_above_the_services_own_is_too_large(workspace: Workspace, refused: Any) -> None:
    await workspace.run("touch f")
    with pytest.raises(ArtifactRefusedError) as raised:
        await refused(workspace)
    assert raised.value.status == 413


async def test_without_a_sandbox_there_are_no_artifacts(workspace: Workspace) -> None:
    request = ArtifactReadRequestPayload(trajectory_id="other", path="f")
    with pytest.raises(ArtifactRefusedError, match=r"No active slot for trajectory \(run a sandbox tool first\)"):
        await workspace.executor.read_artifact(request)
    await workspace.executor.release_trajectory("t1")
    with pytest.raises(ArtifactRefusedError, match="released"):
        await workspace.read("f")
