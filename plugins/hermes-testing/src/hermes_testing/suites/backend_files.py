"""The raw file interface: bytes in, the same bytes out, and the built-in exceptions."""

from __future__ import annotations

import hashlib
import random

import pytest

from hermes_core.contracts.sandbox import Sandbox
from hermes_testing.suites.backend_base import BackendBase
from hermes_testing.suites.base import needs

_NAMES = ["plain", "with space", "grüße-你好", "quote'\"s", "-dash", "dollar$HOME", "star*", "a/b c/d", ".hidden"]


class Files(BackendBase):
    """Reading, writing and listing without a shell between."""

    @pytest.mark.parametrize("size", [0, 1, 4095, 65_535, 65_536, 65_537, 1_048_583, 5_000_000])
    async def test_bytes_make_the_round_trip(self, sandbox: Sandbox, size: int) -> None:
        """All 256 values, at the sizes where buffers end; commands see the same bytes."""
        data = random.Random(size).randbytes(size)  # noqa: S311 - test data
        await sandbox.write_file("data.bin", data)
        back = await sandbox.read_file("data.bin")
        # By hash: the difference of two large blocks of bytes is nothing to print, and takes minutes to find.
        assert (len(back), hashlib.sha256(back).hexdigest()) == (size, hashlib.sha256(data).hexdigest())
        digest = (await sandbox.exec("sha256sum data.bin")).output[:64]
        assert digest == hashlib.sha256(data).hexdigest()

    @pytest.mark.parametrize("name", _NAMES)
    async def test_any_name_will_do(self, sandbox: Sandbox, name: str) -> None:
        """Names are not looked at by a shell; parent directories are created."""
        await sandbox.write_file(name, b"found")
        assert await sandbox.read_file(name) == b"found"
        assert (await sandbox.exec('cat -- "./$NAME"', env={"NAME": name})).stdout == b"found"

    async def test_text_is_written_as_utf_8(self, sandbox: Sandbox) -> None:
        """No newline is added or changed."""
        await sandbox.write_file("t", "é\r\nno newline at end")
        assert await sandbox.read_file("t") == "é\r\nno newline at end".encode()

    async def test_writing_replaces_the_whole_content(self, sandbox: Sandbox) -> None:
        """A shorter text leaves nothing of the longer one."""
        await sandbox.write_file("f", b"a long first version")
        await sandbox.write_file("f", b"short")
        assert await sandbox.read_file("f") == b"short"

    @needs("file_modes")
    async def test_the_mode_is_set(self, sandbox: Sandbox) -> None:
        """So that a script can be run."""
        await sandbox.write_file("run.sh", "#!/bin/sh\necho ran\n", mode=0o755)
        assert (await sandbox.exec("./run.sh")).output == "ran\n"
        assert (await sandbox.stat("run.sh")).mode & 0o777 == 0o755

    @pytest.mark.parametrize(
        ("offset", "length", "expected"),
        [(0, 4, b"0123"), (5, None, b"56789"), (3, 2, b"34"), (8, 99, b"89"), (10, 1, b""), (99, None, b"")],
    )
    async def test_a_range_of_a_file(self, sandbox: Sandbox, offset: int, length: int | None, expected: bytes) -> None:
        """Beyond the end there is nothing, which is no error."""
        await sandbox.write_file("f", b"0123456789")
        assert await sandbox.read_file("f", offset=offset, length=length) == expected

    async def test_a_missing_file_is_FileNotFoundError(self, sandbox: Sandbox) -> None:  # noqa: N802 - an exception's name
        """For every call that takes a path."""
        for call in (sandbox.read_file, sandbox.stat, sandbox.list_dir, sandbox.remove):
            with pytest.raises(FileNotFoundError):
                await call("no/such/file")

    async def test_a_directory_is_no_file(self, sandbox: Sandbox) -> None:
        """Neither to read nor to overwrite."""
        await sandbox.exec("mkdir d")
        with pytest.raises(IsADirectoryError):
            await sandbox.read_file("d")
        with pytest.raises(IsADirectoryError):
            await sandbox.write_file("d", b"x")

    async def test_a_file_is_no_directory(self, sandbox: Sandbox) -> None:
        """Neither to list nor to write into."""
        await sandbox.write_file("f", b"x")
        with pytest.raises(NotADirectoryError):
            await sandbox.list_dir("f")
        with pytest.raises(NotADirectoryError):
            await sandbox.read_file("f/below")

    async def test_relative_paths_mean_the_workspace_always(self, sandbox: Sandbox) -> None:
        """Whatever directory the session has gone to."""
        await sandbox.exec("mkdir sub; cd sub")
        await sandbox.write_file("here", b"1")
        assert await sandbox.read_file(f"{sandbox.workspace}/here") == b"1"
        await sandbox.exec("cd /")
        assert await sandbox.read_file("here") == b"1"

    async def test_stat_describes_what_a_path_points_to(self, sandbox: Sandbox) -> None:
        """Kind and size, through a symlink."""
        await sandbox.write_file("f", b"12345")
        await sandbox.exec("ln -s f link; mkdir d")
        assert ((await sandbox.stat("link")).kind, (await sandbox.stat("link")).size) == ("file", 5)
        assert (await sandbox.stat("d")).kind == "directory"

    async def test_a_listing_is_sorted_and_follows_no_link(self, sandbox: Sandbox) -> None:
        """With hidden entries, and `path` is the bare name."""
        await sandbox.exec("touch b .a; mkdir c; ln -s /nowhere l")
        listing = [(entry.path, entry.kind) for entry in await sandbox.list_dir()]
        assert listing == [(".a", "file"), ("b", "file"), ("c", "directory"), ("l", "symlink")]

    async def test_remove_takes_files_links_and_whole_directories(self, sandbox: Sandbox) -> None:
        """A link is removed, not what it points to."""
        await sandbox.exec("mkdir -p d/e; touch d/e/f keep; ln -s keep link")
        await sandbox.remove("d")
        await sandbox.remove("link")
        assert [entry.path for entry in await sandbox.list_dir()] == ["keep"]
