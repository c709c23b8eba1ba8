"""The part of a command's output that is kept."""

from __future__ import annotations

import asyncio
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandbox_support import LEVELS, processes_of, resident
from sandbox_support import sandbox as open_one

from hermes_sandbox.agent.commands.capture import Ring
from hermes_testing.suites.backend.commands import most_held


@pytest.mark.parametrize("level", LEVELS)
async def test_streams_are_apart_and_one_after_the_other_and_binary_safe(level):
    async with open_one(level) as sandbox:
        result = await sandbox.exec("printf 'a\\0\\377'; echo err >&2; echo end; exit 5")
    assert result.stdout == b"a\0\xffend\n"
    assert result.stderr == b"err\n"
    assert result.output == "a\0\ufffdend\nerr\n"
    assert (result.exit_code, result.truncated, result.omitted_bytes) == (5, False, 0)


async def test_more_than_a_pipe_holds_is_read_while_the_command_runs():
    """hermes-agent's defect: more than 64 KB of output deadlocked until the timeout."""
    async with open_one() as sandbox:
        result = await sandbox.exec("head -c 100000 /dev/zero | tr '\\0' x; head -c 100000 /dev/zero >&2", timeout=120)
    assert (len(result.stdout), len(result.stderr), result.exit_code) == (100_000, 100_000, 0)


async def test_head_and_tail_are_kept_with_the_exact_number_of_missing_bytes():
    """hermes-agent's defect: one version lost the tail of long output, another its head."""
    async with open_one(output_limit=1000) as sandbox:
        result = await sandbox.exec("echo first; seq 100000; echo last")
    total = len("first\n") + sum(len(f"{n}\n") for n in range(1, 100_001)) + len("last\n")
    assert result.truncated
    assert result.omitted_bytes == total - 2000
    marker = f"\n[... {total - 2000} bytes omitted ...]\n"
    head, tail = result.output.split(marker)
    assert (len(head), len(tail)) == (1000, 1000)
    assert head.startswith("first\n1\n2\n")
    assert tail.endswith("99999\n100000\nlast\n")
    assert result.stdout.decode() == result.output


async def test_output_at_exactly_the_limit_is_not_truncated():
    async with open_one(output_limit=500) as sandbox:
        exact = await sandbox.exec("head -c 1000 /dev/zero")
        more = await sandbox.exec("head -c 1001 /dev/zero")
    assert (exact.truncated, exact.omitted_bytes, len(exact.stdout)) == (False, 0, 1000)
    assert (more.truncated, more.omitted_bytes) == (True, 1)


async def test_two_hundred_megabytes_cost_no_memory():
    """hermes-agent's defect: 200 MB of output took 621 MB of memory."""
    async with open_one() as sandbox:
        await sandbox.exec("seq 200000")
        agent = min(processes_of(sandbox.id))
        before = resident(agent)
        # In the caller, only Python's objects are counted: its process can grow because of other code in it.
        result, held = await most_held(sandbox.exec("head -c 209715200 /dev/zero", timeout=200))
        after = resident(agent)
    assert result.omitted_bytes == 209_715_200 - 2 * 65536
    assert after - before < 5 << 20
    assert held < 5 << 20


_BLOCKS = """
import os
for stream, size, letter in {writes!r}:
    data = letter.encode() * size
    while data:
        data = data[os.write(stream, data):]
"""


def _script(writes):
    return "python3 -c " + shlex.quote(_BLOCKS.format(writes=writes))


def _all_writes(writes):
    return "".join(letter * size for _, size, letter in writes)


@pytest.mark.parametrize("session", ["robust", "live"])
@pytest.mark.parametrize("level", LEVELS)
async def test_merged_streams_are_told_in_the_exact_order_of_their_writes(level, session):
    loop = "for i in {1..2000}; do echo o$i; echo e$i >&2; echo E$i >/dev/stderr; done"
    expected = "".join(f"o{n}\ne{n}\nE{n}\n" for n in range(1, 2001))
    async with open_one(level, session=session) as sandbox:
        for command in (loop, f"bash -c {shlex.quote(loop)}"):
            result = await sandbox.exec(command, merge_stderr=True)
            assert (result.output, result.stderr) == (expected, b"")
            assert result.stdout == expected.encode()


@pytest.mark.parametrize("level", LEVELS)
async def test_any_sequence_of_merged_writes_is_told_in_its_order(level):
    writes = st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(1, 90), st.sampled_from("abcdefgh")), max_size=14)

    async def check(sandbox, sequence):
        lines = "".join(f"printf %s {letter * size} >&{stream};" for stream, size, letter in sequence) or ":"
        assert (await sandbox.exec(lines, merge_stderr=True)).output == _all_writes(sequence)
        result = await sandbox.exec(lines)
        streams = [_all_writes([write for write in sequence if write[0] == stream]) for stream in (1, 2)]
        assert [result.stdout.decode(), result.stderr.decode()] == streams
        assert result.output == "".join(streams)

    async with open_one(level) as sandbox:
        loop = asyncio.get_running_loop()

        @settings(max_examples=25, deadline=None)
        @given(writes)
        def every(sequence):
            asyncio.run_coroutine_threadsafe(check(sandbox, sequence), loop).result(200)

        await asyncio.to_thread(every)


@pytest.mark.parametrize("merge_stderr", [True, False])
@pytest.mark.parametrize("sizes", [(1, 100), (4096, 7), (65537, 3), (200_001, 3), (8192, 8192)], ids=str)
async def test_writes_larger_than_a_pipe_lose_neither_a_byte_nor_their_order(sizes, merge_stderr):
    writes = [(1, sizes[0], "o"), (2, sizes[1], "e"), (1, sizes[0], "p"), (2, sizes[1], "f"), (1, 1, "q")]
    streams = [_all_writes([write for write in writes if write[0] == stream]) for stream in (1, 2)]
    async with open_one(output_limit=1 << 20) as sandbox:
        result = await sandbox.exec(_script(writes), timeout=120, merge_stderr=merge_stderr)
    expected = [_all_writes(writes), ""] if merge_stderr else streams
    assert [result.stdout.decode(), result.stderr.decode()] == expected
    assert result.output == "".join(expected)


@pytest.mark.parametrize("session", ["robust", "live"])
async def test_a_child_that_outlives_its_command_writes_nothing_into_the_next(session):
    async with open_one(session=session) as sandbox:
        for merge_stderr in (True, False):
            await sandbox.exec("(while :; do echo late; echo late >&2; done) &", merge_stderr=merge_stderr)
            for merged in (True, False):
                result = await sandbox.exec("echo a >&2; echo b; echo c >&2", merge_stderr=merged)
                expected = (b"a\nb\nc\n", b"") if merged else (b"b\n", b"a\nc\n")
                assert (result.stdout, result.stderr) == expected


@pytest.mark.parametrize("session", ["robust", "live"])
async def test_what_the_session_says_of_itself_is_in_the_merged_stream(session):
    async with open_one(session=session) as sandbox:
        result = await sandbox.exec("echo never", cwd="missing", merge_stderr=True)
    assert (result.exit_code, result.stderr) == (126, b"")
    assert result.output.endswith("missing: No such file or directory\n")


async def test_a_character_that_stdout_breaks_off_does_not_swallow_the_beginning_of_stderr():
    async with open_one() as sandbox:
        result = await sandbox.exec(r"printf 'a\303'; printf '\251b' >&2")
    assert result.output == "a\ufffd\ufffdb"


@pytest.mark.parametrize("level", LEVELS)
async def test_commands_see_no_signal_blocked_by_the_agent(level):
    async with open_one(level) as sandbox:
        result = await sandbox.exec("grep -E '^Sig(Pnd|Blk)|^ShdPnd' /proc/self/status")
    assert {int(line.split()[1], 16) for line in result.stdout.decode().splitlines()} == {0}


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 20), st.lists(st.binary(max_size=30), max_size=20))
def test_a_ring_keeps_both_ends_of_any_stream(limit, pieces):
    ring = Ring(limit)
    for piece in pieces:
        ring.add(piece)
    whole = b"".join(pieces)
    head, tail = ring.parts()
    assert ring.total == len(whole)
    if len(whole) <= 2 * limit:
        assert head + tail == whole
    else:
        assert head == whole[:limit]
        assert tail == whole[len(whole) - limit :]
