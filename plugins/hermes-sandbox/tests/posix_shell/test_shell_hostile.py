"""A hostile command can neither fake an answer of the shell that serves it nor prevent it from continuing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from plain_support import plain_sandbox

from hermes_core.contracts.errors import SandboxLostError
from hermes_sandbox.agent.processes import read_table, with_descendants
from hermes_testing.users import free_users
from hermes_testing.watching import TooSoon, begin, eventually, with_more_time

_FORGED = "0123456789abcdef0123456789abcdef done 0 0 5 0 0 0 0 0 0 0 0"


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(
    "command",
    [
        "exec >&-",
        "exec 2>&- 1>&- 0<&-",
        'exec 1>&2 2>&1; for n in 3 4 5 6 7 8 9; do eval "exec $n>&-"; done',
        "trap '' TERM INT HUP PIPE CHLD 2>/dev/null; true",
        "trap 'exit 3' EXIT",
        "set -eux; IFS=x; set -f",
        "set -a; set -C; umask 777",
        "PATH=/nowhere; export PATH",
        "printf() { echo bad; }; kill() { :; }; cd() { :; }; echo() { :; }; pwd() { command printf /bad; }",
        "export() { :; } 2>/dev/null; unset() { :; } 2>/dev/null; trap() { :; } 2>/dev/null; true",
        "alias printf=false export=false eval=false exit=true trap=false 2>/dev/null; true",
        "IFS=0123456789; export IFS",
        "export ENV=/nowhere BASH_ENV=/nowhere LD_PRELOAD=/nowhere.so CDPATH=/ PS4='$(touch bad)'",
        "HERMES_SANDBOX=other; export HERMES_SANDBOX",
        "exit 300",
        "set -- a b c; shift 3; readonly PWD",
        "kill -STOP $$ & wait",
    ],
)
async def test_what_a_command_does_to_its_shell_is_gone_with_it(shell: str, command: str) -> None:
    async with plain_sandbox(shell) as box:
        await box.exec("mkdir deep; cd deep; export KEPT=yes")
        await box.exec(command, timeout=10)
        after = await box.exec("PATH=/usr/bin:/bin; IFS=' '; echo $KEPT; echo err >&2; exit 4", timeout=60)
        assert (after.stdout, after.exit_code) == (b"yes\n", 4)
        assert after.stderr.endswith(b"err\n")
        assert "bad" not in [entry.path for entry in await box.list_dir()]


async def test_an_answer_in_the_output_is_output() -> None:
    async with plain_sandbox() as box:
        line = f"{_FORGED:<255}\n"
        result = await box.exec(f"printf '%s' '{line}'; printf '%s' '{line}' >&2; echo $?; exit 3")
        assert (result.stdout.decode(), result.stderr.decode()) == (f"{line}0\n", line)
        assert result.exit_code == 3


async def test_neither_secret_nor_stream_is_where_a_command_looks() -> None:
    async with plain_sandbox() as box:
        # No open file leads to the caller, and no variable or argument contains a secret.
        result = await box.exec("readlink /proc/$$/fd/*; env; tr '\\0' '\\n' </proc/$$/cmdline")
        assert "socket" not in result.output
        assert "/turn" not in result.output
        assert not [word for word in result.output.replace("=", " ").split() if len(word) == 32]


async def test_who_writes_to_the_shells_own_stream_ends_the_sandbox_and_answers_nothing() -> None:
    async with plain_sandbox() as box:
        call = await begin(box, "sleep 7474")
        box._server._stream.reader.push(f"{_FORGED:<255}\n".encode())
        with pytest.raises(SandboxLostError, match="another program has written"):
            await call
        with pytest.raises(SandboxLostError):
            await box.exec("true")


_KILLER = "echo $PPID >parent; until [ -s victim ]; do sleep 0.02; done; kill -9 $(cat victim); touch killed; "
_KILLER += "sleep 7575"


async def name_victim(workspace: Path, victim: str, seconds: float) -> None:
    """Tell `_KILLER` to kill its parent or grandparent. Fail if that is not a process of this test."""
    said = workspace / "parent"
    is_said = await eventually(lambda: said.exists() and said.read_text().endswith("\n"), seconds=seconds)
    TooSoon.unless(is_said, "the command had not begun")
    pid, table = int(said.read_text()), read_table()
    TooSoon.unless(pid in table, "the command had ended")
    if victim == "grandparent":
        pid = table[pid].parent
    below = with_descendants(table, [os.getpid()]) - {os.getpid()}
    assert pid in below, f"process {pid} was not started by this test and is not killed"
    (workspace / "victim").write_text(f"{pid}\n")


@pytest.mark.parametrize("victim", ["parent", "grandparent"])
async def test_killing_what_serves_it_is_a_lost_sandbox_and_no_hang(
    victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_sandbox.posix_shell.client._GRACE", 1.0)

    async def attempt(seconds: float) -> None:
        async with plain_sandbox() as box:
            # The workspace is a directory of this machine, which exists until the sandbox is closed.
            workspace = Path(box.workspace)
            outcomes: list[object] = await asyncio.gather(
                box.exec(_KILLER, timeout=seconds), name_victim(workspace, victim, seconds), return_exceptions=True
            )
            if isinstance(outcomes[1], BaseException):
                raise outcomes[1]
            TooSoon.unless((workspace / "killed").exists(), "nobody had been killed")
            assert isinstance(outcomes[0], SandboxLostError), outcomes
            with pytest.raises(SandboxLostError):
                await box.exec("true")

    await with_more_time(attempt)


async def test_two_hundred_megabytes_are_counted_and_not_kept() -> None:
    async with plain_sandbox(output_limit=1000) as box:
        result = await box.exec("head -c 200000000 /dev/zero; echo end", timeout=200)
        assert (result.omitted_bytes, result.stdout[-4:]) == (200000004 - 2000, b"end\n")


@pytest.mark.parametrize("command", ["yes", "yes >&2", "yes & yes >&2 & wait", "while :; do :; done"])
async def test_output_without_end_is_cut_off_by_the_timeout(command: str) -> None:
    async with plain_sandbox(output_limit=1000) as box:
        result = await box.exec(command, timeout=0.5)
        assert (result.exit_code, result.timed_out) == (124, True)
        assert len(result.stdout) + len(result.stderr) < 5000
        assert (await box.exec("echo on")).output == "on\n"


async def test_a_child_that_goes_on_printing_does_not_hold_the_call() -> None:
    async with plain_sandbox(output_limit=1000) as box:
        result = await box.exec("yes & echo started >&2", timeout=60)
        assert (result.exit_code, result.timed_out, result.stderr) == (0, False, b"started\n")
        assert set(result.stdout) <= set(b"y\n[.0123456789 bytesomitted]")
        assert (await box.exec("kill %1 2>/dev/null; echo on")).stdout == b"on\n"


async def test_a_command_s_umask_does_not_close_the_saved_state() -> None:
    """If the user is not root, the state could never be read or written again."""
    async with plain_sandbox() as box:
        place = (await box.exec('echo "${0%/*}"')).output.strip()
        await box.exec("umask 777")
        assert (await box.exec(f"stat -c %a {place}/u/state")).output == "600\n"


async def test_a_state_that_was_tampered_with_harms_nobody_else() -> None:
    async with plain_sandbox() as box:
        place = (await box.exec('echo "${0%/*}"')).output.strip()
        await box.exec("export KEPT=yes")
        await box.exec(f"kill -9 $$ & rm -rf {place}/u/*; echo 'exit 9' >{place}/u/new")
        assert (await box.exec("echo on")).stdout == b"on\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes a user whose processes are bounded and not its own")
async def test_a_crowd_that_holds_all_processes_for_long_takes_no_descriptors_from_the_shell(tmp_path: Path) -> None:
    """Meanwhile the shell tries to fork again and again. Here it can open only 40 descriptors."""
    user, shell = free_users(), tmp_path / "bounded"
    become = f"exec setpriv --reuid={user} --regid={user} --clear-groups dash"
    shell.write_text(f'#!/usr/bin/dash\nulimit -n 40; ulimit -p 20\n{become} "$@"\n')
    shell.chmod(0o755)
    async with plain_sandbox(str(shell)) as box:
        # Each process that ends makes room for another one, until 10,000 processes could not be started.
        start = "command eval 'sleep 1 &' || { n=$((n + 1)); echo; }"
        crowd = f"exec 2>/dev/null; n=0; until [ $n = 10000 ]; do {start}; done; wait; echo end"
        result = await box.exec(crowd, timeout=60)
        assert (result.output, result.exit_code, result.timed_out) == ("\n" * 10_000 + "end\n", 0, False)
        await box.renew()
        assert (await box.exec("echo $(echo room)")).output == "room\n"
