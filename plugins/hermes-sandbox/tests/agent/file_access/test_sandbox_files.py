"""The raw file calls, in the same paths as the commands see."""

from __future__ import annotations

import asyncio
import errno
import os
import resource

import pytest
from sandbox_support import LEVELS
from sandbox_support import sandbox as open_one

from hermes_sandbox.agent.file_access import files
from hermes_sandbox.agent.slot import Slot


@pytest.fixture(params=LEVELS)
async def sandbox(request):
    async with open_one(request.param) as opened:
        yield opened


@pytest.fixture
async def plain():
    async with open_one() as opened:
        yield opened


SIZES = [0, 1, 37_000, (1 << 18) - 1, 1 << 18, (1 << 18) + 1, 5 << 20]


@pytest.mark.parametrize("size", SIZES)
async def test_any_size_comes_back_exactly(plain, size):
    """hermes-agent's defect: files above 37 KB came back damaged, in 18 of 40 sizes without a word."""
    data = os.urandom(size)
    await plain.write_file("deep/er/file", data)
    assert await plain.read_file("deep/er/file") == data
    assert (await plain.stat("deep/er/file")).size == size


async def test_concurrent_transfers_do_not_mix(plain):
    """hermes-agent's defect: all uploads went through one shared temporary file."""
    contents = {f"f{n}": os.urandom(700_000 + n) for n in range(8)}
    await asyncio.gather(*(plain.write_file(name, data) for name, data in contents.items()))
    read = await asyncio.gather(*(plain.read_file(name) for name in contents))
    assert dict(zip(contents, read, strict=True)) == contents


async def test_commands_and_files_share_one_path_model(sandbox):
    """hermes-agent's defect: bash said /workspace, the file calls denied it and answered with host paths."""
    await sandbox.exec(f"echo made >{sandbox.workspace}/out.txt; mkdir sub; cd sub")
    assert await sandbox.read_file("out.txt") == await sandbox.read_file(f"{sandbox.workspace}/out.txt") == b"made\n"
    await sandbox.write_file("back.txt", "written")
    assert (await sandbox.exec("cat ../back.txt; echo x >$TMPDIR/shared")).stdout == b"written"
    place = (await sandbox.exec("echo $TMPDIR/shared")).output.strip()
    assert await sandbox.read_file(place) == b"x\n"


@pytest.mark.parametrize(
    "name", ["with space", "ünïcødé ☃", "new\nline", "-rf", "'quo\"te$(x)", "bad\udcff\udcfe", "*"]
)
async def test_any_name_works_in_every_call(plain, name):
    await plain.write_file(f"d/{name}", b"content")
    assert await plain.read_file(f"d/{name}") == b"content"
    assert [entry.path for entry in await plain.list_dir("d")] == [name]
    assert (await plain.stat(f"d/{name}")).path == f"d/{name}"
    assert (await plain.exec("cat -- d/*")).stdout == b"content"
    await plain.remove(f"d/{name}")
    assert await plain.list_dir("d") == []


async def test_a_range_is_read_alone(plain):
    await plain.write_file("f", bytes(range(256)) * 4096)
    assert await plain.read_file("f", offset=255, length=3) == b"\xff\0\x01"
    assert await plain.read_file("f", offset=256 * 4096 - 1) == b"\xff"
    assert await plain.read_file("f", offset=1 << 30) == b""
    assert await plain.read_file("f", length=0) == b""
    with pytest.raises(ValueError, match="expected an offset and a length of 0 or more"):
        await plain.read_file("f", offset=-1)


@pytest.mark.parametrize(
    ("call", "path", "error"),
    [
        ("read_file", "missing", FileNotFoundError),
        ("read_file", "folder", IsADirectoryError),
        ("read_file", "file/below", NotADirectoryError),
        ("stat", "missing", FileNotFoundError),
        ("list_dir", "missing", FileNotFoundError),
        ("list_dir", "file", NotADirectoryError),
        ("remove", "missing", FileNotFoundError),
        ("read_file", "", FileNotFoundError),
        ("read_file", "x" * 300, OSError),
        ("read_file", "a\0b", ValueError),
    ],
)
async def test_errors_are_the_built_in_ones_and_name_the_path_asked_for(plain, call, path, error):
    await plain.exec("mkdir folder; touch file")
    with pytest.raises(error) as caught:
        await getattr(plain, call)(path)
    if isinstance(caught.value, OSError):
        assert caught.value.filename == path


async def test_writing_onto_a_directory_or_below_a_file_fails(plain):
    await plain.exec("mkdir folder; touch file")
    with pytest.raises(IsADirectoryError):
        await plain.write_file("folder", b"")
    with pytest.raises((NotADirectoryError, FileExistsError)):
        await plain.write_file("file/below", b"")
    assert [entry.path for entry in await plain.list_dir()] == ["file", "folder"]


@pytest.mark.component("bwrap")
async def test_what_the_sandbox_may_not_touch_is_a_permission_error():
    async with open_one("bwrap") as sandbox:
        with pytest.raises(OSError, match=r"Permission denied|Read-only"):
            await sandbox.write_file("/usr/intruder", b"")
        await sandbox.exec("mkdir closed; chmod 0 closed")
        with pytest.raises(PermissionError):
            await sandbox.list_dir("closed")


async def test_a_named_pipe_or_device_is_refused_instead_of_waited_for(plain):
    await plain.exec("mkfifo pipe")
    async with asyncio.timeout(60):
        for path in ("pipe", "/dev/zero"):
            with pytest.raises(OSError, match="Not a regular file"):
                await plain.read_file(path)
        with pytest.raises(OSError, match="Not a regular file"):
            await plain.write_file("pipe", b"")


async def test_files_without_a_size_are_read_whole(plain):
    assert await plain.read_file("/proc/self/comm") != b""


async def test_modes_are_set_kept_and_default_to_the_umask(plain):
    await plain.write_file("script", b"#!/bin/sh\necho ran\n", mode=0o750)
    await plain.write_file("script", b"#!/bin/sh\necho again\n")
    await plain.write_file("plain", b"")
    assert ((await plain.stat("script")).mode, (await plain.stat("plain")).mode) == (0o750, 0o644)
    assert (await plain.exec("./script")).stdout == b"again\n"


async def test_a_symlink_is_written_through_listed_as_one_and_removed_alone(plain):
    await plain.exec("echo old >target; ln -s target link; mkdir real; touch real/inside; ln -s real folder")
    await plain.write_file("link", b"new")
    assert await plain.read_file("target") == b"new"
    kinds = {entry.path: entry.kind for entry in await plain.list_dir()}
    assert kinds == {"target": "file", "link": "symlink", "real": "directory", "folder": "symlink"}
    assert (await plain.stat("folder")).kind == "directory"
    await plain.remove("folder")
    assert [entry.path for entry in await plain.list_dir("real")] == ["inside"]


async def test_a_tree_that_is_deeper_than_any_path_can_say_is_removed(plain):
    """It was ENAMETOOLONG."""
    steps = 'import os\nos.mkdir("top"); os.chdir("top")\nfor _ in range(3000): os.mkdir("deeper"); os.chdir("deeper")'
    await plain.exec(f"python3 -c '{steps}'")
    await plain.remove("top")
    assert await plain.list_dir() == []


async def test_a_whole_tree_is_removed(plain):
    await plain.exec("mkdir -p t/a/b/c t/d; touch t/{1..50} t/a/b/c/x; ln -s / t/root")
    await plain.remove("t")
    assert await plain.list_dir() == []
    assert (await plain.stat("/usr")).kind == "directory"


async def test_a_directory_of_thousands_is_listed_sorted(plain):
    await plain.exec("mkdir many; cd many; seq -w 1 3000 | xargs touch")
    assert [entry.path for entry in await plain.list_dir("many")] == [f"{n:04}" for n in range(1, 3001)]


async def test_a_cancelled_upload_leaves_the_old_content_and_no_litter(plain):
    await plain.write_file("f", b"old")
    for delay in (0, 0.001, 0.005, 0.02):
        upload = asyncio.create_task(plain.write_file("f", b"n" * (32 << 20)))
        await asyncio.sleep(delay)
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        assert await plain.read_file("f", length=3) in {b"old", b"nnn"}
    assert [entry.path for entry in await plain.list_dir()] == ["f"]
    assert (await plain.stat("f")).size in {3, 32 << 20}


async def test_a_cancelled_download_leaves_the_sandbox_usable(plain):
    await plain.exec("head -c 50000000 /dev/zero >big")
    download = asyncio.create_task(plain.read_file("big"))
    await asyncio.sleep(0.01)
    download.cancel()
    with pytest.raises(asyncio.CancelledError):
        await download
    assert len(await plain.read_file("big")) == 50_000_000


async def test_a_file_size_limit_holds_for_commands_and_for_file_calls():
    async with open_one(file_size_mb=1) as sandbox:
        result = await sandbox.exec("head -c 2000000 /dev/zero >big")
        assert (await sandbox.stat("big")).size == 1 << 20
        assert result.exit_code == 153
        with pytest.raises(OSError, match="File too large"):
            await sandbox.write_file("big", b"x" * 2_000_000)
        assert [entry.path for entry in await sandbox.list_dir()] == ["big"]


async def test_a_huge_file_is_read_in_ranges_only(plain):
    await plain.exec("truncate -s 20G sparse; truncate -s 256M limit")
    before = peak()
    with pytest.raises(OSError, match=r"has 21474836480 bytes; read it in ranges with offset and length") as caught:
        await plain.read_file("sparse")
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, "sparse")
    assert await plain.read_file("sparse", offset=10 << 30, length=1000) == bytes(1000)
    assert len(await plain.read_file("sparse", offset=(20 << 30) - 5)) == 5
    assert len(await plain.read_file("limit")) == 256 << 20
    assert peak() - before < 350 << 20


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


async def test_a_file_that_grows_while_it_is_read_has_a_limit_too(tmp_path):
    (tmp_path / "f").write_bytes(bytes(3 << 18))
    request = {"path": "f", "offset": 0, "length": None, "limit": 3 << 18}
    answers = files.read(Slot(None, 1, "m", {"workspace": str(tmp_path)}), request)
    next(answers)
    with (tmp_path / "f").open("ab") as file:
        file.write(b"more")
    with pytest.raises(OSError, match="has 786436 bytes"):
        list(answers)
