"""The robust session: which state survives from command to command, and what a command inherits."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandbox_support import LEVELS, agent_of
from sandbox_support import sandbox as open_one
from time_limits import may_have_been_idle

from hermes_core.contracts.errors import SandboxLostError
from hermes_testing.watching import eventually, with_more_time


@pytest.fixture(params=LEVELS)
async def sandbox(request):
    async with open_one(request.param) as opened:
        yield opened


@pytest.fixture
async def plain():
    async with open_one() as opened:
        yield opened


async def out(sandbox, command, **options):
    result = await sandbox.exec(command, **options)
    return result.stdout.decode()


async def test_directory_exports_functions_aliases_options_and_umask_survive(sandbox):
    await sandbox.exec(
        "mkdir -p 'a b' && cd 'a b'; export X='one two'; y=3; greet() { echo \"hello $1\"; }; alias ll='echo listed';"
        "shopt -s extglob; set -f; umask 027; declare -A map=([k]=v); list=(1 '2 3'); readonly fixed=yes"
    )
    answer = await out(
        sandbox,
        'pwd; printenv X; echo $y; greet you; ll; shopt extglob; echo $-; umask; echo "${map[k]} ${list[1]} $fixed"',
    )
    lines = answer.splitlines()
    assert lines[0] == f"{sandbox.workspace}/a b"
    assert lines[1:6] == ["one two", "3", "hello you", "listed", "extglob        \ton"]
    assert "f" in lines[6]
    assert lines[7:] == ["0027", "v 2 3 yes"]


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        ("exit 7", 7),
        ("exec true", 0),
        ("exec sh -c 'exit 4'", 4),
        ("set -e; false; echo never", 1),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
        (": ${missing:?needed}", 127),
        ("set -u; echo $missing", 127),
        ("if", 2),
        ("echo 'unterminated", 2),
        ("cat <<EOF\nopen heredoc", 0),
        ("true # comment", 0),
        ("", 0),
        ("return 3", 2),
        ("no_such_program_here", 127),
        ("/etc/passwd", 126),
    ],
)
async def test_a_session_survives_any_end_of_a_command(plain, command, exit_code):
    """hermes-agent's defect: a comment, heredoc or open quote swallowed the marker and broke the session."""
    await plain.exec("export KEPT=1; cd /usr")
    result = await plain.exec(command, timeout=60)
    assert (result.exit_code, result.timed_out) == (exit_code, False)
    after = await plain.exec("echo $KEPT $PWD")
    assert after.stdout == b"1 /usr\n"


async def test_what_a_command_changed_before_it_left_is_kept(plain):
    await plain.exec("export A=1; cd /usr; exit 3")
    await plain.exec("export B=2; set -e; false")
    assert await out(plain, "set +e; echo $A $B $PWD") == "1 2 /usr\n"


async def test_an_exit_trap_of_the_command_runs_and_does_not_cost_the_state(plain):
    assert await out(plain, "trap 'echo bye' EXIT; z=7") == "bye\n"
    assert await out(plain, "echo $z") == "7\n"


async def test_options_that_persist_do_not_disturb_the_restoring(plain):
    await plain.exec("set -eu -o pipefail; set -x; alias exit=false declare=false; IFS=_")
    result = await plain.exec("echo still; false; echo never")
    assert result.stdout == b"still\n"
    assert result.exit_code == 1
    assert result.stderr == b"++ echo still\n++ false\n"


async def test_a_variable_that_was_unset_does_not_come_back(plain):
    await plain.exec("unset PAGER HOME")
    assert await out(plain, "echo ${PAGER-none} ${HOME-none}") == "none none\n"


async def test_exported_functions_reach_child_shells(plain):
    await plain.exec("f() { echo inner; }; export -f f")
    assert await out(plain, "bash -c f") == "inner\n"


async def test_cwd_and_env_hold_for_one_call_only(sandbox):
    """The variables and directory of a call are undone after it, even if the command changes them."""
    await sandbox.exec("export X=session; cd /usr; cd /usr/bin")
    given_call = await out(sandbox, "echo $X $NEW $PWD; X=changed; cd /", cwd="/tmp", env={"X": "a 'b'", "NEW": "$n"})
    assert given_call == "a 'b' $n /tmp\n"
    assert await out(sandbox, "echo $X ${NEW-none} $PWD $OLDPWD") == "session none /usr/bin /usr\n"


async def test_a_relative_cwd_is_below_the_workspace(sandbox):
    await sandbox.exec("mkdir -p deep/er; cd /")
    assert await out(sandbox, "pwd", cwd="deep/er") == f"{sandbox.workspace}/deep/er\n"


async def test_a_cwd_that_cannot_be_entered_answers_126_and_runs_nothing(sandbox):
    result = await sandbox.exec("touch ran", cwd="nowhere")
    assert result.exit_code == 126
    assert "nowhere: No such file or directory" in result.output
    assert await out(sandbox, "ls") == ""


async def test_a_directory_that_was_deleted_is_reported_and_left(plain):
    await plain.exec("mkdir gone; cd gone; rmdir ../gone")
    result = await plain.exec("pwd")
    assert result.stdout.decode() == plain.workspace + "\n"
    assert "No such file or directory; continuing in" in result.output


async def test_the_spec_s_directory_and_variables_are_the_first_command_s():
    async with open_one(cwd="sub dir", env={"TOKEN": "t 1"}) as opened:
        assert await out(opened, 'pwd; echo "$TOKEN"') == f"{opened.workspace}/sub dir\nt 1\n"


async def test_nothing_of_the_caller_s_environment_is_visible(sandbox, monkeypatch):
    """hermes-agent's defect: the child got os.environ with every API key."""
    # The sandbox is renewed, because the environment of its agent is checked too.
    monkeypatch.setenv("SECRET_API_KEY", "hunter2")
    await sandbox.renew()
    answer = await out(sandbox, "env; cat /proc/*/environ /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n'; set")
    if sandbox.workspace == "/workspace":
        assert "hunter2" not in answer
    assert "SECRET_API_KEY" not in await out(sandbox, "env; tr '\\0' '\\n' </proc/$PPID/environ; set")


async def test_prompts_and_pagers_do_not_wait(plain):
    result = await plain.exec("read -r line; echo $?; echo $TERM $PAGER $GIT_TERMINAL_PROMPT; tty", timeout=60)
    assert result.stdout == b"1\ndumb cat 0\nnot a tty\n"


async def test_a_command_of_a_megabyte_runs(sandbox):
    """Command text is never in argv, where an argument has at most 128 KB."""
    result = await sandbox.exec(f": '{'x' * (1 << 20)}'; echo done")
    assert result.stdout == b"done\n"


async def test_the_command_is_not_in_any_argv(plain):
    assert b"needle" not in (await plain.exec(": need''le; tr '\\0' ' ' </proc/$$/cmdline")).stdout


@pytest.mark.parametrize("command", ["echo a\0b", "echo \ud800"])
async def test_a_command_no_shell_can_take_is_refused_clearly(plain, command):
    with pytest.raises(ValueError, match="a command cannot contain"):
        await plain.exec(command)
    assert await out(plain, "echo fine") == "fine\n"


async def test_bytes_that_are_not_utf8_pass_through_a_command(plain):
    assert (await plain.exec("printf '\udcff'")).stdout == b"\xff"


@pytest.mark.parametrize("name", ["A-B", "1A", "", "A B", "A=B"])
async def test_a_variable_bash_cannot_have_is_refused(plain, name):
    with pytest.raises(ValueError, match="environment variable"):
        await plain.exec("true", env={name: "x"})


async def test_a_megabyte_of_binary_input_arrives_exactly(sandbox):
    data = os.urandom(1 << 20)
    result = await sandbox.exec("sha256sum | cut -d' ' -f1; wc -c", stdin=data)
    import hashlib

    assert result.stdout.decode() == hashlib.sha256(data).hexdigest() + "\n0\n"


async def test_input_that_nobody_reads_hangs_nothing(sandbox):
    result = await sandbox.exec("echo started", stdin=b"x" * (1 << 20), timeout=60)
    assert (result.exit_code, result.stdout) == (0, b"started\n")


async def test_error_messages_name_bash_and_the_right_line(plain):
    result = await plain.exec("true\n\nmissing_program")
    assert result.stderr == b"bash: line 3: missing_program: command not found\n"


async def test_commands_of_one_session_do_not_overlap(plain):
    await plain.exec("n=0")
    await asyncio.gather(*(plain.exec("m=$n; sleep 0.01; n=$((m+1))") for _ in range(8)))
    assert await out(plain, "echo $n") == "8\n"


async def test_no_descriptor_but_the_standard_ones_is_inherited(plain):
    assert await out(plain, "ls /proc/self/fd") == "0\n1\n2\n3\n"  # 3 is ls's own handle on the directory


async def test_state_kept_between_commands_is_not_readable_for_others(plain):
    """hermes-agent's defect: the snapshot with all exports lay world-readable in /tmp."""
    await plain.exec("export PASSWORD=hidden")
    folder = plain.workspace.removesuffix("workspace")
    found = await out(plain, f"stat -c '%a' {folder} {folder}state-* {folder}state-*/state")
    assert found == "700\n700\n600\n"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40))
def test_any_value_survives(value, shared_runner):
    shared_runner(value)


@pytest.fixture(scope="module")
def shared_runner():
    runner = asyncio.Runner()
    context = open_one()
    opened = runner.run(context.__aenter__())

    async def check(value):
        await opened.exec("V=$GIVEN; export W=$GIVEN", env={"GIVEN": value})
        result = await opened.exec('printf %s "$V"; printf "\\0"; printenv -0 W')
        assert result.stdout == value.encode() + b"\0" + value.encode() + b"\0"

    yield lambda value: runner.run(check(value))
    runner.run(context.__aexit__(None, None, None))
    runner.close()


async def test_a_state_file_that_the_session_spoiled_costs_the_new_state_alone(plain):
    await plain.exec("export KEPT=1")
    await plain.exec("true")
    place = next(Path(plain.workspace).parent.glob("state-*"))
    for spoil in (
        f"rm -rf {place}",
        f"rm {place}/state; mkfifo {place}/state",
        f"rm {place}/state; mkdir {place}/state",
    ):
        await plain.exec(spoil + "; kill -9 $$", timeout=60)
        assert await out(plain, "echo $KEPT", timeout=60) == "1\n"
        await plain.exec(f"rm -rf {place}; kill -9 $$")


async def test_a_call_with_a_known_execution_id_runs_nothing_and_gives_the_same_result(sandbox):
    first = await sandbox.exec("echo $((++n)); exit 3", execution_id="a")
    again = await sandbox.exec("echo $((++n)); exit 3", execution_id="a")
    assert again == first
    assert (await sandbox.exec("echo $n", execution_id="b")).output == "1\n"


async def test_the_last_64_execution_ids_are_known(plain):
    for number in range(65):
        await plain.exec("((++n))", execution_id=str(number))
    await plain.exec("((++n))", execution_id="1")
    assert await out(plain, "echo $n") == "65\n"
    await plain.exec("((++n))", execution_id="0")
    assert await out(plain, "echo $n") == "66\n"


async def test_an_idle_sandbox_ends_and_its_calls_say_why(tmp_path):
    async def attempt(seconds):
        begun = tmp_path / f"begun-{seconds:g}"
        async with AsyncExitStack() as stack:
            with may_have_been_idle(seconds, begun):
                idle = await stack.enter_async_context(open_one(lifetime=seconds))
                await idle.exec(f"touch {begun}; sleep {seconds + 0.3}")
            assert await eventually(lambda: idle.slot.lost is not None, seconds=seconds + 30)
            with pytest.raises(SandboxLostError, match=re.escape(f"it was idle for {seconds:g} s")):
                await idle.exec("true")

    await with_more_time(attempt)


async def test_children_have_signals_that_work(plain):
    """The agent ignores signals that could end it. The processes that it starts must not inherit that."""
    blocked, ignored = (await out(plain, "grep -hE 'Sig(Ign|Blk)' /proc/self/status | cut -f2")).split()
    assert int(blocked, 16) & 0x7FFFFFFF == 0
    assert int(ignored, 16) & 0x7FFFFFFF == 0  # above are two that the C library reserves


async def test_commands_are_killed_for_memory_before_the_agent(sandbox):
    # From the start: processes that the shell starts at once inherit it from the shell.
    found = [await out(sandbox, "/bin/cat /proc/self/oom_score_adj") for _ in range(50)]
    assert set(found) == {"500\n"}
    assert int(Path(f"/proc/{agent_of(sandbox.id)}/oom_score_adj").read_text(encoding="ascii")) < 500
