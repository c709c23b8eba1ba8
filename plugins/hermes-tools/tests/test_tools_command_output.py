"""The output of a command as the model reads it."""

from __future__ import annotations

import re
import time
import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_core.contracts.sandbox import ExecResult
from hermes_tools.command_output import process_limit_note, shorten_output, without_escapes


def read(output: str, limit: int = 50_000, **fields: object) -> str:
    return shorten_output(ExecResult(exit_code=0, output=output, **fields), limit)  # type: ignore[arg-type]  # a shorthand


def test_a_capture_that_is_whole_is_not_touched() -> None:
    assert read("x" * 50_000) == "x" * 50_000
    assert "1 of 50001 characters" in read("x" * 50_001)


def test_of_long_output_two_fifths_are_its_head_and_the_rest_its_tail() -> None:
    text = "".join(f"{number:05}" for number in range(40))
    head, notice, tail = re.split(r"\n(\[.*\])\n", read(text, 100))
    assert (head, tail) == (text[:40], text[-60:])
    assert notice == "[OUTPUT TRUNCATED - 100 of 200 characters omitted here]"


def test_what_the_sandbox_did_not_keep_is_counted_apart() -> None:
    gap = "\n[... 7 bytes omitted ...]\n"
    text = "a" * 100 + gap + "b" * 100
    assert "[OUTPUT TRUNCATED - 100 of 200 characters omitted here, besides 7 bytes" in read(
        text, 100, truncated=True, omitted_bytes=7
    )
    # Unless the sandbox reports omitted bytes, the line is what the command printed.
    assert f"of {200 + len(gap)} characters omitted here]" in read(text, 100)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]0;title\x1b\\text", "text"),
        ("\x1bP+q544e\x1b\\text", "text"),
        ("plain\x1b(B", "plain"),
        ("a\x1b7b\x1b8c", "abc"),
        ("[1m stays", "[1m stays"),
    ],
)
def test_escape_sequences_are_left_out(text: str, left: str) -> None:
    assert without_escapes(text) == left
    assert read(f" {text}\n") == f" {left}".rstrip("\n")


def sandbox_with_limit(pids: object) -> Any:
    return SimpleNamespace(provenance={"limits": {"pids": pids}})


@pytest.mark.parametrize(
    "output",
    [
        "bash: fork: retry: Resource temporarily unavailable",
        "bash: fork: Resource temporarily unavailable",
        "sh: 0: Cannot fork",
        "sh: can't fork: Resource temporarily unavailable",
        "make: vfork: Resource temporarily unavailable",
        "OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 4: Resource temporarily unavailable",
        '  File "/lib/subprocess.py", line 18\n    self.pid = _fork_exec(\nBlockingIOError: [Errno 11] Resource',
        '  File "<string>", line 1, in <module>\nBlockingIOError: [Errno 11] Resource temporarily unavailable',
        "RuntimeError: can't start new thread",
        "java.lang.OutOfMemoryError: unable to create native thread: possibly out of memory",
        '[warning][os,thread] Failed to start thread "Unknown thread" with pthread_create failed (EAGAIN)',
        "Error: spawn ls EAGAIN",
        "  what():  Resource temporarily unavailable",
        "runtime: failed to create new OS thread (have 9 already; errno=11)",
        'failed to spawn thread: Os { code: 11, kind: WouldBlock, message: "Resource temporarily unavailable" }',
        "no more background processes can be started: Resource temporarily unavailable",
    ],
)
def test_a_failed_process_start_gets_a_note_with_the_sandboxs_limit(output: str) -> None:
    note = process_limit_note(f"before\n{output}\nafter", sandbox_with_limit("1024, by cgroup v1"))
    assert note is not None
    assert "could not be started; this sandbox's limit on them is 1024, by cgroup v1." in note


@pytest.mark.parametrize(
    "output",
    [
        "",
        "cat: x: Resource temporarily unavailable",
        "64 background processes are running already",
        '  File "/app/client.py", line 3\n    data = peer.recv(9)\nBlockingIOError: [Errno 11] Resource',
        "the fork of a repository\nResource temporarily unavailable",
    ],
)
def test_another_error_is_told_no_limit(output: str) -> None:
    assert process_limit_note(output, sandbox_with_limit("1024, by cgroup v1")) is None


@pytest.mark.parametrize("pids", [None, "", 1024, "none: root, and no control group can be used"])
def test_a_sandbox_that_names_no_limit_gets_no_note(pids: object) -> None:
    assert process_limit_note("sh: 0: Cannot fork", sandbox_with_limit(pids)) is None
    bare: Any = SimpleNamespace(provenance={})
    assert process_limit_note("sh: 0: Cannot fork", bare) is None


def test_output_that_is_made_to_be_slow_is_read_once() -> None:
    text = "fork " * 400_000 + "\n" + "    fork\n" * 200_000
    start = time.process_time()
    assert process_limit_note(text, sandbox_with_limit("9")) is None
    # Work that grows with the square of the text would take hours.
    assert time.process_time() - start < 60


@pytest.mark.parametrize("text", ["ab\n" * 400_000, "eagain" + "ab\n" * 400_000, "ab eagain\n" * 150_000])
def test_output_of_many_lines_is_not_taken_apart(text: str) -> None:
    """A list of the lines would take twenty times the memory of the text, and delay all other rollouts."""
    tracemalloc.start()
    try:
        assert process_limit_note(text, sandbox_with_limit("9")) is None
        assert tracemalloc.get_traced_memory()[1] < 6 * len(text)
    finally:
        tracemalloc.stop()


def test_the_reason_is_found_at_the_end_of_many_like_it_and_on_its_own_line_only() -> None:
    told = "cat: x: Resource temporarily unavailable\n" * 1000
    assert (
        process_limit_note(f"{told}bash: fork: Resource temporarily unavailable, EAGAIN\n", sandbox_with_limit("9"))
        is not None
    )
    assert process_limit_note(f"{told}EAGAIN\nfork\n{told}thread", sandbox_with_limit("9")) is None
