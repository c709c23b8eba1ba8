"""Worker threads for synchronous plugins: bounded, fair, and never in the way of the process's end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from functools import partial

import pytest

from hermes_core.rollout.plugin_calls.worker_threads import WorkerThreads
from hermes_testing.watching import eventually


async def test_a_result_and_an_error_come_back():
    workers = WorkerThreads(2)
    assert await workers.run("a", lambda: 42) == 42
    with pytest.raises(RuntimeError, match="once"):
        await workers.run("a", lambda: (_ for _ in ()).throw(RuntimeError("once")))
    workers.close()


async def test_an_error_of_the_plugin_is_not_mistaken_for_the_loops_and_nothing_runs_twice():
    """hermes-agent's defect: a tool that raised RuntimeError was executed twice."""
    workers, runs = WorkerThreads(2), []

    def fail():
        runs.append(1)
        raise RuntimeError("no running event loop")

    with pytest.raises(RuntimeError):
        await workers.run("a", fail)
    assert runs == [1]
    workers.close()


async def test_a_plugin_that_raises_stop_iteration_fails_like_any_other():
    workers = WorkerThreads(2)
    with pytest.raises(RuntimeError, match="a plugin raised StopIteration"):
        await workers.run("a", lambda: next(iter(())))
    workers.close()


async def test_hung_calls_that_were_abandoned_do_not_use_up_the_pool():
    """hermes-agent's defect: blocked tools starved the pool."""
    workers, release = WorkerThreads(2), threading.Event()

    def hang(begun):
        begun.set()
        release.wait()

    for _ in range(6):
        begun = threading.Event()
        call = asyncio.create_task(workers.run("hung", partial(hang, begun)))
        assert await eventually(begun.is_set)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert await workers.run("hung", lambda: "fine") == "fine"
    assert workers.abandoned == 6
    release.set()
    workers.close()


async def test_one_plugin_cannot_take_every_thread():
    workers, release = WorkerThreads(4), threading.Event()
    greedy = [asyncio.create_task(workers.run("greedy", release.wait)) for _ in range(10)]
    assert await asyncio.wait_for(workers.run("other", lambda: "served"), 60) == "served"
    release.set()
    await asyncio.gather(*greedy)
    workers.close()


async def test_a_call_that_was_cancelled_before_it_began_never_runs():
    workers, release, ran = WorkerThreads(2), threading.Event(), []
    first = asyncio.create_task(workers.run("a", release.wait))
    second = asyncio.create_task(workers.run("a", lambda: ran.append(1)))
    await asyncio.sleep(0)
    second.cancel()
    release.set()
    await first
    assert await workers.run("a", lambda: list(ran)) == []
    workers.close()


def test_a_call_that_never_returns_does_not_keep_the_process_alive():
    code = textwrap.dedent("""
        import asyncio, threading
        from hermes_core.rollout.plugin_calls.worker_threads import WorkerThreads

        begun = threading.Event()

        def hang():
            begun.set()
            threading.Event().wait()

        async def main():
            call = asyncio.create_task(WorkerThreads(2).run("a", hang))
            while not begun.is_set():
                await asyncio.sleep(0.01)
            call.cancel()
            try:
                await call
            except asyncio.CancelledError:
                print("gave up")

        asyncio.run(main())
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.returncode) == ("gave up", 0)
