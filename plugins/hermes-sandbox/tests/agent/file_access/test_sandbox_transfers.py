"""Copies of files and whole trees, in and out of a sandbox."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from copied_trees import Brake, is_writing, litter, look, make_tree, require_holes
from sandbox_support import LEVELS, processes_of
from sandbox_support import sandbox as open_one

from hermes_core.contracts.errors import SandboxLostError
from hermes_sandbox.agent.file_access import packing
from hermes_sandbox.agent.file_access.packing import Packer
from hermes_sandbox.agent.file_access.unpacking import Unpacker
from hermes_testing.watching import eventually


@pytest.fixture(params=LEVELS)
async def sandbox(request):
    async with open_one(request.param) as opened:
        yield opened


@pytest.fixture
async def plain():
    async with open_one() as opened:
        yield opened


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def test_a_tree_comes_back_as_it_was(sandbox, tmp_path):
    make_tree(tmp_path / "tree")
    sent = await sandbox.upload(tmp_path / "tree", "a/tree")
    back = await sandbox.download("a/tree", tmp_path / "back")
    assert look(tmp_path / "back") == look(tmp_path / "tree")
    assert (tmp_path / "back" / "plain").stat().st_nlink == 1
    assert sent == back
    assert (sent.files, sent.omitted) == (11, ())


async def test_commands_see_what_was_sent(sandbox, tmp_path):
    make_tree(tmp_path / "tree")
    await sandbox.upload(tmp_path / "tree", "tree")
    result = await sandbox.exec("cd tree; ./run; cat ./plain; readlink link; stat -c %a deep run; stat -c %Y plain")
    assert result.output == "ran\nplaindeep/er\n755\n750\n1234567890\n"


@pytest.mark.parametrize("size", [0, 1, (1 << 19) - 1, 1 << 19, (1 << 19) + 1, 5 << 20])
async def test_a_file_of_any_size_comes_back_exactly(plain, tmp_path, size):
    (tmp_path / "f").write_bytes(os.urandom(size))
    (tmp_path / "f").chmod(0o640)
    sent = await plain.upload(tmp_path / "f", "new/f")
    back = await plain.download("new/f", tmp_path / "also" / "new")
    assert sent == back
    assert (sent.files, sent.bytes, sent.sha256) == (1, size, sha256(tmp_path / "f"))
    assert (tmp_path / "also" / "new").read_bytes() == (tmp_path / "f").read_bytes()
    assert ((tmp_path / "also" / "new").stat().st_mode, (await plain.stat("new/f")).mode) == (0o100640, 0o640)


async def test_ten_thousand_small_files_are_one_copy(plain, tmp_path):
    await plain.exec("mkdir -p many/{1..100}; for d in many/*; do (cd $d; echo $d | tee {1..100} >/dev/null); done")
    copied = await plain.download("many", tmp_path / "many")
    assert (copied.files, copied.omitted) == (10_000, ())
    assert (await plain.upload(tmp_path / "many", "again")).sha256 == copied.sha256
    assert (await plain.exec("diff -r many again && find again -type f | wc -l")).output == "10000\n"


async def test_a_tree_far_deeper_than_descriptors_go_is_copied(plain, tmp_path):
    await plain.exec("mkdir -p $(printf 'd/%.0s' {1..1500}); echo bottom >d/d/d/f")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, hard))  # noqa: PTH208 - counts names
    try:
        there = await plain.download("d", tmp_path / "d")
        back = await plain.upload(tmp_path / "d", "e")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        # Too deep for pytest, which fails when it deletes the folders of old runs.
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)
    assert there == back
    assert (await plain.exec("find e -type d | wc -l; cat e/d/d/f")).output == "1500\nbottom\n"


async def test_paths_of_copies_are_those_of_commands(sandbox, tmp_path):
    """hermes-agent's defect: bash said /workspace, the file calls denied it and answered with host paths."""
    (tmp_path / "f").write_text("one")
    await sandbox.exec("mkdir -p sub elsewhere; ln -s elsewhere way; cd sub; echo old >old; ln -s old link")
    await sandbox.upload(tmp_path / "f", f"{sandbox.workspace}/absolute")
    await sandbox.upload(tmp_path / "f", "way/../up")
    await sandbox.upload(tmp_path / "f", "way/f")
    await sandbox.upload(tmp_path / "f", "sub/link")
    assert (await sandbox.exec("cat ../absolute ../up ../elsewhere/f old; test -L link")).output == "one" * 4
    await sandbox.download("sub/link", tmp_path / "link")
    await sandbox.download("way", tmp_path / "way")
    assert (tmp_path / "link").read_text() == "one"
    assert [*look(tmp_path / "way")] == ["f", "."]


async def test_a_directory_is_merged_into_one_that_is_there(plain, tmp_path):
    for name, content in (("t/both", "new"), ("t/sub/new", "new")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    await plain.exec("mkdir -m 700 -p t/sub; echo -n old | tee t/both >t/sub/old; ln -s both t/link")
    await plain.upload(tmp_path / "t", "t")
    assert (await plain.exec("cd t; cat both sub/new sub/old; readlink link; stat -c %a sub")).output == (
        "newnewoldboth\n700\n"
    )


@pytest.mark.parametrize(
    ("there", "error"),
    [("mkdir -p t/x", IsADirectoryError), ("mkdir -p t; ln -s /tmp t/d", NotADirectoryError)],
)
async def test_a_copy_puts_nothing_in_the_place_of_something_of_another_kind(plain, tmp_path, there, error):
    (tmp_path / "t" / "d").mkdir(parents=True)
    (tmp_path / "t" / "x").write_text("x")
    await plain.exec(there)
    with pytest.raises(error, match="in it") as caught:
        await plain.upload(tmp_path / "t", "t")
    assert caught.value.filename == "t"


async def test_what_is_no_file_is_left_out_and_told_exactly(plain, tmp_path):
    await plain.exec("mkdir -p t/sub; mkfifo t/sub/pipe; echo x >t/sub/file; ln -s /dev/zero t/zero")
    await plain.exec("python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"t/socket\")'")
    there = await plain.download("t", tmp_path / "t")
    assert there.omitted == (("socket", "a socket"), ("sub/pipe", "a named pipe"))
    assert sorted(look(tmp_path / "t")) == [".", "sub", "sub/file", "zero"]
    os.mkfifo(tmp_path / "t" / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "t" / "sock"))
        back = await plain.upload(tmp_path / "t", "back")
    assert back.omitted == (("fifo", "a named pipe"), ("sock", "a socket"))
    assert (back.files, (await plain.exec("ls back")).output) == (1, "sub\nzero\n")


@pytest.mark.component("bwrap")
async def test_what_may_not_be_read_is_left_out_and_told_exactly(tmp_path):
    async with open_one("bwrap") as sandbox:
        await sandbox.exec("mkdir -p t/{shut,dark,open}; touch t/{shut,dark,open}/{a,b}; chmod 0 t/shut t/open/a")
        await sandbox.exec("chmod 444 t/dark")
        copied = await sandbox.download("t", tmp_path / "t")
        denied = "Permission denied"
        assert copied.omitted == (("dark", denied), ("open/a", denied), ("shut", denied))
        assert sorted(look(tmp_path / "t")) == [".", "open", "open/b"]
        with pytest.raises(PermissionError):
            await sandbox.download("t/shut", tmp_path / "shut")
        await sandbox.exec("chmod -R u+rwx t")


@pytest.mark.parametrize(
    ("path", "error"),
    [("missing", FileNotFoundError), ("pipe", OSError), ("file/below", NotADirectoryError), ("a\0b", ValueError)],
)
async def test_errors_of_a_download_are_the_built_in_ones_and_name_the_path(plain, tmp_path, path, error):
    await plain.exec("mkfifo pipe; touch file")
    with pytest.raises(error) as caught:
        await plain.download(path, tmp_path / "x")
    assert getattr(caught.value, "filename", path) == path
    assert list(tmp_path.iterdir()) == []


async def test_errors_of_an_upload_say_which_side_they_are_of(plain, tmp_path):
    await plain.exec("mkdir folder; touch file; mkfifo pipe")
    with pytest.raises(FileNotFoundError) as caught:
        await plain.upload(tmp_path / "none", "x")
    assert caught.value.filename == str(tmp_path / "none")
    (tmp_path / "f").touch()
    for path, error in (("folder", IsADirectoryError), ("file/below", OSError), ("pipe", OSError)):
        with pytest.raises(error) as caught:
            await plain.upload(tmp_path / "f", path)
        assert caught.value.filename == path
    with pytest.raises(IsADirectoryError):
        await plain.download("file", tmp_path)
    with pytest.raises(NotADirectoryError):
        await plain.upload(tmp_path, "file")


@pytest.mark.parametrize("when", ["2300-01-01", "9999-12-31", "1903-02-01"])
async def test_any_time_of_a_file_is_kept(plain, tmp_path, when):
    """A time that 64 bits of nanoseconds cannot hold would have ended the agent."""
    await plain.exec(f"mkdir t; touch -d {when} t/f t")
    await plain.download("t", tmp_path / "t")
    await plain.upload(tmp_path / "t", "back")
    times = (await plain.exec("stat -c %Y t back t/f back/f")).output.split()
    assert len(set(times)) == 1
    assert (tmp_path / "t" / "f").stat().st_mtime == int(times[0])
    await plain.archive(["t"], tmp_path / "a")


async def test_a_file_that_grows_is_copied_as_long_as_it_was_and_one_that_shrinks_is_told(tmp_path):
    (tmp_path / "t").mkdir()
    for name in "ab":
        (tmp_path / "t" / name).write_bytes(bytes(1 << 20))
    omitted = []
    packer = Packer(tmp_path / "t", follow=True, omitted=omitted)
    unpacker = Unpacker(tmp_path / "copy")
    unpacker.add(packer.take())  # the first half of a
    os.truncate(tmp_path / "t" / "a", 700_000)
    with (tmp_path / "t" / "b").open("ab") as file:
        while not packer.ended:
            unpacker.add(packer.take())
            file.write(b"more")
            file.flush()
    unpacker.commit(packer.digest.hexdigest())
    assert omitted == unpacker.skipped == [("a", f"its last {(1 << 20) - 700_000} bytes disappeared during the copy")]
    assert {name: entry[2] for name, entry in look(tmp_path / "copy").items()} == {
        ".": None,
        "a": bytes(700_000),
        "b": bytes(1 << 20),
    }


@pytest.fixture
def endless(tmp_path, monkeypatch):
    """Return a function that starts to upload what a test does not see the end of, and returns that under way."""
    require_holes(tmp_path)
    with (tmp_path / "endless").open("wb") as file:
        file.truncate(4 << 30)
    # A million pieces, each of them a small hole.
    monkeypatch.setattr(packing, "LONGEST_HOLE", 1 << 12)
    monkeypatch.setattr(packing, "_HOLE_COST", packing._RECORDS)
    given = []

    def count(packer, *size, take=Packer.take):
        given.append(packer)
        return take(packer, *size)

    monkeypatch.setattr(Packer, "take", count)

    async def start(sandbox):
        task = asyncio.create_task(sandbox.upload(tmp_path / "endless", "endless"))
        # No more than four are on their way, so that most of these have arrived.
        assert await eventually(lambda: len(given) > 20 or task.done())
        assert not task.done(), task
        return task

    return start


async def test_renewal_in_the_middle_of_a_copy_leaves_no_part_of_a_file(sandbox, endless):
    task = await endless(sandbox)
    await sandbox.renew()
    with pytest.raises(SandboxLostError):
        await task
    assert await sandbox.list_dir() == []


async def test_files_without_a_size_are_copied_whole(plain, tmp_path):
    copied = await plain.download("/proc/self/comm", tmp_path / "comm")
    assert copied.bytes == len((tmp_path / "comm").read_bytes()) > 0


def descriptors(pids):
    return {pid: len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids}


async def test_a_copy_cancelled_in_the_middle_leaves_no_part_of_a_file_and_nothing_open(plain, tmp_path):
    await plain.exec("mkdir out; head -c 30000000 /dev/zero | tee out/{1..3} >out/4")
    (tmp_path / "in").mkdir()
    for name in "abc":
        (tmp_path / "in" / name).write_bytes(bytes(30_000_000))
    await plain.stat(".")
    # To any user but root the agent does not show its descriptors.
    before = descriptors([os.getpid(), *(processes_of(plain.id) if os.geteuid() == 0 else ())])
    for copy in (lambda: plain.upload(tmp_path / "in", "new"), lambda: plain.download("out", tmp_path / "out")):
        # Cut off later and later until it was over before: somewhere between a copy is under way on any machine.
        seconds, done = 0.0, set()
        while not done:
            assert seconds < 60, "a copy does not come to its end"
            task = asyncio.create_task(copy())
            done, _ = await asyncio.wait({task}, timeout=seconds)
            task.cancel()
            await asyncio.gather(task, return_exceptions=not done)
            seconds = 2 * seconds or 0.005
    assert await eventually(lambda: descriptors(before) == before)
    assert litter(tmp_path) == []
    assert (await plain.exec("find . -name '.hermes-*'; find . -type f ! -size 30000000c")).output == ""
    await plain.upload(tmp_path / "in", "new")


async def test_a_sandbox_lost_in_the_middle_leaves_no_part_of_a_file_here(plain, tmp_path, monkeypatch):
    await plain.exec("head -c 8000000 /dev/zero >large")
    brake = Brake(monkeypatch, Unpacker, "add", free=3)
    task = asyncio.create_task(plain.download("large", tmp_path / "large"))
    assert await eventually(brake.holds.is_set)
    assert is_writing(os.getpid(), tmp_path)
    with pytest.raises(SandboxLostError):
        await plain.exec("kill -9 $PPID; sleep 60")
    brake.release()
    with pytest.raises(SandboxLostError):
        await task
    assert list(tmp_path.iterdir()) == []


async def test_an_agent_killed_in_the_middle_leaves_no_part_of_a_file_inside(plain, endless):
    task = await endless(plain)
    with pytest.raises(SandboxLostError):
        await plain.exec("kill -9 $PPID; sleep 60")
    with pytest.raises(SandboxLostError):
        await task
    assert list(Path(plain.workspace).iterdir()) == []


async def test_other_calls_are_served_during_a_copy(plain, tmp_path, monkeypatch):
    require_holes(tmp_path)
    await plain.exec("truncate -s 4G large")
    # Of 64 pieces; the copy does not end before the other calls have been answered, however slow they are.
    brake = Brake(monkeypatch, Unpacker, "add", free=40)
    task = asyncio.create_task(plain.download("large", tmp_path / "large"))
    assert await eventually(lambda: is_writing(os.getpid(), tmp_path) or task.done())
    assert (await plain.exec("echo on")).output == "on\n"
    assert (await plain.stat("large")).size == 4 << 30
    assert not task.done()
    task.cancel()
    brake.release()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_full_disk_in_the_sandbox_is_an_error_that_says_so_and_leaves_nothing(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    python = tmp_path / "python"
    script = f'mount -t tmpfs -o size=3m small {small} && exec {sys.executable} "$@"'
    python.write_text(f"#!/bin/sh\nexec unshare -Urm sh -c '{script}' sh \"$@\"\n")
    python.chmod(0o755)
    if subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted in a namespace of one's own here")
    (tmp_path / "big").write_bytes(os.urandom(5 << 20))
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "f").write_bytes(os.urandom(2 << 20))
    (tmp_path / "tree" / "g").write_bytes(os.urandom(2 << 20))
    async with open_one(options={"python": str(python)}) as sandbox:
        for source, path in ((tmp_path / "big", small / "big"), (tmp_path / "tree", small)):
            with pytest.raises(OSError, match="No space left on device") as caught:
                await sandbox.upload(source, str(path))
            assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
        assert [entry.path for entry in await sandbox.list_dir(str(small))] == ["f"]


async def test_a_file_size_limit_holds_for_copies_too(tmp_path):
    (tmp_path / "big").write_bytes(bytes(2_000_000))
    async with open_one(file_size_mb=1) as sandbox:
        with pytest.raises(OSError, match="File too large"):
            await sandbox.upload(tmp_path / "big", "big")
        assert await sandbox.list_dir() == []
