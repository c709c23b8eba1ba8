"""Terminal output delays no other rollout: the work per step and in total is bounded for any output."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from sandbox_support import sandbox
from terminals import Driver

from hermes_core.contracts.sandbox import ProcessOutput
from hermes_tools.interactive.emulator.escape_parser import EscapeParser
from hermes_tools.interactive.emulator.recording import Recording
from hermes_tools.interactive.emulator.screen import TerminalScreen
from hermes_tools.interactive.session.terminal_session import TerminalSession

ROWS, COLS = 200, 500
FULL = b"\x1b#8\x1b[H"
# A piece of output that repeats one of these, shown in one step, used to take from a second to half an hour.
SEQUENCES = {
    "fill with E": b"\x1b#8",
    "repeat a wide character": "好\x1b[9999b".encode(),
    "repeat a character": b"x\x1b[9999b",
    "repeat while inserting": b"\x1b[4hx\x1b[9999b",
    "scroll up": b"\x1b[999S",
    "scroll down": b"\x1b[999T",
    "delete a character": b"\x1b[P",
    "insert a character": b"\x1b[@",
    "insert while drawing": b"\x1b[4h" + b"x" * 1000,
    "insert wide ones while drawing": b"\x1b[4h" + "好".encode() * 1000,
    "lines of the second screen": b"\x1b[?47h\x1b[200H" + b"\r\n" * 2000,
    "lines": b"\x1b[200H\n\n",
    "up at the top": b"\x1b[H\x1bM",
    "insert lines": b"\x1b[L",
    "delete lines": b"\x1b[M",
    "blank a row": b"\x1b[2K",
    "blank the rest": b"\x1b[J",
    "begin anew": b"\x1bc",
    "two screens": b"\x1b[?" + b"1049;47;" * 15 + b"1047h\x1b[?47l",
    "tabs": b"\x1bH \t\x1b[Z",
}

LIGHT = {SEQUENCES[name] for name in ("two screens", "tabs")}
MOST_OF_ONE = 210_000
"""Most work of one operation, about twice the cells of the largest screen: all rows become text, or a character moves a
row 100 times."""


def piece_of(sequence, size):
    return (sequence * (size // len(sequence) + 1))[:size]


@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=SEQUENCES)
def test_work_stops_within_one_operation_of_what_is_asked(sequence):
    screen = TerminalScreen(rows=ROWS, cols=COLS)
    screen.feed(FULL)
    screen.take(piece_of(sequence, 8192))
    for amount in (1, 20_000) * 10:
        assert screen.work(amount) <= amount + MOST_OF_ONE
    assert screen.is_behind or sequence in LIGHT


def test_flood_of_lines_is_little_work_though_it_is_drawn_at_once():
    screen = TerminalScreen(rows=ROWS, cols=COLS)
    screen.feed(FULL)
    screen.take(b"\r\n" * 4096)
    assert screen.work(10_000_000) < 2_000_000
    assert screen.entire().startswith("E" * COLS)


class Stub:
    """A sandbox with one process that has written `data`. It records its input, and the timeouts of waits."""

    def __init__(self, data):
        self.data = data
        self.rests = []
        self.written = b""
        self.processes = self

    async def read(self, _id, *, offset, limit):
        data = self.data[offset : offset + limit]
        return ProcessOutput(data=data, start=offset, total=len(self.data), running=True)

    async def poll(self, _id):
        return SimpleNamespace(running=not self.rests, exit_code=0)

    async def wait(self, _id, *, timeout):
        self.rests.append(timeout)

    async def write(self, _id, data):
        self.written += data
        return len(data)

    def session(self, *, rows=ROWS, cols=COLS):
        return TerminalSession(self, "/nowhere", nonce="nonce", process_id="1", rows=rows, cols=cols)


async def turns_during(doing):
    """Return how often other tasks ran on the event loop meanwhile, and the result."""
    task, turns = asyncio.ensure_future(doing), 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return turns, task.result()


HEAVY = [name for name, sequence in SEQUENCES.items() if sequence not in LIGHT]


@pytest.mark.parametrize("name", HEAVY)
async def test_a_look_at_any_output_ends_and_lets_other_tasks_run(name):
    stub = Stub(FULL + piece_of(SEQUENCES[name], 250_000) + b"\x18\x1bc")
    session = stub.session()
    turns, found = await turns_during(session.pump())
    assert found
    assert 20 < turns < 2000
    assert session.missed < len(stub.data)
    stub.data += b"\x1bcthe end"
    assert await session.pump()
    assert session.screen.text == "the end"


async def test_ordinary_output_is_never_too_much_work():
    line = "\x1b[01;34mfolder\x1b[0m  名前.txt  \x1b[32m+++\x1b[m a longer text in a line of several words\r\n"
    stub = Stub(line.encode() * 11_000)  # a megabyte, which is all that a sandbox keeps
    session = stub.session(rows=40, cols=120)
    await session.catch_up(8)
    assert session.missed == 0
    assert session.screen.entire() == "\n".join(
        ["folder  名前.txt  +++ a longer text in a line of several words"] * 11_000
    )


BURSTS = {
    "tabs": "a\tb\tc\td\n",
    "short lines that are no ASCII": "✓\n",
    "a spinner": "\b|\b/\b-\b\\",
    "bold as nroff writes it": "".join(f"{one}\b{one}" for one in "bold") + "\n",
    "grep in colour": "\x1b[35mfile\x1b[m\x1b[36m:\x1b[m\x1b[32m12\x1b[m\x1b[36m:\x1b[ma \x1b[01;31mx\x1b[m b\n",
    "a tree": "│   ├── \x1b[01;34mfolder\x1b[00m\n",
}


@pytest.mark.parametrize("name", BURSTS)
async def test_nothing_is_left_out_of_what_programs_write_at_once(name):
    line = BURSTS[name].replace("\n", "\r\n").encode()
    stub = Stub(line * (250_000 // len(line)))
    session = stub.session(rows=40, cols=120)
    assert await session.pump()
    assert session.missed == 0


async def test_many_looks_for_one_call_share_a_bounded_amount_of_work():
    stub = Stub(piece_of(SEQUENCES["insert a character"], 2_000_000) + b"\x1bc")
    session = stub.session()
    turns, _ = await turns_during(session.catch_up(8))
    assert turns < 4000
    assert session.missed > 1_500_000
    await session.catch_up(8)
    stub.data += b"\x1bcthe end"
    await session.catch_up(8)
    assert session.screen.text == "the end"


async def test_after_much_work_the_next_look_is_delayed():
    quiet, busy = Stub(b"hello\r\n"), Stub(piece_of(SEQUENCES["fill with E"], 250_000))
    for stub in (quiet, busy):
        await stub.session().settle(1000.0)
    assert quiet.rests[0] < 0.02
    assert 0.2 < busy.rests[0] < 5


async def test_a_look_that_is_cut_off_shows_all_with_the_next_one_and_nothing_twice():
    stub = Stub(b"".join(b"%d\x1b[m\x1b[2K\r\n" % number for number in range(3000)))
    whole, session = (stub.session(rows=40, cols=80) for _ in range(2))
    await whole.pump()
    looking = asyncio.create_task(session.pump())
    for _ in range(20):
        await asyncio.sleep(0)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    await session.pump()
    assert session.screen.entire() == whole.screen.entire()
    assert session.missed == 0


def test_what_is_dropped_is_counted_in_bytes_and_leaves_a_screen_that_works():
    screen = TerminalScreen(rows=5, cols=20)
    screen.take(b"abc\x1b[2;2H" + b"\x1b#8" * 100 + "é\n日\x1b]0;title".encode())
    assert screen.work(1) > 0
    while screen.text != "abc":
        screen.work(1)
    assert screen.drop() == 6 + 300 + 6 + 9
    assert not screen.is_behind
    screen.feed(b" next")
    assert screen.text == "abc next"
    screen.take(b"\x1bP a string")
    screen.work(1000)
    screen.drop()
    screen.feed(b" shown")
    assert screen.text == "abc next shown"


def test_a_parser_tells_a_long_text_in_parts():
    told = []
    sink = SimpleNamespace(show=told.append)
    EscapeParser(sink).feed("x" * 1000)
    assert "".join(told) == "x" * 1000
    assert max(map(len, told)) <= 128


@pytest.mark.parametrize("begin", [b"\x1b[?47h\n", b"\x1b[4h", b"\x1b[2;5r", b""])
def test_a_recording_of_a_megabyte_without_a_mark_is_text_at_once(begin):
    recording = Recording(rows=40, cols=120)
    recording.add(begin + b"y\r\n" * 350_000)
    text = recording.text()
    assert "lines before this are not kept" in text or "too much work to show" in text
    assert len(text) < 60_000


async def test_what_a_command_writes_before_its_mark_is_not_its_own():
    recording = Recording(rows=40, cols=120)
    recording.add(b"$ . command\r\n")
    recording.begin()
    recording.add(b"its own\r\n")
    recording.begin()
    assert recording.text() == "its own"


async def test_a_command_that_writes_nothing_but_work_ends_with_its_own_exit_code():
    async with sandbox() as opened:
        driver = Driver(opened)
        await driver.tmux("start", pane_width=COLS, pane_height=ROWS)
        answer = await driver.run("yes $'\\e#8' | head -n 20000 | tr -d '\\n'; (exit 7)", timeout=60)
        assert answer["exit_code"] == 7
        assert "bytes of the output came too fast or were too much work to show" in answer["output"]
        answer = await driver.run("clear; echo on")
        assert answer["output"].endswith("on")
        assert (await driver.tmux("capture", capture_entire=True))["missed_bytes"] > 10_000
