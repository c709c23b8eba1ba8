"""What is kept of a command's output."""

from __future__ import annotations

import asyncio
import os
import resource
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandbox_support import LEVELS, processes_of, resident
from sandbox_support import sandbox as open_one

from hermes_sandbox.agent.commands.capture import Ring
from hermes_testing.suites.backend.commands import most_held


@pytest.mark.parametrize("level", LEVELS)
async def test_streams_are_apart_and_together_and_binary_safe(level):
    async with open_one(level) as sandbox:
        result = await sandbox.exec("printf 'a\\0\\377'; sleep 0.05; echo err >&2; sleep 0.05; echo end; exit 5")
    assert result.stdout == b"a\0\xffend\n"
    assert result.stderr == b"err\n"
    assert result.output == "a\0\ufffderr\nend\n"
    assert (result.exit_code, result.truncated, result.omitted_bytes) == (5, False, 0)


async def test_more_than_a_pipe_holds_is_read_while_the_command_runs():
    """predecessor 2.5 #1: more than 64 KB of output deadlocked until the timeout."""
    async with open_one() as sandbox:
        result = await sandbox.exec("head -c 100000 /dev/zero | tr '\\0' x; head -c 100000 /dev/zero >&2", timeout=120)
    assert (len(result.stdout), len(result.stderr), result.exit_code) == (100_000, 100_000, 0)


async def test_head_and_tail_are_kept_with_the_exact_number_of_missing_bytes():
    """predecessor 2.3 #14: one version lost the tail of long output, another its head."""
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
    """predecessor 2.3 #13 and 2.5 #12: 200 MB of output took 621 MB of memory."""
    async with open_one() as sandbox:
        await sandbox.exec("seq 200000")
        agent = min(processes_of(sandbox.id))
        before = resident(agent)
        # Of the caller, Python's objects: its process may grow for whatever else runs in it.
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


def _merged(writes):
    return "".join(letter * size for _, size, letter in writes)


@pytest.mark.parametrize("level", LEVELS)
async def test_builtins_writing_to_both_streams_are_told_in_the_order_of_their_writes(level):
    async with open_one(level) as sandbox:
        results = [await sandbox.exec("echo a; echo b >&2; echo c; echo d >&2; echo e >&2; echo f") for _ in range(200)]
    assert {result.output for result in results} == {"a\nb\nc\nd\ne\nf\n"}
    assert {(result.stdout, result.stderr) for result in results} == {(b"a\nc\nf\n", b"b\nd\ne\n")}


@pytest.mark.parametrize("level", LEVELS)
async def test_any_sequence_of_writes_is_told_in_its_order(level):
    writes = st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(1, 90), st.sampled_from("abcdefgh")), max_size=14)

    async def check(sandbox, sequence):
        result = await sandbox.exec(_script(sequence), timeout=120)
        assert result.output == _merged(sequence)
        assert result.stdout.decode() == _merged([write for write in sequence if write[0] == 1])
        lines = "".join(f"printf %s {letter * size} >&{stream};" for stream, size, letter in sequence)
        assert (await sandbox.exec(lines or ":")).output == _merged(sequence)

    async with open_one(level) as sandbox:
        loop = asyncio.get_running_loop()

        @settings(max_examples=25, deadline=None)
        @given(writes)
        def every(sequence):
            asyncio.run_coroutine_threadsafe(check(sandbox, sequence), loop).result(200)

        await asyncio.to_thread(every)


@pytest.mark.parametrize(
    "sizes",
    [(1, 100), (4096, 7), (8192, 7), (5000, 4097), (65537, 3), (200_001, 3), (4096, 4096), (8192, 8192)],
    ids=str,
)
@pytest.mark.parametrize("level", LEVELS)
async def test_large_writes_lose_nothing(level, sizes):
    """Their order holds but nearly always: a writer that has to wait for a full pipe rings once too often."""
    writes = [(1, sizes[0], "o"), (2, sizes[1], "e"), (1, sizes[0], "p"), (2, sizes[1], "f"), (1, 1, "q")]
    async with open_one(level, output_limit=1 << 20) as sandbox:
        for _ in range(5):
            result = await sandbox.exec(_script(writes), timeout=120)
            assert result.stdout.decode() == _merged([write for write in writes if write[0] == 1])
            assert result.stderr.decode() == _merged([write for write in writes if write[0] == 2])
            assert len(result.output) == sum(size for _, size, _ in writes)


async def test_an_exchange_that_the_pipes_can_hold_keeps_its_order():
    """A writer that has to wait for a full pipe rings once too often; that order holds only nearly always."""
    async with open_one() as sandbox:
        outputs = [(await sandbox.exec("for i in {1..15}; do echo $i; echo e$i >&2; done")).output for _ in range(30)]
    assert set(outputs) == {"".join(f"{n}\ne{n}\n" for n in range(1, 16))}


async def test_a_child_that_outlives_its_command_does_not_disturb_the_order_of_the_next():
    async with open_one() as sandbox:
        await sandbox.exec("(while :; do echo late; echo late >&2; done) &")
        outputs = [(await sandbox.exec("echo a >&2; echo b; echo c >&2")).output for _ in range(50)]
    assert set(outputs) == {"a\nb\nc\n"}


@pytest.mark.parametrize("level", LEVELS)
async def test_commands_see_no_signal_blocked_or_ignored_by_the_agent(level):
    async with open_one(level) as sandbox:
        result = await sandbox.exec("grep -E '^Sig(Pnd|Blk)|^ShdPnd' /proc/self/status; kill -IO $BASHPID")
        ignored = await sandbox.exec("grep ^SigIgn /proc/self/status")
    assert {int(line.split()[1], 16) for line in result.stdout.decode().splitlines()} == {0}
    assert result.exit_code == 128 + 29
    assert not int(ignored.stdout.split()[1], 16) & 1 << 28


async def test_when_the_kernel_cannot_queue_signals_all_output_still_comes():
    async with open_one() as sandbox:
        agent = max(processes_of(sandbox.id))
        resource.prlimit(agent, resource.RLIMIT_SIGPENDING, (0, 0))
        result = await sandbox.exec("for i in {1..3000}; do echo $i; echo e$i >&2; done", timeout=120)
        assert result.stdout.decode().split() == [f"{n}" for n in range(1, 3001)]
        assert result.stderr.decode().split() == [f"e{n}" for n in range(1, 3001)]


async def test_an_agent_that_cannot_be_told_the_order_reads_both_streams_as_they_come():
    limits = resource.getrlimit(resource.RLIMIT_SIGPENDING)
    resource.setrlimit(resource.RLIMIT_SIGPENDING, (0, limits[1]))
    try:
        async with open_one() as sandbox:
            resource.setrlimit(resource.RLIMIT_SIGPENDING, limits)
            agent = max(processes_of(sandbox.id))
            if os.geteuid() == 0:  # to others the agent does not show its descriptors
                assert not [fd for fd in Path(f"/proc/{agent}/fd").iterdir() if "signalfd" in str(fd.readlink())]
            result = await sandbox.exec("for i in {1..3000}; do echo $i; echo e$i >&2; done", timeout=120)
    finally:
        resource.setrlimit(resource.RLIMIT_SIGPENDING, limits)
    assert result.stdout.decode().split() == [f"{n}" for n in range(1, 3001)]
    assert result.stderr.decode().split() == [f"e{n}" for n in range(1, 3001)]


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
