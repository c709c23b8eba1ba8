"""Tests of the raw file interface: bytes in, the same bytes out, and built-in exceptions."""

from __future__ import annotations

import asyncio
import hashlib
import random

import pytest

from hermes_core.contracts.sandbox import Sandbox
from hermes_testing.suites.backend.base import BackendBase
from hermes_testing.suites.base import needs
from hermes_testing.watching import begin

_NAMES = ["plain", "with space", "grüße-你好", "quote'\"s", "-dash", "dollar$HOME", "star*", "a/b c/d", ".hidden"]


class Files(BackendBase):
    """Reading, writing and listing without a shell between."""

    @pytest.mark.parametrize("size", [0, 1, 4095, 65_535, 65_536, 65_537, 1_048_583, 5_000_000])
    async def test_bytes_make_the_round_trip(self, shared: Sandbox, size: int) -> None:
        """All 256 values, at the sizes of buffers; commands see the same bytes."""
        data = random.Random(size).randbytes(size)  # noqa: S311 - test data
        await shared.write_file("data.bin", data)
        back = await shared.read_file("data.bin")
        # By hash: computing the difference of two large blocks takes minutes, and printing it is useless.
        assert (len(back), hashlib.sha256(back).hexdigest()) == (size, hashlib.sha256(data).hexdigest())
        digest = (await shared.exec("sha256sum data.bin")).output[:64]
        assert digest == hashlib.sha256(data).hexdigest()

    @pytest.mark.parametrize("name", _NAMES)
    async def test_any_name_will_do(self, shared: Sandbox, name: str) -> None:
        """No shell interprets names; parent directories are created."""
        await shared.write_file(name, b"found")
        assert await shared.read_file(name) == b"found"
        assert (await shared.exec('cat -- "./$NAME"', env={"NAME": name})).stdout == b"found"

    async def test_text_is_written_as_utf_8(self, shared: Sandbox) -> None:
        """No newline is added or changed."""
        await shared.write_file("t", "é\r\nno newline at end")
        assert await shared.read_file("t") == "é\r\nno newline at end".encode()

    async def test_writing_replaces_the_whole_content(self, shared: Sandbox) -> None:
        """A shorter text leaves no part of the longer one."""
        await shared.write_file("f", b"a long first version")
        await shared.write_file("f", b"short")
        assert await shared.read_file("f") == b"short"

    @needs("file_modes")
    async def test_the_mode_is_set(self, shared: Sandbox) -> None:
        """A script becomes executable."""
        await shared.write_file("run.sh", "#!/bin/sh\necho ran\n", mode=0o755)
        assert (await shared.exec("./run.sh")).output == "ran\n"
        assert (await shared.stat("run.sh")).mode & 0o777 == 0o755

    @pytest.mark.parametrize(
        ("offset", "length", "expected"),
        [(0, 4, b"0123"), (5, None, b"56789"), (3, 2, b"34"), (8, 99, b"89"), (10, 1, b""), (99, None, b"")],
    )
    async def test_a_range_of_a_file(self, shared: Sandbox, offset: int, length: int | None, expected: bytes) -> None:
        """A range after the end is empty, not an error."""
        await shared.write_file("f", b"0123456789")
        assert await shared.read_file("f", offset=offset, length=length) == expected

    async def test_a_missing_file_is_FileNotFoundError(self, shared: Sandbox) -> None:  # noqa: N802 - an exception's name
        """For every call with a path."""
        for call in (shared.read_file, shared.stat, shared.list_dir, shared.remove):
            with pytest.raises(FileNotFoundError):
                await call("no/such/file")

    async def test_a_directory_is_no_file(self, shared: Sandbox) -> None:
        """It can be neither read nor overwritten."""
        await shared.exec("mkdir d")
        with pytest.raises(IsADirectoryError):
            await shared.read_file("d")
        with pytest.raises(IsADirectoryError):
            await shared.write_file("d", b"x")

    async def test_a_file_is_no_directory(self, shared: Sandbox) -> None:
        """It can be neither listed nor written into."""
        await shared.write_file("f", b"x")
        with pytest.raises(NotADirectoryError):
            await shared.list_dir("f")
        with pytest.raises(NotADirectoryError):
            await shared.read_file("f/below")

    async def test_relative_paths_mean_the_workspace_always(self, sandbox: Sandbox) -> None:
        """Whatever the session's current directory is."""
        await sandbox.exec("mkdir sub; cd sub")
        await sandbox.write_file("here", b"1")
        assert await sandbox.read_file(f"{sandbox.workspace}/here") == b"1"
        await sandbox.exec("cd /")
        assert await sandbox.read_file("here") == b"1"

    async def test_stat_describes_what_a_path_points_to(self, shared: Sandbox) -> None:
        """Kind and size, following a symlink."""
        await shared.write_file("f", b"12345")
        await shared.exec("ln -s f link; mkdir d")
        assert ((await shared.stat("link")).kind, (await shared.stat("link")).size) == ("file", 5)
        assert (await shared.stat("d")).kind == "directory"
        for path in ("f", "./link", f"{shared.workspace}/d"):
            assert (await shared.stat(path)).path == path

    async def test_a_time_is_in_seconds_since_the_epoch(self, shared: Sandbox) -> None:
        """The file's last modification, in listings too; there a link has its own time."""
        await shared.exec("touch f; mkdir d; TZ=UTC0 touch -t 200109090146.40 f d; ln -s f link")
        for path in ("f", "d", "link"):
            assert (await shared.stat(path)).mtime == 1e9
        found = {entry.path: entry.mtime for entry in await shared.list_dir()}
        assert (found["f"], found["d"], found["link"] > 1e9) == (1e9, 1e9, True)

    async def test_a_listing_describes_as_stat_does(self, shared: Sandbox) -> None:
        """Size, time and mode of each entry except links."""
        await shared.write_file("f", b"12345", mode=0o640)
        await shared.exec("mkdir d; chmod 700 d; TZ=UTC0 touch -t 200109090146.40 f d")
        listing = {entry.path: entry for entry in await shared.list_dir()}
        for path in ("f", "d"):
            assert listing[path] == await shared.stat(path)

    async def test_a_listing_is_sorted_and_follows_no_link(self, shared: Sandbox) -> None:
        """It includes hidden entries, and `path` is the bare name."""
        await shared.exec("touch b .a; mkdir c; ln -s /nowhere l")
        listing = [(entry.path, entry.kind) for entry in await shared.list_dir()]
        assert listing == [(".a", "file"), ("b", "file"), ("c", "directory"), ("l", "symlink")]

    async def test_remove_takes_files_links_and_whole_directories(self, shared: Sandbox) -> None:
        """A link is removed, not its target."""
        await shared.exec("mkdir -p d/e; touch d/e/f keep; ln -s keep link")
        await shared.remove("d")
        await shared.remove("link")
        assert [entry.path for entry in await shared.list_dir()] == ["keep"]

    async def test_links_and_dots_lead_where_they_lead_a_command(self, shared: Sandbox) -> None:
        """File calls resolve paths like bash (hermes-agent: they disagreed)."""
        await shared.exec(
            "mkdir -p deep/er sub; ln -s deep/er way; ln -s ../sub/target sub/link; echo old > sub/target"
        )
        await shared.write_file("way/../up", b"up")
        await shared.write_file("sub/link", b"new")
        assert (await shared.exec("cat deep/up sub/target; test -L sub/link")).output == "upnew"
        for path in ("way/../up", "./sub//link", f"{shared.workspace}/sub/../sub/target"):
            assert await shared.read_file(path) == (await shared.exec(f"cat {path}")).stdout

    @pytest.mark.parametrize(
        "path", ["/etc/shadow", "/proc/1/environ", "/etc/gshadow", "link/shadow", "/proc/self/root"]
    )
    async def test_the_file_calls_reach_no_more_than_a_command(self, shared: Sandbox, path: str) -> None:
        """Files that commands cannot read or list are closed to `read_file` and `list_dir` too."""
        await shared.exec("ln -s /etc link")
        if (await shared.exec(f"cat {path}")).exit_code != 0:
            with pytest.raises(OSError, match=r"\w"):
                await shared.read_file(path)
        if (await shared.exec(f"ls {path}/.")).exit_code != 0:
            with pytest.raises(OSError, match=r"\w"):
                await shared.list_dir(path)

    @pytest.mark.parametrize("path", ["a\0b", "a\ud800b"], ids=["NUL", "surrogate"])
    async def test_a_path_that_none_can_have_is_refused(self, shared: Sandbox, path: str) -> None:
        """Every call refuses an invalid path; nothing is cut off."""
        for call in (shared.read_file, shared.stat, shared.list_dir, shared.remove):
            with pytest.raises(ValueError, match=r"NUL|null|surrogate"):
                await call(path)
        assert await shared.list_dir() == []

    async def test_a_large_file_is_read_and_written_whole(self, shared: Sandbox) -> None:
        """While another command runs."""
        data = random.Random(1).randbytes(20_000_000)  # noqa: S311 - test data
        running = asyncio.create_task(shared.exec("sleep 0.2; echo done"))
        await shared.write_file("large", data)
        assert hashlib.sha256(await shared.read_file("large")).digest() == hashlib.sha256(data).digest()
        assert (await running).output == "done\n"

    async def test_file_calls_do_not_wait_for_a_command(self, sandbox: Sandbox) -> None:
        """A long-running command does not delay file calls."""
        call = await begin(sandbox, "sleep 600", seconds=self.patience)
        await asyncio.wait_for(sandbox.write_file("f", b"1"), self.patience)
        assert [entry.path for entry in await sandbox.list_dir()] == ["begun", "f"]
        assert not call.done()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
