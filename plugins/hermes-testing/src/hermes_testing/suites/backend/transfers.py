"""Tests of copying files and directories into the sandbox and out of it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import random
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hermes_core.contracts.sandbox import Sandbox
from hermes_testing.suites.backend.base import BackendBase
from hermes_testing.suites.base import needs
from hermes_testing.watching import eventually

_HOSTILE = ("plain", "with space", "new\nline", "quote'\"s", "-dash", "grüße", "$(touch pwned)", "*", ".hidden")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _make_tree(root: Path) -> Path:
    """Create a directory of difficult cases: hostile names, modes, links, an empty directory, an empty file."""
    (root / "deep" / "er").mkdir(parents=True)
    (root / "empty").mkdir()
    for name in _HOSTILE:
        (root / "deep" / name).write_text(name, encoding="utf-8")
    (root / "nothing").touch()
    (root / "deep" / "er" / "run").write_text("#!/bin/sh\necho ran\n", encoding="utf-8")
    (root / "deep" / "er" / "run").chmod(0o750)
    (root / "link").symlink_to("deep/plain")
    (root / "dangling").symlink_to("/no/such/place")
    return root


async def _is_over_after(seconds: float, copy: Callable[[], Awaitable[object]]) -> bool:
    """Start a copy and cancel it after some seconds; tells whether it had finished by then."""
    copying = asyncio.ensure_future(copy())
    done, _ = await asyncio.wait({copying}, timeout=seconds)
    copying.cancel()
    await asyncio.gather(copying, return_exceptions=not done)
    return bool(done)


def _look(root: Path) -> dict[str, tuple[str, object]]:
    """Describe everything below a directory, for comparing two directories."""
    seen: dict[str, tuple[str, object]] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            seen[name] = ("symlink", str(path.readlink()))
        elif path.is_dir():
            seen[name] = ("directory", None)
        else:
            seen[name] = ("file", (path.read_bytes(), path.stat().st_mode & 0o777))
    return seen


class Transfers(BackendBase):
    """`upload`, `download` and `archive`."""

    @pytest.mark.parametrize("size", [0, 1, 5_000_011])
    async def test_a_file_is_copied_both_ways(self, shared: Sandbox, tmp_path: Path, size: int) -> None:
        """Bytes, hash and size are those that the sandbox sees."""
        source = tmp_path / "source"
        source.write_bytes(random.Random(size).randbytes(size))  # noqa: S311 - test data
        sent = await shared.upload(source, "new/place")
        assert (sent.files, sent.bytes, sent.sha256, sent.omitted) == (1, size, _digest(source), ())
        assert (await shared.exec("sha256sum < new/place")).output[:64] == sent.sha256
        assert await shared.download("new/place", tmp_path / "back") == sent
        assert _digest(tmp_path / "back") == sent.sha256

    async def test_a_directory_comes_back_as_it_was(self, shared: Sandbox, tmp_path: Path) -> None:
        """With hostile names, modes, dangling links and empty directories."""
        tree = _make_tree(tmp_path / "tree")
        sent = await shared.upload(tree, "tree")
        assert (sent.files, sent.omitted) == (len(_HOSTILE) + 2, ())
        assert (await shared.exec("(cd tree && cat link && readlink dangling && ./deep/er/run)")).output == (
            "plain/no/such/place\nran\n"
        )
        back = await shared.download("tree", tmp_path / "back")
        assert (back.files, back.bytes, back.omitted) == (sent.files, sent.bytes, ())
        assert _look(tmp_path / "back") == _look(tree)

    async def test_an_upload_follows_no_link(self, shared: Sandbox, tmp_path: Path) -> None:
        """Targets of links on this machine are not copied."""
        (tmp_path / "secret").write_text("of this machine", encoding="utf-8")
        (tmp_path / "tree").mkdir()
        (tmp_path / "tree" / "link").symlink_to(tmp_path / "secret")
        (tmp_path / "tree" / "dir").symlink_to(tmp_path)
        sent = await shared.upload(tmp_path / "tree", "tree")
        assert (sent.files, sent.bytes) == (0, 0)
        assert (await shared.exec("find tree -type l | sort")).output == "tree/dir\ntree/link\n"

    async def test_a_download_writes_nothing_outside_its_target(self, shared: Sandbox, tmp_path: Path) -> None:
        """Links that lead out of it are copied as links; a second copy does not follow them."""
        (tmp_path / "outside").mkdir()
        await shared.exec(f"mkdir tree; ln -s {tmp_path}/outside tree/way; ln -s ../../outside/f tree/f")
        await shared.download("tree", tmp_path / "copies" / "tree")
        await shared.exec("rm tree/*; mkdir tree/way; echo x > tree/way/f; echo x > tree/f")
        with contextlib.suppress(OSError):  # refusing to merge the two is also correct
            await shared.download("tree", tmp_path / "copies" / "tree")
        assert list((tmp_path / "outside").iterdir()) == []

    async def test_a_directory_is_merged_into_one_that_is_there(self, shared: Sandbox, tmp_path: Path) -> None:
        """Files that only the existing directory has are kept."""
        (tmp_path / "tree" / "sub").mkdir(parents=True)
        (tmp_path / "tree" / "sub" / "both").write_text("new", encoding="utf-8")
        await shared.exec("mkdir -p tree/sub; echo -n old | tee tree/sub/both > tree/sub/mine")
        await shared.upload(tmp_path / "tree", "tree")
        assert (await shared.exec("cat tree/sub/both tree/sub/mine")).output == "newold"

    @needs("sparse_files")
    async def test_holes_in_files_are_kept(self, shared: Sandbox, tmp_path: Path) -> None:
        """A sparse file uses no more space at the other end, in both directions."""
        source = tmp_path / "sparse"
        with source.open("wb") as file:
            file.truncate(64 << 20)
            file.seek(32 << 20)
            file.write(b"middle")
        await shared.upload(source, "sparse")
        size, blocks = (await shared.exec("stat -c '%s %b' sparse")).output.split()
        assert (int(size), int(blocks) * 512 < 4 << 20) == (64 << 20, True)
        await shared.download("sparse", tmp_path / "back")
        assert _digest(tmp_path / "back") == _digest(source)
        assert (tmp_path / "back").stat().st_blocks * 512 < 4 << 20

    async def test_what_cannot_be_copied_is_told(self, shared: Sandbox, tmp_path: Path) -> None:
        """Each such entry with a reason, in both directions and in archives; the rest is copied."""
        (tmp_path / "tree").mkdir()
        os.mkfifo(tmp_path / "tree" / "pipe")
        (tmp_path / "tree" / "file").touch()
        sent = await shared.upload(tmp_path / "tree", "sent")
        await shared.exec("mkdir tree; mkfifo tree/pipe; touch tree/file")
        back = await shared.download("tree", tmp_path / "back")
        packed = await shared.archive(["tree"], tmp_path / "a.tar.gz")
        for transfer in (sent, back, packed):
            assert transfer.files == 1
            assert [(name.rpartition("/")[2], bool(reason)) for name, reason in transfer.omitted] == [("pipe", True)]

    async def test_copying_what_is_not_there_is_FileNotFoundError(  # noqa: N802 - an exception's name
        self, shared: Sandbox, tmp_path: Path
    ) -> None:
        """On either side, and nothing is created."""
        with pytest.raises(FileNotFoundError):
            await shared.upload(tmp_path / "absent", "made")
        with pytest.raises(FileNotFoundError):
            await shared.download("absent", tmp_path / "made")
        assert (await shared.list_dir(), _names(tmp_path)) == ([], [])

    @pytest.mark.parametrize(
        "make", ["head -c 300000 /dev/urandom > it", "mkdir it; touch it/{1..99}", "mkdir -p it/{1..99}"]
    )
    async def test_a_download_takes_no_more_than_it_may(self, shared: Sandbox, tmp_path: Path, make: str) -> None:
        """Limits on content and on entries, which count 4,096 bytes each; the sandbox stays usable."""
        await shared.exec(make)
        with pytest.raises(OSError, match="200000 bytes") as refused:
            await shared.download("it", tmp_path / "it", max_bytes=200_000)
        assert refused.value.errno == errno.EFBIG
        assert not (tmp_path / "it").is_file()
        await shared.download("it", tmp_path / "all", max_bytes=500_000)

    async def test_a_file_does_not_replace_a_directory(self, shared: Sandbox, tmp_path: Path) -> None:
        """In neither direction."""
        (tmp_path / "file").touch()
        (tmp_path / "directory").mkdir()
        await shared.exec("mkdir directory; touch file")
        with pytest.raises(IsADirectoryError):
            await shared.upload(tmp_path / "file", "directory")
        with pytest.raises(IsADirectoryError):
            await shared.download("file", tmp_path / "directory")

    async def test_a_link_at_the_target_is_replaced(self, shared: Sandbox, tmp_path: Path) -> None:
        """It is not followed, because an earlier download may have created it."""
        (tmp_path / "other").write_text("other", encoding="utf-8")
        (tmp_path / "target").symlink_to(tmp_path / "other")
        await shared.write_file("file", b"new")
        await shared.download("file", tmp_path / "target")
        assert (tmp_path / "target").read_bytes() == b"new"
        assert (tmp_path / "other").read_text(encoding="utf-8") == "other"

    async def test_a_cancelled_copy_leaves_no_part(self, shared: Sandbox, tmp_path: Path) -> None:
        """The target is unchanged or complete; no partial file remains, and the sandbox is usable."""
        await shared.exec("head -c 30000000 /dev/zero > large; echo -n old > target")
        (tmp_path / "target").write_text("old", encoding="utf-8")
        (tmp_path / "target").chmod(0o600)
        (tmp_path / "large").write_bytes(bytes(30_000_000))
        copies: list[Callable[[], Awaitable[object]]] = [
            lambda: shared.download("large", tmp_path / "target"),
            lambda: shared.upload(tmp_path / "large", "target"),
        ]

        async def tidy() -> bool:
            return [entry.path for entry in await shared.list_dir()] == ["large", "target"]

        for copy in copies:
            # Cancelled later and later until it finishes first: on any machine, some attempt interrupts the copy.
            seconds, is_over = 0.02, False
            while not is_over:
                is_over, seconds = await _is_over_after(seconds, copy), 2 * seconds
                assert (tmp_path / "target").stat().st_size in {3, 30_000_000}
                assert _names(tmp_path) == ["large", "target"]
                assert await eventually(tidy, seconds=self.patience)
                assert (await shared.stat("target")).size in {3, 30_000_000}

    async def test_an_archive_holds_what_was_named(self, shared: Sandbox, tmp_path: Path) -> None:
        """Files, directories and links as such, under the requested names; the hash is the archive's."""
        await shared.exec("mkdir -p d/e; echo -n one > d/e/f; ln -s e/f d/link; echo -n two > other; touch not-asked")
        packed = await shared.archive(["d", "other"], tmp_path / "a.tar.gz")
        with tarfile.open(tmp_path / "a.tar.gz", "r:gz") as archive:
            members = {member.name: member for member in archive.getmembers()}
            inside = archive.extractfile("d/e/f")
            assert inside is not None
            assert inside.read() == b"one"
        assert sorted(members) == ["d", "d/e", "d/e/f", "d/link", "other"]
        assert (members["d/link"].issym(), members["d/link"].linkname) == (True, "e/f")
        assert (packed.files, packed.bytes, packed.omitted) == (2, 6, ())
        assert packed.sha256 == _digest(tmp_path / "a.tar.gz")

    async def test_what_a_limit_keeps_out_of_an_archive_is_listed(self, shared: Sandbox, tmp_path: Path) -> None:
        """Every entry is in the archive or listed as omitted (hermes-agent dropped them silently)."""
        await shared.exec("for i in 1 2 3 4 5 6; do echo -n 12345 > f$i; done")
        names = [f"f{number}" for number in range(1, 7)]
        for limits in ({"max_entries": 2}, {"max_bytes": 12}):
            packed = await shared.archive(names, tmp_path / "a.tar.gz", **limits)
            with tarfile.open(tmp_path / "a.tar.gz", "r:gz") as archive:
                inside = archive.getnames()
            assert (packed.files, packed.bytes) == (2, 10)
            assert sorted([*inside, *(name for name, _ in packed.omitted)]) == names

    async def test_limits_that_are_just_kept_omit_nothing(self, shared: Sandbox, tmp_path: Path) -> None:
        """Exactly as many entries as allowed are not too many."""
        await shared.exec("echo -n 12345 | tee f1 > f2")
        packed = await shared.archive(["f1", "f2"], tmp_path / "a.tar.gz", max_entries=2, max_bytes=10)
        assert (packed.files, packed.omitted) == (2, ())

    async def test_a_missing_path_of_an_archive_is_an_omission(self, shared: Sandbox, tmp_path: Path) -> None:
        """With a reason; the other paths are in the archive."""
        await shared.exec("echo -n 1 > there")
        packed = await shared.archive(["absent", "there"], tmp_path / "a.tar.gz")
        assert [name for name, reason in packed.omitted if reason] == ["absent"]
        assert packed.files == 1

    async def test_copies_do_not_hold_commands_up(self, shared: Sandbox, tmp_path: Path) -> None:
        """A command returns while a large file is copied."""
        (tmp_path / "large").write_bytes(bytes(range(256)) * 160_000)
        copying = asyncio.create_task(shared.upload(tmp_path / "large", "large"))
        assert (await shared.exec("echo meanwhile", timeout=self.patience)).output == "meanwhile\n"
        assert (await copying).sha256 == _digest(tmp_path / "large")
