"""`hermes-core sandboxes`: which backends it asks, which get the options, and files that vanish meanwhile."""

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

ASKING = ("first", "second")
KEY = "sesame"


@pytest.fixture
def book(tmp_path):
    return LeaseBook(tmp_path / "leases")


@pytest.fixture
def notes(tmp_path, monkeypatch):
    # The sweep of `local` must not see what dead owners left on this machine.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(asking_backends, "NOTES", [])
    monkeypatch.setattr(asking_backends, "DURING", [])
    return asking_backends


@pytest.fixture
def command(book, capsys, notes):
    def call(*words, options=None):
        argv = ["-p", "asking_backends", "sandboxes", *words, "--lease-dir", str(book.directory)]
        argv += [] if options is None else ["--backend-options", json.dumps(options)]
        status = main(argv, environ={"HERMES_PLUGINS": "hermes-sandbox"})
        return status, *capsys.readouterr()

    return call


def write(book, backend, sandbox_id="s1", **changes):
    made = Lease.of_this_process(
        sandbox_id=sandbox_id, backend=backend, rollout_id=None, deadline=time.time() + 60, handle={"place": sandbox_id}
    )
    book.write(dataclasses.replace(made, **{"owner_start": 1, **changes}))


def built_backends(notes):
    """Return the backends that were created, each with its key."""
    return {name: key for name, what, key in notes.NOTES if what == "built"}


@pytest.fixture
def meddle(monkeypatch):
    """Call a function once, just before a lease is read."""

    def patch(name, happens):
        read, waiting = Path.read_bytes, [happens]

        def read_bytes(path):
            if path.name == name and waiting:
                waiting.pop()(path)
            return read(path)

        monkeypatch.setattr(Path, "read_bytes", read_bytes)

    return patch


def stale(path):
    """Raise the error of NFS for an open file that another machine has replaced or removed."""
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))


def removed_elsewhere(path):
    path.unlink()
    stale(path)


@pytest.mark.parametrize("words", [("ps",), ("ps", "--all"), ("gc",), ("gc", "--all"), ("kill", "--all")])
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


def test_the_options_reach_the_backend_that_is_named_and_no_other(book, command, notes):
    write(book, "first", "s1")
    write(book, "second", "s2")
    status, out, complaint = command("gc", "--all", "--backend", "second", options={"key": KEY})
    assert (status, complaint) == (0, "")
    assert sorted(out.splitlines()) == ["removed s1", "removed s2"]
    assert {(name, key) for name, what, key in notes.NOTES if what in {"built", "swept"}} == {
        ("first", None),
        ("second", KEY),
        ("made", None),
    }


def test_options_for_no_backend_by_name_are_those_of_local(book, command, notes, tmp_path):
    write(book, "first")
    status, out, complaint = command("gc", "--all", options={"root_dir": str(tmp_path)})
    assert (status, out, complaint) == (0, "removed s1\n", "")
    assert built_backends(notes) == {"first": None, "second": None, "made": None}


def test_options_that_local_does_not_have_reach_no_other_and_are_told(book, command, notes):
    write(book, "first", withheld=("key",), handle={"place": "locked"})
    status, _, complaint = command("gc", options={"key": KEY})
    assert (status, built_backends(notes), KEY in complaint) == (1, {"first": None}, False)
    assert "backend 'local' cannot be asked: backend:local has no option 'key'" in complaint
    assert "this one was made with key: --backend first --backend-options JSON" in complaint


def test_options_to_kill_with_are_refused_where_several_backends_could_have_them(book, command, notes):
    write(book, "first", "s1")
    write(book, "second", "s2")
    status, _, complaint = command("kill", "--all", options={"key": KEY})
    assert (status, notes.NOTES, len(book.read()[0])) == (2, [], 2)
    assert "sandboxes of first, second" in complaint
    assert "hermes-core sandboxes kill --backend NAME --backend-options JSON" in complaint


def test_options_to_kill_with_are_those_of_the_one_backend(book, command, notes):
    write(book, "first", "s1")
    assert command("kill", "s1", options={"key": KEY})[:2] == (0, "removed s1\n")
    assert built_backends(notes) == {"first": KEY}


def test_gc_for_one_backend_removes_and_asks_for_no_other(book, command, notes):
    write(book, "first", "s1")
    write(book, "second", "s2")
    assert command("gc", "--backend", "first", options={"key": KEY}) == (0, "removed s1\n", "")
    assert [note[:2] for note in notes.NOTES if note[1] not in {"built", "closed"}] == [
        ("first", "reclaimed"),
        ("first", "swept"),
    ]
    assert [lease.sandbox_id for lease in book.read()[0]] == ["s2"]


def test_ps_for_one_backend_lists_no_other(book, command):
    write(book, "first", "s1")
    write(book, "second", "s2")
    out = command("ps", "--backend", "second")[1]
    assert ("s1" in out, "s2" in out) == (False, True)


@pytest.mark.parametrize(
    ("wanted", "in_lease"),
    [("asking_backends:first", "first"), ("first", "asking_backends:first"), ("local:asking_backends:first", "first")],
)
def test_a_backend_may_be_named_with_its_plugin_in_front(book, command, notes, wanted, in_lease):
    """Leases have the bare name, and no lease was found; those of a pool's members have the name in the config."""
    for number in range(2):
        write(book, in_lease, f"s{number}")
        write(book, "second", f"other{number}")
    assert command("ps", "--backend", wanted)[1].count(f" {in_lease} ") == 2
    assert command("kill", "--backend", wanted, "s0", options={"key": KEY}) == (0, "removed s0\n", "")
    assert command("gc", "--backend", wanted, options={"key": KEY}) == (0, "removed s1\n", "")
    assert built_backends(notes) == {"first": KEY}
    assert sorted(lease.sandbox_id for lease in book.read()[0]) == ["other0", "other1"]


@pytest.mark.parametrize("words", [("ps",), ("gc",), ("kill",)])
def test_a_backend_named_with_a_plugin_that_does_not_declare_it_is_refused(book, command, words):
    write(book, "first")
    status, out, complaint = command(*words, "--backend", "hermes-sandbox:first")
    assert (status, out, len(book.read()[0])) == (2, "", 1)
    assert "'hermes-sandbox' declares no backend 'first'" in complaint


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("gc", "--backend", "plain"), "it keeps no leases"),
        (("gc", "--all", "--backend", "plain"), "it keeps no leases"),
        (("ps", "--all", "--backend", "plain"), "it keeps no leases"),
        (("ps", "--backend", "first"), "ps asks backends only with --all"),
        (("kill", "--backend", "second"), "no lease in"),
    ],
)
def test_a_named_backend_that_is_not_asked_is_told(book, command, notes, words, why):
    write(book, "first")
    status, _, complaint = command(*words, options={"key": KEY})
    assert status == 0
    assert f"backend {words[-1]!r} is not asked: {why}" in complaint
    assert KEY not in built_backends(notes).values()


def test_options_that_nobody_gets_are_told(book, command):
    for words, why in (("ps",), "ps asks backends only with --all"), (("kill", "--all"), "no lease in"):
        assert f"--backend-options are not used: {why}" in command(*words, options={"key": KEY})[2]


@pytest.mark.parametrize("words", [("gc",), ("gc", "--all"), ("ps",), ("ps", "--all"), ("kill",)])
def test_a_backend_that_nobody_knows_is_refused_with_those_that_are_near(book, command, words):
    write(book, "first")
    status, _, complaint = command(*words, "--backend", "frist")
    assert (status, "did you mean 'first'" in complaint, len(book.read()[0])) == (2, True, 1)


@pytest.mark.parametrize(("action", "what"), [("gc", "swept"), ("ps", "asked")])
def test_all_asks_nothing_of_backends_that_keep_no_leases(command, notes, action, what):
    status, _, complaint = command(action, "--all")
    assert (status, complaint) == (0, "")
    assert [note for note in notes.NOTES if note[1] in {"swept", "asked"}] == [(name, what, None) for name in ASKING]
    assert "plain" not in built_backends(notes)


def test_a_lease_may_name_a_backend_that_is_not_installed(book, command):
    write(book, "gone")
    status, out, _ = command("ps", "--backend", "gone")
    assert (status, "gone" in out) == (0, True)
    assert "s1 remains" in command("kill", "--backend", "gone")[2]


def test_what_had_to_be_built_to_see_that_it_keeps_no_leases_is_closed(command, notes):
    command("gc", "--all")
    assert [note for note in notes.NOTES if note[0] == "made"] == [("made", "built", None), ("made", "closed", None)]


def test_a_lease_of_a_backend_that_keeps_none_any_more_is_left_with_the_reason(book, command, notes):
    write(book, "plain")
    status, _, complaint = command("gc")
    assert (status, "s1 remains: backend 'plain' keeps no leases" in complaint) == (1, True)
    assert notes.NOTES[-1] == ("plain", "closed", None)


def test_probing_every_backend_takes_no_options(command, notes):
    status, _, complaint = command("probe", options={"key": KEY})
    assert (status, notes.NOTES) == (2, [])
    assert "hermes-core sandboxes probe BACKEND --backend-options JSON" in complaint


def test_a_lease_in_a_directory_of_nfs_is_claimed(book, monkeypatch):
    """NFS implements such a lock by byte ranges, so an exclusive one needs a file that is open for writing."""
    locked = fcntl.flock

    def flock(fd, how):
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        locked(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    write(book, "first")
    with book.claim("s1") as claimed:
        assert claimed


@pytest.mark.parametrize(("number", "claims"), [(errno.EACCES, True), (errno.ESTALE, False), (errno.ENOENT, False)])
def test_a_lease_that_cannot_be_opened_for_writing_is_claimed_by_reading_if_it_is_there(
    book, monkeypatch, number, claims
):
    really = os.open

    def open_one(path, flags, *more, **named):
        if str(path).endswith("s1.json") and flags & os.O_RDWR:
            raise OSError(number, os.strerror(number))
        return really(path, flags, *more, **named)

    write(book, "first")
    monkeypatch.setattr(os, "open", open_one)
    with book.claim("s1") as claimed:
        assert claimed is claims


def test_a_lease_that_cannot_be_opened_at_all_keeps_no_other_from_being_removed(book, command, monkeypatch):
    really = os.open

    def open_one(path, flags, *more, **named):
        if str(path).endswith("s1.json") and flags & os.O_RDWR:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return really(path, flags, *more, **named)

    for number in (1, 2):
        write(book, "first", f"s{number}")
    monkeypatch.setattr(os, "open", open_one)
    status, _, complaint = command("gc")
    assert status == 1
    assert "s1" in complaint
    assert "its lease cannot be opened: Input/output error" in complaint
    assert [path.name for path in book.directory.glob("*.json")] == ["s1.json"]
