"""The pipes that the commands of a live session share always belong to one command at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandbox_support import sandbox as open_one


@pytest.fixture
async def live():
    async with open_one(session="live") as opened:
        yield opened


def state_files(sandbox):
    return sorted(Path(sandbox.workspace).parent.glob("state-*/[oe][ur][tr]-*"))


async def test_commands_that_leave_nothing_behind_use_the_same_pipes(live):
    await live.exec("true")
    first = state_files(live)
    results = [await live.exec(f"echo {n}; /bin/echo e{n} >&2; exec 9>/dev/null") for n in range(20)]
    assert [(result.stdout, result.stderr) for result in results] == [(b"%d\n" % n, b"e%d\n" % n) for n in range(20)]
    assert len(first) == 2
    assert state_files(live) == first


async def test_a_command_never_gets_what_a_child_of_another_one_writes(live):
    await live.exec("(while :; do echo late; echo late >&2; done) &")
    outputs = [(await live.exec(f"echo {n}; /bin/echo e{n} >&2")) for n in range(20)]
    assert [(result.stdout, result.stderr) for result in outputs] == [(b"%d\n" % n, b"e%d\n" % n) for n in range(20)]


async def test_pipes_that_something_still_holds_do_not_pile_up(live):
    for n in range(10):
        assert (await live.exec(f"sleep 300 & echo {n}")).stdout == b"%d\n" % n
    await live.exec("kill $(jobs -p); wait")
    assert len(state_files(live)) <= 2


@pytest.mark.parametrize(
    "damage",
    ["rm -rf ../state-*", "rm -f ../state-*/*", "for each in ../state-*/*; do mv $each x; touch $each; done"],
)
async def test_a_session_whose_files_were_destroyed_goes_on(live, damage):
    await live.exec("X=kept")
    await live.exec(damage)
    results = [await live.exec("echo $X; echo error >&2; (exit 3)") for _ in range(2)]
    assert [(r.stdout, r.stderr, r.exit_code) for r in results] == [(b"kept\n", b"error\n", 3)] * 2


async def test_much_output_on_both_streams_comes_whole_and_does_not_wait(live):
    command = "head -c 3000000 /dev/zero | tr '\\0' o; head -c 3000000 /dev/zero | tr '\\0' e >&2; echo end"
    async with open_one(session="live", output_limit=8 << 20) as roomy:
        for _ in range(3):
            result = await roomy.exec(command, timeout=60)
            assert (len(result.stdout), len(result.stderr)) == (3_000_004, 3_000_000)
            assert result.stdout.endswith(b"oend\n")


async def test_output_of_a_substituted_process_that_ends_a_little_later_is_there(live):
    for n in range(10):
        assert (await live.exec(f"echo {n} > >(cat; echo done)")).stdout == b"%d\ndone\n" % n
