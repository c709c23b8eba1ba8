"""What the user of a slot owns goes with the slot, wherever it lies, and nothing of others does."""

from __future__ import annotations

import asyncio
import ctypes
import os
import tempfile
from pathlib import Path

import pytest
from sandbox_support import UID
from slot_agents import agent, open_slot, out, run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="slots have users of their own only under root")


@pytest.fixture
def place():
    # Not tmp_path: its parents are closed to the users of slots.
    with tempfile.TemporaryDirectory(prefix="hermes-test-") as folder:
        path = Path(folder)
        path.chmod(0o711)
        (path / "shared/inner/drop").mkdir(parents=True)
        (path / "sticky").mkdir()
        (path / "kept").mkdir()
        for name in ("shared/inner/drop", "kept"):
            (path / name).chmod(0o777)
        (path / "sticky").chmod(0o1777)
        yield path


async def user(client, place, number, **fields):
    """Open a slot with a user of its own, which is swept up after below `place`."""
    sweep = {"tops": [str(place)], "kept": [str(place / "kept")]}
    return await open_slot(client, place, uid=UID + number, gid=UID + number, umask=0o077, sweep=sweep, **fields)


def paths_owned_by(place, number=0):
    """Return what a user owns below `place`, as the names of the paths."""
    paths = (Path(folder, name) for folder, names, files in os.walk(place) for name in names + files)
    return sorted(str(path.relative_to(place)) for path in paths if path.lstat().st_uid == UID + number)


async def test_files_of_a_closed_slot_are_gone_everywhere_and_those_of_others_and_of_volumes_stay(place):
    """It leaves no note for the next one, in whatever directory of the image everybody may write to."""
    async with agent() as client:
        one, other = await user(client, place, 0), await user(client, place, 1)
        for slot in (one, other):
            await out(slot, f"cd {place}; for d in shared/inner/drop sticky kept; do echo note >$d/of-$(id -u); done")
        odd = "mkdir -p sticky/d/e; touch $'sticky/d/e/a\\nb' sticky/-rf; ln -s / sticky/d/out; mkfifo sticky/p"
        await out(one, f"cd {place}; {odd}; chmod 0 sticky/d/e; chmod 500 sticky/d")
        await one.aclose()
        assert one.left is None
        assert paths_owned_by(place) == [f"kept/of-{UID}"]
        assert [path for path in paths_owned_by(place, 1) if "/of-" in path] == [
            f"{name}/of-{UID + 1}" for name in ("kept", "shared/inner/drop", "sticky")
        ]


async def test_slots_that_close_together_are_all_swept_up_after(place):
    async with agent() as client:
        slots = [await user(client, place, number) for number in range(8)]
        await asyncio.gather(*(out(slot, f"mkdir {place}/sticky/$(id -u); ipcmk -S 1") for slot in slots))
        await asyncio.gather(*(slot.aclose() for slot in slots))
        assert [slot.left for slot in slots] == [None] * 8
        assert list((place / "sticky").iterdir()) == []
        assert [ipc_objects(UID + number) for number in range(8)] == [0] * 8


async def test_what_others_have_put_into_a_directory_of_a_closed_slot_stays_and_goes_with_them(place):
    async with agent() as client:
        one, other = await user(client, place, 0), await user(client, place, 1)
        await out(one, f"umask 0; cd {place}/sticky; mkdir open; mkdir -m 1777 open/stuck; touch open/mine")
        await out(other, f"cd {place}/sticky/open; mkdir sub; touch sub/yours stuck/yours")
        await one.aclose()
        assert paths_owned_by(place) == []
        assert [path for path in paths_owned_by(place, 1) if path.startswith("sticky")] == [
            "sticky/open", "sticky/open/stuck", "sticky/open/stuck/yours", "sticky/open/sub", "sticky/open/sub/yours",
        ]  # fmt: skip
        await other.aclose()
        assert list((place / "sticky").iterdir()) == []


async def test_a_link_to_a_file_of_the_image_keeps_no_directory_of_a_closed_slot(place):
    (place / "shared/inner/drop/open").touch()
    (place / "shared/inner/drop/open").chmod(0o666)
    async with agent() as client:
        one, other = await user(client, place, 0), await user(client, place, 1)
        linked = await run(one, f"mkdir {place}/sticky/d && ln {place}/shared/inner/drop/open {place}/sticky/d/link")
        assert linked[0] == 0
        await one.aclose()
        assert one.left is None
        assert list((place / "sticky").iterdir()) == []
        assert (place / "shared/inner/drop/open").stat().st_nlink == 1
        await other.aclose()


async def test_what_lies_in_a_directory_of_another_slot_is_found_there_now_or_when_that_one_ends(place):
    async with agent() as client:
        one, other = await user(client, place, 0), await user(client, place, 1)
        await out(other, f"umask 0; cd {place}/sticky; mkdir seen hidden")
        await out(one, f"cd {place}/sticky; mkdir seen/a hidden/b; touch seen/a/f hidden/b/f")
        await out(other, f"chmod 700 {place}/sticky/hidden")
        await one.aclose()
        assert one.left is None
        assert [path for path in paths_owned_by(place) if "seen" in path] == []
        await other.aclose()
        assert list((place / "sticky").iterdir()) == []


async def test_a_tree_that_no_path_reaches_to_the_end_of_is_deleted(place):
    script = "import os, sys\nos.chdir(sys.argv[1])\nfor _ in range(1000):\n os.mkdir('deep'); os.chdir('deep')\n"
    async with agent() as client:
        one = await user(client, place, 0)
        await one.upload({"op": "write", "path": "deep.py", "mode": None}, script.encode())
        dig = f"python3 deep.py {place}/sticky && cd {place}/sticky && mkdir {{a..z}}{{0..99}}"
        assert (await run(one, dig))[0] == 0
        await one.aclose()
        assert one.left is None
        assert list((place / "sticky").iterdir()) == []


async def test_system_v_objects_of_a_closed_slot_are_gone_and_those_of_others_stay(place):
    async with agent() as client:
        one, other = await user(client, place, 0), await user(client, place, 1)
        for slot in (one, other):
            assert (await run(slot, "ipcmk -M 4096 -Q -S 2"))[0] == 0
        assert [ipc_objects(UID), ipc_objects(UID + 1)] == [3, 3]
        await one.aclose()
        assert [ipc_objects(UID), ipc_objects(UID + 1)] == [0, 3]
        await other.aclose()
        assert ipc_objects(UID + 1) == 0


def ipc_objects(uid):
    """Return how many System V objects a user has made."""
    found = 0
    for kind in ("shm", "sem", "msg"):
        columns, *rows = [line.split() for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()]
        found += sum(int(row[columns.index("cuid")]) == uid for row in rows)
    return found


async def test_message_queues_that_no_directory_shows_cannot_be_made(place):
    if os.path.ismount("/dev/mqueue"):
        pytest.skip("this machine shows its queues in /dev/mqueue, from where they are removed")
    make = "import ctypes, os; print(ctypes.CDLL(None).mq_open(b'/hermes-%d' % os.getpid(), os.O_CREAT, 0o600, None))"
    async with agent() as client:
        assert await out(await user(client, place, 0), f'python3 -c "{make}"') == "-1\n"


async def test_what_cannot_be_deleted_is_told_to_whoever_closes_a_slot(place):
    async with agent() as client:
        one, other = await user(client, place, 0), await user(client, place, 1)
        await out(one, f"mkdir {place}/sticky/point")
        libc = ctypes.CDLL(None, use_errno=True)
        point = os.fsencode(place / "sticky/point")
        assert libc.mount(b"none", point, b"tmpfs", 0, b"uid=%d,size=4k" % UID) == 0
        try:
            await one.aclose()
            assert "sticky/point" in one.left
            await other.aclose()
            assert other.left == one.left
        finally:
            libc.umount2(point, 2)


async def test_a_slot_whose_time_is_over_is_swept_up_after_before_its_holder_is_told(place):
    async with agent() as client:
        slot = await user(client, place, 0)
        await out(slot, f"touch {place}/sticky/note")
        brief = await user(client, place, 1, lifetime=0.01)
        await out(slot, f"until ! test -d {brief.fields['workspace']}; do sleep 0.05; done")
        await brief.aclose()
        assert paths_owned_by(place, 1) == []
        await slot.aclose()
        assert paths_owned_by(place) == []
