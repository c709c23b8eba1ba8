"""What is taken out of a sandbox to be kept: ranges of files, and archives that say what is not in them."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import tarfile

import pytest
from copied_trees import Brake, is_writing, require_holes
from sandbox_support import sandbox as open_one

from hermes_sandbox.protocol.archives import TarWriter
from hermes_testing.watching import eventually


@pytest.fixture
async def plain():
    async with open_one() as opened:
        yield opened


def members(path):
    with tarfile.open(path) as archive:
        return {member.name: member for member in archive}


def content(path, name):
    with tarfile.open(path) as archive:
        file = archive.extractfile(name)
        assert file is not None
        return file.read()


async def test_an_archive_keeps_modes_times_links_and_names(plain, tmp_path):
    """hermes-agent's defect: symlinks were followed, and what they led to was archived in their place."""
    await plain.exec("mkdir -p out/empty; echo text >out/text; chmod 750 out/text; ln -s /etc/passwd out/link")
    await plain.exec(
        "touch -d @1234567890 out/text; ln out/text out/twin; echo odd >$'out/new\\nline\\xff'; ln -s out way"
    )
    made = await plain.archive(["out", "way"], tmp_path / "kept" / "a.tar.gz")
    found = members(tmp_path / "kept" / "a.tar.gz")
    assert list(found) == ["out", "out/empty", "out/link", "out/new\nline\udcff", "out/text", "out/twin", "way"]
    assert (found["out/link"].linkname, found["way"].linkname) == ("/etc/passwd", "out")
    assert (found["out/text"].mode, found["out/text"].mtime, found["out/text"].uid) == (0o750, 1234567890, 0)
    assert content(tmp_path / "kept" / "a.tar.gz", "out/twin") == b"text\n"
    assert (made.files, made.bytes, made.omitted) == (3, 14, ())


async def test_the_hash_is_of_the_archive_as_it_lies_there_and_the_same_again(plain, tmp_path):
    await plain.exec("mkdir out; seq 100000 >out/numbers")
    first = await plain.archive(["out"], tmp_path / "first")
    second = await plain.archive(["out"], tmp_path / "second")
    assert first == second
    assert first.sha256 == hashlib.sha256((tmp_path / "first").read_bytes()).hexdigest()


async def test_what_max_entries_keeps_out_is_listed_one_by_one(plain, tmp_path):
    """hermes-agent's defect: files above max_entries vanished silently; a list that long was "truncated"."""
    await plain.exec("mkdir out; touch out/{1..5}")
    why = "more entries than max_entries"
    made = await plain.archive(["out"], tmp_path / "a", max_entries=4)
    assert list(members(tmp_path / "a")) == ["out", "out/1", "out/2", "out/3"]
    assert made.omitted == (("out/4", why), ("out/5", why))
    assert (await plain.archive(["out"], tmp_path / "b", max_entries=6)).omitted == ()
    none = await plain.archive(["out", "out/1"], tmp_path / "c", max_entries=0)
    assert (members(tmp_path / "c"), none.omitted) == ({}, (("out", why), ("out/1", why)))


async def test_what_max_bytes_keeps_out_is_listed_and_smaller_files_are_still_taken(plain, tmp_path):
    require_holes(tmp_path)
    await plain.exec("mkdir out; truncate -s 100 out/a; truncate -s 4G out/b; truncate -s 50 out/c out/d")
    made = await plain.archive(["out", "out/d"], tmp_path / "a", max_bytes=150)
    assert list(members(tmp_path / "a")) == ["out", "out/a", "out/c"]
    assert made.omitted == (
        ("out/b", "its 4294967296 bytes exceed max_bytes"),
        ("out/d", "its 50 bytes exceed max_bytes"),
        ("out/d", "its 50 bytes exceed max_bytes"),
    )


async def test_what_is_not_there_or_no_file_is_listed(plain, tmp_path):
    await plain.exec("mkdir out; mkfifo out/pipe pipe; echo 1 >out/f")
    made = await plain.archive(["none", "out", "pipe", "out/f/below"], tmp_path / "a")
    assert list(members(tmp_path / "a")) == ["out", "out/f"]
    assert made.omitted == (
        ("none", "No such file or directory"),
        ("out/pipe", "a named pipe"),
        ("pipe", "a named pipe"),
        ("out/f/below", "Not a directory"),
    )


@pytest.mark.component("bwrap")
async def test_what_may_not_be_read_is_listed(tmp_path):
    async with open_one("bwrap") as sandbox:
        await sandbox.exec("mkdir out shut; touch out/{a,b} shut/a; chmod 0 out/a shut")
        made = await sandbox.archive(["out", "shut", "out/a"], tmp_path / "a")
        assert list(members(tmp_path / "a")) == ["out", "out/b"]
        denied = "Permission denied"
        assert made.omitted == (("out/a", denied), ("shut", denied), ("out/a", denied))


async def test_no_member_leads_out_of_where_an_archive_is_unpacked(plain, tmp_path):
    await plain.exec("mkdir -p sub; echo x >f; cd sub")
    absolute = f"{plain.workspace}/f"
    await plain.archive([absolute, "../workspace/f", "./sub/../f", "."], tmp_path / "a")
    assert sorted(members(tmp_path / "a")) == sorted([absolute.lstrip("/"), "workspace/f", "f", ".", "sub"])


async def test_an_archive_replaces_the_one_before_only_when_it_is_complete(plain, tmp_path, monkeypatch):
    (tmp_path / "a").write_text("old")
    await plain.exec("head -c 8000000 /dev/urandom >large; echo small >small")
    brake = Brake(monkeypatch, TarWriter, "add", free=3)
    task = asyncio.create_task(plain.archive(["large"], tmp_path / "a"))
    assert await eventually(brake.holds.is_set)
    assert is_writing(os.getpid(), tmp_path)
    task.cancel()
    brake.release()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"
    await plain.archive(["small"], tmp_path / "a")
    assert content(tmp_path / "a", "small") == b"small\n"


def test_an_archive_that_was_given_up_writes_into_nobody_else_s_file(tmp_path):
    writer = TarWriter(tmp_path / "a")
    writer.open()
    writer.begin("f", single=True)
    writer.file("f", 0o644, 0, 100_000)
    writer.data(memoryview(os.urandom(100_000)))
    writer.abort()
    # One of them gets the number that the archive's descriptor had.
    others = [(tmp_path / f"other{number}").open("wb") for number in range(8)]
    del writer
    gc.collect()
    for other in others:
        other.close()
    assert [path.name for path in tmp_path.iterdir() if path.stat().st_size] == []


async def test_negative_limits_are_refused(plain, tmp_path):
    with pytest.raises(ValueError, match="expected 0 or more"):
        await plain.archive(["."], tmp_path / "a", max_bytes=-1)
    assert list(tmp_path.iterdir()) == []


async def test_a_range_is_read_while_the_hash_of_a_copy_is_of_the_whole_file(plain, tmp_path):
    """hermes-agent's defect: the hash was of the cut-off data."""
    data = os.urandom(3_000_000)
    await plain.write_file("f", data)
    assert await plain.read_file("f", offset=1_000_000, length=10) == data[1_000_000:1_000_010]
    assert (await plain.download("f", tmp_path / "f")).sha256 == hashlib.sha256(data).hexdigest()


async def test_a_directory_with_just_as_many_entries_as_a_batch_is_listed_whole(plain):
    """hermes-agent's defect: a list was called truncated when its length was the limit exactly."""
    await plain.exec("mkdir d; touch d/{1..500}")
    assert len(await plain.list_dir("d")) == 500
