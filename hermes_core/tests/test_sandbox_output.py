"""What is kept of a command's output."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandbox_support import LEVELS, processes_of, resident
from sandbox_support import sandbox as open_one

from hermes_core.sandbox.agent.capture import Ring


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
        result = await sandbox.exec("head -c 100000 /dev/zero | tr '\\0' x; head -c 100000 /dev/zero >&2", timeout=20)
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
    import os

    async with open_one() as sandbox:
        await sandbox.exec("seq 200000")
        agent, caller = min(processes_of(sandbox.id)), os.getpid()
        before = resident(agent), resident(caller)
        result = await sandbox.exec("head -c 209715200 /dev/zero", timeout=60)
        after = resident(agent), resident(caller)
    assert result.omitted_bytes == 209_715_200 - 2 * 65536
    assert after[0] - before[0] < 5 << 20
    assert after[1] - before[1] < 5 << 20


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
