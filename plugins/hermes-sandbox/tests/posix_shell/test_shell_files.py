"""File operations without Python in the sandbox."""

from __future__ import annotations

import posixpath
import random

import pytest
from plain_support import plain_sandbox

from hermes_testing.watching import begin

NAMES = [
    "plain",
    "with space",
    "grüße-你好",
    "quote'\"s",
    "-dash",
    "dollar$HOME",
    "star*",
    "a/b c/d",
    ".hidden",
    "new\nline",
    "end\n",
]


@pytest.mark.parametrize("size", [0, 1, 65_537, 1_048_576, 1_048_577, 3_000_000])
async def test_bytes_make_the_round_trip(size: int) -> None:
    data = random.Random(size).randbytes(size)
    async with plain_sandbox() as box:
        await box.write_file("data", data)
        assert await box.read_file("data") == data
        assert (await box.stat("data")).size == size
        for offset, length in [(0, 3), (1, None), (size, 1), (size + 5, None), (1_048_570, 20), (3, 0)]:
            end = None if length is None else offset + length
            assert await box.read_file("data", offset=offset, length=length) == data[offset:end]


@pytest.mark.parametrize("name", NAMES)
async def test_any_name_will_do(name: str) -> None:
    async with plain_sandbox() as box:
        await box.write_file(name, b"found")
        assert await box.read_file(name) == b"found"
        assert [entry.path for entry in await box.list_dir(posixpath.dirname(name) or ".")] == [
            posixpath.basename(name)
        ]
        await box.remove(name)
        with pytest.raises(FileNotFoundError):
            await box.read_file(name)


async def test_modes_are_set_and_kept_and_links_are_written_through() -> None:
    async with plain_sandbox() as box:
        await box.write_file("run", "#!/bin/sh\necho ran\n", mode=0o750)
        await box.exec("ln -s run link")
        await box.write_file("link", "#!/bin/sh\necho again\n")
        assert (await box.exec("./run")).output == "again\n"
        kinds = {entry.path: (entry.kind, entry.mode) for entry in await box.list_dir()}
        assert kinds["run"] == ("file", 0o750)
        assert kinds["link"][0] == "symlink"
        assert set(kinds) == {"run", "link"}


async def test_large_directories_are_listed_sorted() -> None:
    async with plain_sandbox() as box:
        await box.exec("i=0; while [ $i -lt 450 ]; do : >f$i; i=$((i+1)); done; mkdir d; ln -s /nowhere l")
        listing = await box.list_dir()
        assert [entry.path for entry in listing] == sorted([f"f{n}" for n in range(450)] + ["d", "l"])
        assert {entry.path: entry.kind for entry in listing if entry.kind != "file"} == {
            "d": "directory",
            "l": "symlink",
        }


async def test_errors_are_the_built_in_exceptions() -> None:
    async with plain_sandbox() as box:
        await box.exec("mkdir d; : >f; mkfifo pipe; ln -s loop loop")
        for call in (box.read_file, box.stat, box.list_dir, box.remove):
            with pytest.raises(FileNotFoundError):
                await call("no/such")
        for path, kind in [
            ("d", IsADirectoryError),
            ("f/below", NotADirectoryError),
            ("pipe", OSError),
            ("loop", OSError),
        ]:
            with pytest.raises(kind):
                await box.read_file(path)
        with pytest.raises(IsADirectoryError):
            await box.write_file("d", b"x")
        with pytest.raises(NotADirectoryError):
            await box.write_file("f/below", b"x")
        with pytest.raises(NotADirectoryError):
            await box.list_dir("f")
        with pytest.raises(ValueError, match="NUL"):
            await box.read_file("a\0b")


async def test_a_file_larger_than_memory_should_hold_is_read_in_ranges_only() -> None:
    async with plain_sandbox() as box:
        await box.exec("dd if=/dev/zero of=sparse bs=1 count=0 seek=2000000000")
        with pytest.raises(OSError, match="too large"):
            await box.read_file("sparse")
        assert await box.read_file("sparse", offset=1_999_999_990, length=100) == bytes(10)


async def test_removing_takes_links_and_whole_directories() -> None:
    async with plain_sandbox() as box:
        await box.exec("mkdir -p d/e; : >d/e/f; : >keep; ln -s keep link; ln -s nowhere dangling")
        for name in ("d", "link", "dangling"):
            await box.remove(name)
        assert [entry.path for entry in await box.list_dir()] == ["keep"]


async def test_file_calls_work_while_a_command_runs_and_means_the_workspace() -> None:
    async with plain_sandbox() as box:
        call = await begin(
            box, "mkdir sub; cd sub; touch ../begun; while [ ! -e ../go ]; do sleep 0.05; done; echo went"
        )
        await box.write_file("go", b"1")
        assert (await call).output == "went\n"
        assert await box.read_file(f"{box.workspace}/go") == b"1"
