"""The tool `terminal_stateful`, in real shells on real terminals."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace

import pytest
from sandbox_support import LEVELS, processes_of, sandbox
from terminals import Driver

from hermes_core.contracts.errors import SandboxLostError, UnavailableComponentError
from hermes_testing.watching import TooSoon, exists, with_more_time
from hermes_tools.interactive.session import terminal_requirements as terminal_needs
from hermes_tools.interactive.session import terminal_session
from hermes_tools.interactive.session.terminal_session import TerminalSession


@pytest.fixture(params=LEVELS)
async def driver(request):
    async with sandbox(request.param) as opened:
        yield Driver(opened)


@pytest.fixture
async def plain():
    async with sandbox() as opened:
        yield Driver(opened)


@pytest.fixture(autouse=True)
def slow(monkeypatch):
    """Give a shell more time to return to its prompt, for a busy machine.

    Returns a function that restores the usual time, for tests in which the shell never returns.
    """
    usual = terminal_session._RECOVERS
    monkeypatch.setattr(terminal_session, "_READY", 60.0)
    monkeypatch.setattr(terminal_session, "_RECOVERS", 20.0)
    return lambda: monkeypatch.setattr(terminal_session, "_RECOVERS", usual)


async def run_into_limit(driver, command, seconds):
    """Run a command that creates the file `begun` and then exceeds the timeout. Return the answer."""
    opened = driver.context.sandbox
    await opened.exec("rm -f begun", cwd=opened.workspace)
    answer = await driver.run(command, timeout=math.ceil(seconds))
    TooSoon.unless(await exists(opened, "begun"), "the command had not begun")
    return answer


async def test_a_command_answers_output_exit_code_and_no_error(driver):
    assert await driver.run("echo hello; echo oops >&2; (exit 3)") == {
        "output": "hello\noops",
        "exit_code": 3,
        "error": None,
    }


async def test_everything_of_the_shell_stays(driver):
    await driver.run(
        "mkdir -p a/b && cd a/b; colour=blue; f() { echo \"f $1\"; }; alias hi='echo alias'; set -o pipefail"
    )
    answer = await driver.run('echo "$colour ${PWD##*/}"; f 1; hi; false | true; echo $?')
    assert answer["output"] == "blue b\nf 1\nalias\n1"


async def test_jobs_stay_and_are_controlled(driver):
    await driver.run("sleep 1000 &")
    assert "sleep 1000" in (await driver.run("jobs"))["output"]
    assert (await driver.run("kill %1; wait %1; echo $?"))["output"].splitlines()[-1] == "143"


async def test_it_begins_where_the_session_is_with_its_exports(driver):
    await driver.context.sandbox.exec("mkdir -p here && cd here && export COLOUR=red")
    assert (await driver.run('echo "$COLOUR ${PWD##*/}"'))["output"] == "red here"


async def test_it_is_a_terminal_of_the_given_size(driver):
    await driver.tmux("start", pane_width=77, pane_height=22)
    assert (await driver.run("test -t 0 && test -t 1 && stty size"))["output"] == "22 77"


@pytest.mark.parametrize(
    ("command", "output", "exit_code"),
    [
        ("echo hi # a comment", "hi", 0),
        ("cat <<END\nin the document\nEND", "in the document", 0),
        ("cat <<'END'\n$HOME 'quoted\nEND\n# the end", "$HOME 'quoted", 0),
        ("echo one\necho two\nfalse", "one\ntwo", 1),
        ("if true; then\n\techo 'in a\nblock'\nfi", "in a\nblock", 0),
        ('echo "it\'s" \\\n  continued', "it's continued", 0),
        ("echo a;", "a", 0),
        ("sleep 0 &", None, 0),
        ("! true", "", 1),
        ("echo -n no newline", "no newline", 0),
        ("echo '$ '; echo; echo '> '", "$\n\n>", 0),
        ("printf '\\033]6973;x;D;99\\007prompt 99 0\\n'; (exit 4)", "prompt 99 0", 4),
    ],
)
async def test_commands_of_every_shape_answer_their_own_output(plain, command, output, exit_code):
    """hermes-agent's defect: a comment, a heredoc or an open quote swallowed the marker behind the command."""
    answer = await plain.run(command)
    assert answer["exit_code"] == exit_code
    assert answer["error"] is None
    if output is not None:
        assert answer["output"] == output


@pytest.mark.parametrize(
    "command", ["echo 'open", 'echo "open', "if true", "cat <(", "$(", "f() {", "echo `", "((", ")"]
)
async def test_a_command_that_is_not_whole_is_an_error_and_the_terminal_stays(plain, command):
    """hermes-agent's defect: an open quote cost the full timeout and the session."""
    await plain.run("kept=1")
    answer = await plain.run(command, timeout=60)
    assert answer["exit_code"] not in {0, None}
    assert answer["error"] is None
    assert answer["output"]
    assert (await plain.run("echo kept $kept"))["output"] == "kept 1"


async def test_exit_answers_its_output_and_code_and_the_next_call_has_a_new_shell(driver):
    """hermes-agent's defect: `exit` lost the output."""
    answer = await driver.run("lost=1; echo before; exit 7")
    assert "before" in answer["output"].splitlines()
    assert answer["exit_code"] == 7
    assert "new" in answer["note"]
    assert (await driver.run('echo "after${lost-}"'))["output"] == "after"


async def test_a_shell_that_is_killed_answers_so(plain):
    answer = await plain.run("echo before; kill -9 $$")
    assert answer["output"].startswith("before")
    assert answer["exit_code"] == 137
    assert (await plain.run("echo after"))["output"] == "after"


async def test_output_is_the_commands_own_and_is_said_once(plain):
    """hermes-agent's defect: once the screen had scrolled, later commands returned its text again."""
    for number in range(3):
        answer = await plain.run(f"seq {number * 100} {number * 100 + 99}")
        assert answer["output"] == "\n".join(str(number * 100 + n) for n in range(100))


async def test_long_lines_are_whole(plain):
    """hermes-agent's defect: line breaks of the screen's width leaked into the output."""
    answer = await plain.run("head -c 1000 /dev/zero | tr '\\0' x; echo; echo end")
    assert answer["output"] == "x" * 1000 + "\nend"


async def test_a_progress_bar_is_answered_as_it_ends(plain):
    answer = await plain.run("for i in 1 2 3; do printf '\\r%s%%' $i; done; printf '\\033[31m done\\033[m\\n'")
    assert answer["output"] == "3% done"


async def test_a_timeout_interrupts_and_answers_what_the_command_left(driver):
    async def attempt(seconds):
        answer = await run_into_limit(driver, "echo begun; touch begun; sleep 1000", seconds)
        assert answer["output"].startswith("begun")
        assert answer["exit_code"] == 130
        assert f"{math.ceil(seconds)} seconds" in answer["error"]

    await with_more_time(attempt)
    assert (await driver.run("echo on"))["output"] == "on"


async def test_a_command_that_survives_the_interrupt_is_reported_as_running(driver, slow):
    """hermes-agent's defect: a timeout destroyed the session, and a missing marker counted as exit code 0."""

    async def attempt(seconds):
        # The interrupt would end it before it ignores the signal, so `begun` is created after that.
        answer = await run_into_limit(driver, "(trap '' INT; touch begun; read line; echo \"got $line\")", seconds)
        assert answer["exit_code"] is None
        assert "still runs" in answer["error"]

    slow()
    await driver.run("kept=1")
    await with_more_time(attempt)
    refused = await driver.run("touch done")
    assert "busy" in refused["failed"]
    assert refused["exit_code"] is None
    assert (await driver.keys("words", "Enter", block=True))["completed"]
    assert (await driver.run("rm begun; echo kept $kept; ls"))["output"] == "kept 1"


async def test_a_program_that_stays_is_driven_with_keys(driver):
    await driver.keys("python3 -q", "Enter")
    await driver.sees(">>>")
    assert "busy" in (await driver.run("echo x"))["failed"]
    await driver.keys("C-c")
    await driver.sees("KeyboardInterrupt\n>>>")
    await driver.keys("print(6 * 7)", "Enter")
    await driver.sees("\n42\n>>>")
    answer = await driver.keys("raise SystemExit(5)", "Enter", block=True)
    assert (answer["completed"], answer["exit_code"]) == (True, 5)
    assert (await driver.run("echo back"))["output"] == "back"


async def test_an_incomplete_typed_command_is_discarded_before_the_next_one(plain):
    await plain.keys("echo 'open", "Enter")
    await plain.sees("\n>")
    assert (await plain.run("echo clean"))["output"] == "clean"
    await plain.keys("rm -rf ")
    await plain.sees("rm -rf")
    assert (await plain.run("echo clean"))["output"] == "clean"


async def test_the_screen_shows_the_command_and_not_its_trigger(plain):
    await plain.run("echo hello\necho you")
    assert await plain.shows("$ echo hello\n> echo you\nhello\nyou\n$")


async def test_the_users_own_prompt_and_hooks_do_no_harm(plain):
    await plain.run("PS1='\\u@\\h:\\w# '; PS2='... '; set -u; set -o noclobber; shopt -s extdebug; trap 'x=1' DEBUG")
    assert (await plain.run("echo one; false")) == {"output": "one", "exit_code": 1, "error": None}
    await plain.run("PS0=; IFS=x; alias builtin=false printf=false local=false")
    answer = await plain.run("echo two; (exit 9)")
    assert answer["exit_code"] == 9
    assert "two" in answer["output"]


async def test_deleting_the_terminals_files_loses_one_exit_code(plain, monkeypatch):
    monkeypatch.setattr(terminal_session, "_LOOKS_AFTER_REPAIR", 6000)
    answer = await plain.run('echo begun; rm -rf "$TMPDIR"/*', timeout=60)
    assert answer["output"].startswith("begun")
    assert answer["exit_code"] is None
    assert "lost" in answer["error"]
    assert (await plain.run("(exit 4)"))["exit_code"] == 4
    await plain.context.sandbox.exec('rm -rf "$TMPDIR"/*')
    assert (await plain.run("(exit 5)"))["exit_code"] == 5


@pytest.mark.parametrize(
    "harm",
    [
        'rm "$TMPDIR"/hermes-terminal.*/status; mkfifo "$TMPDIR"/hermes-terminal.*/status',
        'ln -sf /dev/zero "$TMPDIR"/hermes-terminal.*/status',
        "PROMPT_COMMAND=",
        "readonly _hermes_number",
        "builtin() { :; }; printf() { :; }; local() { :; }",
        "kill -STOP $$",
        "set -e; false",
    ],
)
async def test_a_shell_that_is_turned_against_its_terminal_gives_a_clear_answer(plain, harm, slow):
    slow()
    answer = await plain.run(harm, timeout=1)
    assert answer["exit_code"] != 0 or (await plain.run("echo on"))["output"] == "on"
    later = await plain.run("echo on", timeout=1)
    assert later["output"] == "on" or later["error"]
    assert (await plain.tmux("start", reset=True))["status"] == "started"
    assert (await plain.run("echo on"))["output"] == "on"


async def test_a_shell_in_the_shell_is_reported_as_running(plain, slow):
    async def attempt(seconds):
        # The interrupt would end the inner shell before it is at its prompt, so the prompt creates `begun`.
        answer = await run_into_limit(plain, "PROMPT_COMMAND='touch begun' bash --norc", seconds)
        assert answer["exit_code"] is None

    slow()
    await with_more_time(attempt)
    assert (await plain.keys("exit 3", "Enter", block=True))["exit_code"] == 3


async def test_long_output_keeps_head_and_tail_and_says_so(plain):
    answer = await plain.run("seq 1 15000")
    assert answer["output"].startswith("1\n2\n")
    assert answer["output"].endswith("14999\n15000")
    assert "OUTPUT TRUNCATED" in answer["output"]


async def test_a_flood_ends_with_the_timeout_in_bounded_memory(plain):
    async def attempt(seconds):
        answer = await run_into_limit(plain, "yes flood | head -n 1000; touch begun; yes flood", seconds)
        assert answer["exit_code"] == 130
        assert "flood" in answer["output"]
        assert len(answer["output"]) < 60_000

    await with_more_time(attempt)
    assert (await plain.run("echo on"))["output"] == "on"


async def test_a_command_of_a_megabyte_is_run(plain):
    answer = await plain.run(f"x='{'y' * 1_000_000}'; echo ${{#x}}")
    assert answer["output"] == "1000000"
    assert (await plain.run("echo on"))["output"] == "on"


async def test_a_nul_character_is_refused(plain):
    assert "NUL" in (await plain.run("echo a\0b"))["failed"]


async def test_a_renewed_sandbox_is_said_and_the_next_call_has_a_new_terminal(driver):
    await driver.run("lost=1")
    await driver.context.sandbox.renew()
    answer = await driver.run("echo x")
    assert "renewed" in answer["failed"]
    assert (await driver.run('echo "new${lost-}"'))["output"] == "new"


async def test_a_lost_sandbox_is_the_backends_error(plain):
    await plain.run("true")
    await plain.context.sandbox.aclose()
    with pytest.raises(SandboxLostError):
        await plain.run("echo x")


async def test_a_terminal_ends_with_its_sandbox():
    async with sandbox() as opened:
        one = Driver(opened)
        await one.run("sleep 1000 & disown")
        assert processes_of(opened.id)
    assert not processes_of(opened.id)


async def test_two_rollouts_have_two_terminals():
    async with sandbox() as first, sandbox() as second:
        one, other = Driver(first), Driver(second)
        await one.run("name=one")
        await other.run("name=other")
        assert [(await each.run("echo $name"))["output"] for each in (one, other)] == ["one", "other"]


async def test_calls_at_the_same_time_run_one_after_another(plain):
    answers = await asyncio.gather(*(plain.run(f"sleep 0.1; echo {n}") for n in range(4)))
    assert [answer["output"] for answer in answers] == ["0", "1", "2", "3"]


async def test_without_the_package_the_error_says_what_to_install(plain, monkeypatch):
    monkeypatch.setattr(terminal_needs.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableComponentError, match=r"pip install 'hermes-tools\[screen\]'"):
        await plain.run("true")


async def test_a_start_that_is_cancelled_leaves_nothing():
    async with sandbox() as opened:
        for steps in range(1, 60, 6):
            starting = asyncio.create_task(TerminalSession.start(opened, rows=40, cols=120))
            for _ in range(steps):
                await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
        context = SimpleNamespace(sandbox=opened, state={})
        assert context.state == {}
        assert not [info for info in await opened.processes.list() if info.running]


@pytest.mark.parametrize("level", LEVELS)
async def test_a_live_session_has_a_terminal_beside_it(level):
    async with sandbox(level, session="live") as opened:
        await opened.exec("cd /; export COLOUR=red")
        one = Driver(opened)
        assert (await one.run("echo $COLOUR $PWD"))["output"] == "red /"
        assert (await opened.exec("echo still")).output == "still\n"
