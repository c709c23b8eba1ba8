"""`hermes-core sandboxes`: whom it asks, who gets the options, and what vanishes while it looks."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import threading
import time
from pathlib import Path

import asking_backends
import pytest

from hermes_core.cli import main
from hermes_core.discovery import PluginSettings, load_plugins
from hermes_sandbox.leases.book import Lease, LeaseBook
from hermes_sandbox.leases.file_store import FileLeaseStore


@pytest.fixture
def book(tmp_path):
    return LeaseBook(tmp_path / "leases")


@pytest.fixture
def notes(tmp_path, monkeypatch):
    # The sweep of `local` is not to look at what dead owners left on this machine.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(asking_backends, "NOTES", [])
    monkeypatch.setattr(asking_backends, "DURING", [])
    return asking_backends


@pytest.fixture
def command(book, capsys, notes):
    def call(*words, options=None):
        argv = ["-p", "asking_backends", "sandboxes", *words, "--lease-dir", str(book.directory)]
        argv += [] if options is None else ["--backend-options", json.dumps(options)]
        status = main(argv, environ={"HERMES_PLUGINS": "hermes-agent-core,hermes-sandbox"})
        return status, *capsys.readouterr()

    return call


def write(book, backend, sandbox_id="s1", **changes):
    made = Lease.of_this_process(
        sandbox_id=sandbox_id, backend=backend, rollout_id=None, deadline=time.time() + 60, handle={"place": sandbox_id}
    )
    book.write(dataclasses.replace(made, **{"owner_start": 1, **changes}))


@pytest.fixture
def meddle(monkeypatch):
    """Let something happen to a lease when it is about to be read, once."""

    def patch(name, happens):
        read, waiting = Path.read_bytes, [happens]

        def read_bytes(path):
            if path.name == name and waiting:
                waiting.pop()(path)
            return read(path)

        monkeypatch.setattr(Path, "read_bytes", read_bytes)

    return patch


def stale(path):
    """Raise what NFS does where another machine has replaced or removed a file that is open here."""
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))


def removed_elsewhere(path):
    path.unlink()
    stale(path)


@pytest.mark.parametrize("words", [("ps",), ("gc",), ("kill", "--all")])
@pytest.mark.parametrize("happens", [Path.unlink, removed_elsewhere])
def test_a_lease_that_vanishes_before_it_is_read_is_no_problem(book, command, meddle, words, happens):
    write(book, "first", "gone")
    write(book, "first", "left")
    meddle("gone.json", happens)
    status, out, complaint = command(*words)
    assert (status, complaint) == (0, "")
    assert ("left" in out, "gone" in out) == (True, False)


def test_a_lease_that_is_replaced_elsewhere_while_it_is_read_is_read_again(book, command, meddle):
    write(book, "first")
    meddle("s1.json", stale)
    status, out, complaint = command("ps")
    assert (status, "s1" in out, complaint) == (0, True, "")


@pytest.mark.parametrize("words", [("ps",), ("gc",), ("kill", "--all")])
def test_a_lease_that_is_there_and_cannot_be_read_is_reported(book, command, words):
    write(book, "first")
    (book.directory / "folder.json").mkdir()
    assert "folder.json cannot be read: Is a directory" in command(*words)[2]


def test_a_directory_of_leases_that_cannot_be_listed_is_reported(book, command):
    book.directory.write_text("no directory")
    assert f"{book.directory} cannot be read: Not a directory" in command("gc")[2]


async def test_a_lease_that_vanishes_as_a_run_begins_is_no_problem(book, notes, meddle):
    write(book, "first")
    meddle("s1.json", Path.unlink)
    done = await FileLeaseStore.at(book.directory).collect(load_plugins(PluginSettings(extra=("asking_backends",))))
    assert (done.removed, done.failed, done.problems) == ([], {}, [])


def test_a_gc_in_the_middle_of_another_leaves_to_it_what_it_has(book, command, notes):
    write(book, "first")
    found = []

    def collect():
        found.append(command("gc", "--json"))

    def meanwhile():
        other = threading.Thread(target=collect)
        other.start()
        other.join()

    notes.DURING.append(meanwhile)
    collect()
    answers = [(status, json.loads(out)["removed"], json.loads(out)["problems"]) for status, out, _ in found]
    assert answers == [(0, [], []), (0, ["s1"], [])]
    assert [note for note in notes.NOTES if note[1] == "reclaimed"] == [("first", "reclaimed", "s1")]


def test_a_lease_in_a_directory_of_nfs_is_claimed(book, monkeypatch):
    """There a lock is one of bytes, and to have it alone takes a file that is open for writing."""
    locked = fcntl.flock

    def flock(fd, how):
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        locked(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    write(book, "first")
    with book.claim("s1") as claimed:
        assert claimed
