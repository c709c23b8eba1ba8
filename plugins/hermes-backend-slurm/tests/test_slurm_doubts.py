"""Only replies that report an end by SIGTERM wait for Slurm's message, and nothing else of the node's stream."""

from __future__ import annotations

import contextlib
import os
import tracemalloc

import pytest

from hermes_backend_slurm.frames import FrameSieve
from hermes_backend_slurm.step import StepProgram
from hermes_sandbox.agent.wire import Decoder, encode
from hermes_testing.watching import eventually

FOR_EVER = 3600.0
TOLD = b'"exit_code":143'
MIB = 1 << 20


async def nothing():
    """Cancel nothing."""


def answer(number, exit_code=0, body=b""):
    return encode({"id": number, "ok": {"exit_code": exit_code, "seconds": 0.1}}, body)


def job(pid):
    return {"id": "p1", "pid": pid, "started_at": 5.0, "running": False, "exit_code": 143}


class Echo:
    """A step whose program echoes its input, and prints Slurm's message when the file `go` exists."""

    def __init__(self, program):
        self.program = program
        self.frames = []
        self.error = None
        self._decoder = Decoder()
        program.stream.reader.subscribe(self._take, self._over)

    def _take(self, data):
        self.frames += self._decoder.feed(data)

    def _over(self, error):
        self.error = error

    def say(self, *pieces):
        self.program.stream.writer.write(b"".join(pieces))

    async def heard(self, *numbers):
        return await eventually(lambda: [header["id"] for header, _ in self.frames] == list(numbers))


@contextlib.asynccontextmanager
async def echo(folder, *, doubt=FOR_EVER):
    words = "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-01-01 ***"
    script = f"(until [ -e go ]; do sleep 0.02; done; echo '{words}' >&2) & cd / ; cat; kill $!"
    argv = ["/bin/sh", "-c", f"cd {folder}; {script}"]
    program = await StepProgram.start(argv, environment=dict(os.environ), cancel=nothing, doubt=doubt)
    try:
        yield Echo(program)
    finally:
        program.stream.writer.close()
        await program.wait(10.0)


async def test_the_content_of_a_file_holds_no_reply_back(tmp_path):
    """All bytes were searched for the exit code: reading a log that contains it held back every slot of the node."""
    async with echo(tmp_path) as step:
        part = encode({"id": 1, "part": 0}, b"the log: {" + TOLD + b"}")
        step.say(part, answer(2, 0, TOLD * 3), answer(1, 1430))
        assert await step.heard(1, 2, 1)


async def test_only_the_doubtful_reply_waits_and_it_is_dropped_if_slurm_ended_the_step(tmp_path):
    async with echo(tmp_path) as step:
        step.say(answer(1, 143), answer(2), encode({"event": "output", "slot": 7, "id": 0}, b"x"), answer(3, 1))
        assert await step.heard(2, 0, 3)
        (tmp_path / "go").touch()
        assert await eventually(lambda: step.error is not None)
        assert "CANCELLED" in str(step.error)
        assert await step.heard(2, 0, 3)


async def test_a_doubtful_reply_is_passed_on_if_slurm_prints_nothing(tmp_path):
    async with echo(tmp_path, doubt=0.01) as step:
        step.say(answer(1, 143, b"output"))
        assert await step.heard(1)
        assert step.frames[0][1] == b"output"


async def test_a_doubtful_reply_is_passed_on_if_the_stream_ends_without_a_message(tmp_path):
    async with echo(tmp_path) as step:
        step.say(answer(1, 143), answer(2))
        assert await step.heard(2)
        step.program.stream.writer.write_eof()
        assert await step.heard(2, 1)


async def test_a_process_is_doubted_once_however_often_it_is_listed(tmp_path):
    async with echo(tmp_path, doubt=0.01) as step:
        step.say(encode({"id": 1, "ok": job(77)}))
        assert await step.heard(1)
    async with echo(tmp_path, doubt=0.5) as step:
        step.say(encode({"id": 1, "ok": {"jobs": [job(77)]}}))
        assert await step.heard(1)
        # Process 77 is known by now: its reply comes before the doubtful one.
        step.say(encode({"id": 2, "ok": {"jobs": [job(78), job(77)]}}), encode({"id": 3, "ok": job(77)}))
        assert await step.heard(1, 3, 2)


async def test_large_files_full_of_exit_codes_are_passed_on_while_a_reply_waits(tmp_path):
    """Everything that came while one reply was in doubt was buffered, without a bound."""
    body = TOLD * (MIB // len(TOLD))
    sieved = 0

    async with echo(tmp_path) as step:
        step.frames = None

        def count(data):
            nonlocal sieved
            sieved += len(data)

        step.program.stream.reader.subscribe(count, lambda _error: None)
        frame = encode({"id": 2, "part": 0}, body)
        tracemalloc.start()
        try:
            step.say(answer(1, 143))
            for _ in range(48):
                step.say(frame)
                await step.program.stream.writer.drain()
            assert await eventually(lambda: sieved == 48 * len(frame), seconds=60)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 8 * MIB


async def test_the_stream_is_not_read_while_too_many_bytes_are_held_back(tmp_path, monkeypatch):
    monkeypatch.setattr("hermes_backend_slurm.doubts._KEPT", 1 << 16)
    async with echo(tmp_path, doubt=1.5) as step:
        transport = step.program.stream.writer.transport
        for number in range(1, 5):
            step.say(answer(number, 143, bytes(1 << 15)))
        assert await eventually(lambda: not transport.is_reading())
        assert await step.heard(1, 2, 3, 4)
        assert await eventually(transport.is_reading)


def sieve_pieces(pieces):
    passed, taken = [], []
    sieve = FrameSieve(lambda data: passed.append(bytes(data)), wanted=lambda head: b"bad" in head, take=taken.append)
    for piece in pieces:
        sieve.feed(piece)
    return b"".join(passed), taken


FRAMES = [encode({"id": 1}, b"bad body"), encode({"bad": 1}), encode({"id": 2}), encode({"bad": 2}, b"xyz")]
STREAM = b"".join([*FRAMES, encode({"id": 3})])


@pytest.mark.parametrize("at", range(len(STREAM)))
def test_a_frame_is_taken_out_wherever_the_stream_is_cut(at):
    """A wanted frame was missed if its header arrived in two pieces."""
    wanted = (b"".join([FRAMES[0], FRAMES[2], encode({"id": 3})]), [FRAMES[1], FRAMES[3]])
    assert sieve_pieces([STREAM[:at], STREAM[at:]]) == wanted


def test_a_frame_is_taken_out_of_single_bytes():
    assert sieve_pieces([STREAM[at : at + 1] for at in range(len(STREAM))]) == sieve_pieces([STREAM])


@pytest.mark.parametrize("cut", [1, 3, 5, 9])
def test_invalid_data_is_passed_on_at_once_with_everything_after_it(cut):
    said = FRAMES[0] + b"bash: python3: command not found\n" + FRAMES[1]
    at = len(FRAMES[0]) + cut
    assert sieve_pieces([said[:at], said[at:]]) == (said, [])
    assert sieve_pieces([b"\x00", b"x"]) == (b"\x00x", [])
