"""The tool `tmux`: full-screen programs that are driven by keys and read from the screen."""

from __future__ import annotations

import shutil
import time
from types import SimpleNamespace

import pytest
from sandbox_support import LEVELS, sandbox
from terminals import SPECS, Driver

from hermes_core.tooling import ArgumentsError, prepare_arguments
from hermes_testing.watching import eventually, exists
from hermes_tools.interactive.session import terminal_session


@pytest.fixture(params=LEVELS)
async def driver(request):
    async with sandbox(request.param) as opened:
        yield Driver(opened)


@pytest.fixture
async def plain():
    async with sandbox() as opened:
        yield Driver(opened)


def needs(program):
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


async def test_a_key_name_beside_block_is_the_key(driver):
    """hermes-agent's defect: with block, ["ls", "Enter"] typed the word Enter."""
    await driver.context.sandbox.write_file("a-file", b"")
    answer = await driver.keys("ls", "Enter", block=True)
    assert (answer["completed"], answer["exit_code"]) == (True, 0)
    assert await driver.shows("$ ls\na-file\n$")
    assert (await driver.tmux("capture"))["cursor_position"] == {"row": 2, "column": 2}
    assert (await driver.keys("false", "Enter", block=True))["exit_code"] == 1


async def test_a_single_key_needs_no_list(plain):
    await plain.tmux("send_keys", keys="echo x")
    assert await plain.shows("$ echo x")
    await plain.tmux("send_keys", keys="Enter", block=True)
    assert await plain.shows("$ echo x\nx\n$")


async def test_block_waits_for_every_command_that_was_typed(plain, monkeypatch):
    # A prompt without output for half a second also counts as the end. The clock runs slowly, so that a busy machine
    # never needs that long between two commands.
    slowly = SimpleNamespace(monotonic=lambda: time.monotonic() / 40)
    monkeypatch.setattr(terminal_session, "time", slowly)
    answer = await plain.keys("sleep 0.2", "Enter", "(exit 5)", "Enter", block=True, max_wait_s=1.5)  # a minute
    assert (answer["completed"], answer["exit_code"]) == (True, 5)


async def test_block_says_so_when_the_shell_does_not_come_back(plain):
    answer = await plain.keys("echo up; cat", "Enter", block=True, max_wait_s=0.5)
    assert (answer["completed"], answer["exit_code"]) == (False, None)
    assert "0.5 s" in answer["note"]
    await plain.sees("\nup")
    answer = await plain.keys("words", "Enter", "C-d", block=True)
    assert (answer["completed"], answer["exit_code"]) == (True, 0)
    assert await plain.shows("$ echo up; cat\nup\nwords\nwords\n$")


async def test_block_ends_with_the_shell(plain):
    answer = await plain.keys("exit 4", "Enter", block=True)
    assert (answer["completed"], answer["status"], answer["exit_code"]) == (False, "exited", 4)
    assert "ended" in (await plain.keys("x"))["error"]
    assert (await plain.tmux("start"))["status"] == "started"


async def test_sizes_are_given_kept_and_changed(plain):
    started = await plain.tmux("start")
    assert (started["status"], started["pane_width"], started["pane_height"]) == ("started", 120, 40)
    again = await plain.tmux("start", pane_width=50, pane_height=12)
    assert (again["status"], again["pane_width"], again["pane_height"]) == ("already_started", 50, 12)
    assert (await plain.run("stty size"))["output"] == "12 50"
    assert (await plain.tmux("start"))["pane_width"] == 50


@pytest.mark.parametrize(
    ("name", "value"), [("pane_width", 19), ("pane_width", 501), ("pane_height", 9), ("max_bytes", 200_001)]
)
def test_sizes_out_of_bounds_are_refused(name, value):
    with pytest.raises(ArgumentsError, match=name):
        prepare_arguments(SPECS["tmux"], f'{{"action": "start", "{name}": {value}}}')


async def test_reset_starts_anew_and_stop_ends_everything(plain):
    await plain.run("kept=1; sleep 1000 &")
    assert (await plain.tmux("start", reset=True))["status"] == "started"
    assert (await plain.run('echo "${kept-gone}"'))["output"] == "gone"
    assert await plain.tmux("stop") == {"status": "stopped"}
    assert await plain.tmux("stop") == {"status": "not_started"}
    assert not [info for info in await plain.context.sandbox.processes.list() if info.running]
    assert (await plain.context.sandbox.exec('ls -A "$TMPDIR"')).output == ""


@pytest.mark.parametrize("action", ["capture", "stream"])
async def test_without_a_terminal_the_error_says_how_to_start_one(plain, action):
    assert "start" in (await plain.tmux(action))["failed"]


async def test_keys_are_needed(plain):
    assert "keys" in (await plain.tmux("send_keys"))["failed"]


@needs("vim")
async def test_vim_edits_a_file(driver):
    await driver.run("echo 'first line' > notes.txt")
    await driver.keys("vim -u NONE notes.txt", "Enter")
    assert (await driver.sees("first line\n~"))["full_screen"] is True
    await driver.keys("o", "second line", "Escape")
    await driver.sees("first line\nsecond line")
    answer = await driver.keys(":wq", "Enter", block=True)
    assert answer["completed"]
    assert "full_screen" not in answer
    assert "~" not in answer["screen"]
    assert answer["screen"].startswith("$ echo 'first line' > notes.txt\n$ vim")
    assert await driver.context.sandbox.read_file("notes.txt") == b"first line\nsecond line\n"


@needs("less")
async def test_less_pages_and_searches(driver):
    await driver.run("seq -f 'line %g' 1000 > lines; export LESSOPEN=")
    await driver.keys("less lines", "Enter")
    answer = await driver.sees("line 39\n")
    assert "line 41" not in answer["screen"]
    await driver.keys("NPage")
    await driver.sees("line 78")
    await driver.keys("/line 555", "Enter")
    assert (await driver.sees("line 555\n"))["screen"].startswith("line 555")
    answer = await driver.keys("q", block=True)
    assert answer["completed"]
    assert "line 555" not in answer["screen"]


@needs("top")
async def test_top_refreshes_and_quits(driver):
    await driver.keys("top -d 1", "Enter")
    assert "PID" in (await driver.sees("load average"))["screen"]
    answer = await driver.keys("q", block=True)
    assert answer["completed"]


async def test_a_program_of_curses_is_read_from_the_screen(driver):
    program = (
        "import curses\n"
        "def main(screen):\n"
        "    screen.keypad(True); screen.border(); row = 3\n"
        "    while True:\n"
        "        screen.addstr(2, 4, f'row {row} of {curses.LINES}x{curses.COLS} '); screen.refresh()\n"
        "        key = screen.getch()\n"
        "        if key == ord('q'): break\n"
        "        row += (key == curses.KEY_DOWN) - (key == curses.KEY_UP) + 10 * (key == curses.KEY_F5)\n"
        "curses.wrapper(main)\n"
    )
    await driver.context.sandbox.write_file("menu.py", program)
    await driver.keys("python3 menu.py", "Enter")
    screen = (await driver.sees("row 3 of 40x120"))["screen"]
    assert screen.startswith("┌" + "─" * 118 + "┐\n│")
    await driver.keys("Down", "Down", "F5", "Up")
    await driver.sees("row 14 of")
    await driver.tmux("start", pane_width=80, pane_height=20)
    assert (await driver.keys("q", block=True))["completed"]


async def test_a_question_without_echo_is_answered(plain):
    await plain.keys("read -rsp 'Password: ' secret", "Enter")
    await plain.sees("Password:")
    assert "hunter2" not in (await plain.keys("hunter2", "Enter", block=True))["screen"]
    assert (await plain.run("echo $secret"))["output"] == "hunter2"


async def test_a_program_that_asks_the_terminal_is_answered(driver):
    """A program requests a cursor report, and reads it from its input as if it had been typed."""
    answer = await driver.run(
        "stty raw -echo; printf '\\033[6n'; IFS= read -rd R position; stty sane; printf '%q\\n' \"$position\"",
        timeout=60,
    )
    assert "\\E[" in answer["output"]
    assert answer["exit_code"] == 0


async def test_every_reader_of_the_stream_has_a_place_of_its_own(plain):
    """hermes-agent's defect: all readers shared the server's position, and start reset it."""
    await plain.keys("echo one", "Enter", block=True)
    assert await plain.shows("$ echo one\none\n$")
    first = await plain.tmux("stream")
    assert "one\r\n" in first["output"]
    await plain.tmux("start")
    await plain.keys("echo two", "Enter", block=True)
    assert await plain.shows("$ echo one\none\n$ echo two\ntwo\n$")
    second = await plain.tmux("stream", cursor=first["cursor"])
    assert "two\r\n" in second["output"]
    assert "one" not in second["output"]
    other = await plain.tmux("stream", cursor=0)
    assert other["output"] == first["output"] + second["output"]
    assert (await plain.tmux("stream", cursor=second["cursor"]))["output"] == ""


async def test_the_stream_is_cut_between_characters(plain):
    await plain.keys("printf 'é日🙂%.0s' {1..200}", "Enter", block=True)
    pieces, cursor = [], 0
    while True:
        answer = await plain.tmux("stream", cursor=cursor, max_bytes=7)
        pieces.append(answer["output"])
        assert "\ufffd" not in answer["output"]
        if not answer["more"]:
            break
        assert answer["cursor"] > cursor
        cursor = answer["cursor"]
    assert "é日🙂" * 200 in "".join(pieces)
    assert "6973" not in (await plain.tmux("stream"))["output"]


async def test_the_stream_says_what_is_not_kept_any_more(plain):
    await plain.run("head -c 4000000 /dev/zero | tr '\\0' 'x' | fold", timeout=60)
    answer = await plain.tmux("stream", max_bytes=200_000)
    assert answer["omitted_bytes"] > 1_000_000
    assert len(answer["output"].encode()) <= 200_000


async def test_what_has_scrolled_away_is_captured_on_request(plain):
    await plain.run("seq 500")
    assert "\n100\n" not in (await plain.sees("\n500\n$"))["screen"]
    whole = (await plain.tmux("capture", capture_entire=True))["screen"]
    assert whole.startswith("$ seq 500\n1\n2\n")
    short = await plain.tmux("capture", capture_entire=True, max_bytes=100)
    assert whole.endswith(short["screen"])
    assert short["omitted_bytes"] == len(whole) - 100


async def test_what_the_screen_has_missed_or_dropped_is_counted(plain):
    await plain.keys("yes | head -c 8000000; seq 30000; touch over", "Enter", min_wait_s=0)
    # The output is not read meanwhile, so the screen misses most of it.
    assert await eventually(lambda: exists(plain.context.sandbox, "over"))
    await plain.sees("30000\n$")
    answer = await plain.tmux("capture", capture_entire=True, max_bytes=1000)
    assert answer["screen"].endswith("\n29999\n30000\n$")
    assert answer["missed_bytes"] > 1_000_000
    assert answer["omitted_lines"] > 10_000
    assert answer["omitted_bytes"] > 1000


async def test_a_hostile_file_on_the_screen_leaves_a_terminal_that_works(plain):
    await plain.run("head -c 300000 /dev/urandom", timeout=60)
    await plain.run("printf '\\033]0;evil\\007\\033[21t\\033[?1049h\\033[5;5r\\033(0\\033[8m\\033P'", timeout=60)
    assert (await plain.run("echo on"))["output"] == "on"
    await plain.tmux("start", reset=True)
    assert await plain.shows("$")


async def test_looking_while_a_program_floods_the_screen_ends(plain):
    await plain.keys("yes", "Enter")
    await plain.sees("y\ny\n")  # within a minute
    answer = await plain.keys("C-c", block=True)
    assert (answer["completed"], answer["exit_code"]) == (True, 130)


async def test_the_error_says_that_the_sandbox_was_renewed(driver):
    await driver.tmux("start")
    await driver.context.sandbox.renew()
    assert "renewed" in (await driver.tmux("capture"))["failed"]
    assert (await driver.tmux("start"))["status"] == "started"
