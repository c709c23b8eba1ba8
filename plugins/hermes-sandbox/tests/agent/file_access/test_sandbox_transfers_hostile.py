"""Copies from a sandbox whose agent has been taken over: nothing it sends leaves the target."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from copied_trees import Peer, connect_peer, file_records, link_record, litter, look, tree_records

from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_sandbox.agent.file_access.archive_format import (
    DATA,
    DIRECTORY,
    END,
    FILE,
    FILE_END,
    HOLE,
    LEAVE,
    LONGEST_HOLE,
    OMITTED,
    entry_record,
)
from hermes_sandbox.protocol.transfers import archive, download, upload


@pytest.fixture
def place(tmp_path):
    """A target with something beside it that must stay as it is."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_text("kept")
    yield tmp_path / "target"
    assert {path: path.read_text() for path in (tmp_path / "outside").iterdir()} == {
        tmp_path / "outside" / "kept": "kept"
    }
    assert {path.name for path in tmp_path.iterdir()} <= {"outside", "target"}
    assert litter(tmp_path) == []


async def fetch(records, target, **options):
    async with connect_peer(Peer(records, **options)) as agent:
        return await download(agent, "there", target)


@pytest.mark.parametrize("name", [b"..", b".", b"", b"../outside/kept", b"/etc/x", b"a/b", b"nul\0", b"n" * 5000])
@pytest.mark.parametrize("kind", ["file", "directory", "symlink"])
async def test_a_name_that_is_more_than_a_name_is_refused(place, name, kind):
    record = {
        "file": file_records(name, b"gotcha"),
        "directory": entry_record(DIRECTORY, name) + entry_record(LEAVE),
        "symlink": link_record(name, b"x"),
    }[kind]
    with pytest.raises(BackendError, match="the copy of there is corrupt"):
        await fetch(tree_records(record), place)


async def test_a_directory_is_not_entered_through_a_symlink_that_came_before_it(place):
    inside = entry_record(DIRECTORY, b"way") + file_records(b"kept", b"changed") + entry_record(LEAVE)
    with pytest.raises(NotADirectoryError, match="'way' in it"):
        await fetch(tree_records(link_record(b"way", b"../outside"), inside), place)


async def test_a_file_replaces_a_symlink_that_came_before_it(place):
    records = tree_records(link_record(b"way", b"../outside/kept"), file_records(b"way", b"changed"))
    await fetch(records, place)
    assert not (place / "way").is_symlink()
    assert (place / "way").read_text() == "changed"


async def test_a_symlink_of_an_earlier_copy_is_not_written_through_by_a_later_one(place):
    await fetch(tree_records(link_record(b"way", b"../outside"), link_record(b"file", b"../outside/kept")), place)
    with pytest.raises(NotADirectoryError, match="A symlink is not followed"):
        await fetch(tree_records(file_records(b"kept", b"changed")), place / "way")
    content = file_records(b"", b"changed") + entry_record(END)
    await fetch(content, place / "file", single=True, sha256=hashlib.sha256(b"changed").hexdigest())
    assert (place / "file").read_text() == "changed"


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6777, 0o100755])
async def test_no_copy_runs_with_the_rights_of_its_owner(place, mode):
    await fetch(tree_records(file_records(b"tool", b"x", mode=mode & 0xFFFF)), place)
    assert (place / "tool").stat().st_mode == 0o100000 | mode & 0o777


MISTAKES = {
    "more data than the size": file_records(b"f", b"four", size=3),
    "a hole beyond the size": entry_record(FILE, b"f", number=1) + entry_record(HOLE, number=2),
    "an endless hole": entry_record(FILE, b"f", number=1 << 62) + entry_record(HOLE, number=LONGEST_HOLE + 1),
    "data without a file": entry_record(DATA, number=3) + b"abc",
    "a file in a file": entry_record(FILE, b"f", number=1) + file_records(b"g"),
    "the end of no file": entry_record(FILE_END),
    "one step out": entry_record(LEAVE) + file_records(b"kept", b"changed"),
    "two steps out": entry_record(LEAVE) * 2,
    "a second root": entry_record(LEAVE) + entry_record(DIRECTORY),
    "an unknown kind": entry_record(b"?", b"x"),
    "a symlink to nothing": link_record(b"x", b""),
    "a symlink with a NUL": link_record(b"x", b"a\0b"),
    "something after the end": entry_record(LEAVE) + entry_record(END) + file_records(b"f"),
    "a torn record": entry_record(FILE, b"f")[:-3],
    "an endless name": entry_record(OMITTED)[:3] + b"\xff" * 8 + bytes(16),
}


@pytest.mark.parametrize("records", MISTAKES.values(), ids=MISTAKES)
async def test_what_no_honest_agent_sends_is_an_error_and_leaves_no_part_of_a_file(place, records):
    with pytest.raises(BackendError, match="the copy of there is corrupt"):
        await fetch(entry_record(DIRECTORY, mode=0o755) + records, place)


async def test_a_file_with_another_hash_does_not_replace_the_one_that_is_there(place):
    place.write_text("old")
    with pytest.raises(BackendError, match="damaged in transit"):
        await fetch(file_records(b"", b"new") + entry_record(END), place, single=True, sha256="0" * 64)
    assert place.read_text() == "old"


async def test_a_single_file_of_holes_keeps_nobody_hashing(place):
    """A sender that is honest ends a piece after five."""
    holes = entry_record(HOLE, number=LONGEST_HOLE) * 9
    records = entry_record(FILE, number=9 * LONGEST_HOLE) + holes + entry_record(FILE_END) + entry_record(END)
    with pytest.raises(BackendError, match="more than 8 holes at once"):
        await fetch(records, place, single=True)
    assert not place.exists()


async def test_a_directory_instead_of_a_file_is_refused(place):
    with pytest.raises(BackendError, match="expected a record of a file"):
        await fetch(tree_records(), place, single=True)
    assert not place.exists()


async def test_a_list_of_omissions_without_end_is_given_up(place):
    records = entry_record(DIRECTORY, mode=0o755) + entry_record(OMITTED, b"x", b"y") * 100_001
    with pytest.raises(BackendError, match="more than 100000 entries of there cannot be copied"):
        await fetch(records, place, end=False)


class InPieces(Peer):
    """Sends one piece after another, and then an end."""

    def __init__(self, pieces):
        super().__init__()
        self.pieces = [entry_record(DIRECTORY, mode=0o755), *pieces]

    def answer(self, header):
        if header["op"] != "take":
            return super().answer(header)
        piece = self.pieces.pop(0) if self.pieces else b""
        return {"end": not piece, "sha256": "0" * 64}, piece


DEEP = b"".join(entry_record(DIRECTORY, b"d" * 200, mode=0o755) for _ in range(15))
LOST = b"".join(entry_record(FILE, b"f%d" % number, number=1) + entry_record(FILE_END) for number in range(6000))
LONG = {
    "long names": [entry_record(OMITTED, b"x" * (1 << 20), b"y")] * 20,
    "long reasons": [entry_record(OMITTED, b"x", b"y" * 4096) * 1000] * 5,
    "files far down that lost something": [DEEP, LOST],
}


@pytest.mark.parametrize("pieces", LONG.values(), ids=LONG)
async def test_omissions_that_are_long_are_given_up_before_they_are_many(place, pieces):
    async with connect_peer(InPieces(pieces)) as agent:
        with pytest.raises(BackendError, match="more than 16 MiB of entries of there cannot be copied"):
            await download(agent, "there", place)
    async with connect_peer(InPieces(pieces)) as agent:
        with pytest.raises(BackendError, match="more than 16 MiB of entries of there cannot be copied"):
            await archive(agent, ["there"], place.with_name("packed"), max_bytes=None, max_entries=None)


async def test_a_sender_that_never_ends_is_left_by_cancelling(place):
    peer = Peer(entry_record(DIRECTORY, mode=0o755) + file_records(b"f", b"abc", size=9)[:-3], end=False)
    async with connect_peer(peer) as agent:
        copy = asyncio.create_task(download(agent, "there", place))
        while peer.asked < 50:
            await asyncio.sleep(0)
        copy.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copy
    assert [*look(place)] == ["."]


async def test_a_sender_that_goes_away_in_the_middle_leaves_no_part_of_a_file(place):
    peer = Peer(entry_record(DIRECTORY, mode=0o755) + file_records(b"f", b"abc", size=9)[:-3], end=False)
    async with connect_peer(peer) as agent:
        copy = asyncio.create_task(download(agent, "there", place))
        while peer.asked < 50:
            await asyncio.sleep(0)
        agent.fail("it was shot")
        with pytest.raises(SandboxLostError, match="it was shot"):
            await copy
    assert [*look(place)] == ["."]


async def test_what_is_sent_to_a_receiver_that_takes_nothing_is_a_few_pieces(tmp_path):
    (tmp_path / "big").write_bytes(bytes(32 << 20))
    peer = Peer()
    peer.silent_to = frozenset({"give"})
    async with connect_peer(peer) as agent:
        copy = asyncio.create_task(upload(agent, tmp_path / "big", "there"))
        while peer.given < 4 << 19:
            await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
        assert peer.given < 3 << 20
        agent.fail("it was shot")
        with pytest.raises(SandboxLostError):
            await copy


async def test_what_is_asked_of_a_sender_that_sends_nothing_is_a_few_pieces(place):
    peer = Peer()
    peer.silent_to = frozenset({"take"})
    async with connect_peer(peer) as agent:
        copy = asyncio.create_task(download(agent, "there", place))
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(agent._pending) <= 4  # what the sender would have to answer
        agent.fail("it was shot")
        with pytest.raises(SandboxLostError):
            await copy


@pytest.mark.parametrize(("field", "value"), [("max_bytes", 2), ("max_entries", 1)])
async def test_an_archive_has_no_more_than_was_asked_for_whatever_is_sent(place, field, value):
    limits = {"max_bytes": None, "max_entries": None, field: value}
    async with connect_peer(Peer(tree_records(file_records(b"f", b"abc")))) as agent:
        with pytest.raises(BackendError, match="more than requested"):
            await archive(agent, ["there"], place, **limits)
    assert not place.exists()


async def test_what_a_file_is_said_to_have_lost_counts_as_well(place):
    """It becomes zeros in the archive, which would be written for years."""
    lost = entry_record(FILE, b"f", number=1 << 60) + entry_record(FILE_END)
    async with connect_peer(Peer(tree_records(lost))) as agent:
        with pytest.raises(BackendError, match="more than requested"):
            await archive(agent, ["there"], place, max_bytes=1 << 20, max_entries=None)
    assert not place.exists()
