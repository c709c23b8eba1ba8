"""Background processes of a sandbox: the contract's `Processes`, against real sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from types import SimpleNamespace

import pytest
from background import reads
from sandbox_support import LEVELS, sandbox, wait_until_gone

from hermes_core.contracts.errors import ProcessLimitError, SandboxLostError, UnavailableComponentError
from hermes_core.contracts.sandbox import Processes
from hermes_sandbox.agent.background.ring_buffer import TailRing
from hermes_sandbox.agent.background.terminate import Hunt
from hermes_sandbox.agent.processes import read_table
from hermes_sandbox.protocol import processes as processes_client


@pytest.mark.parametrize("level", LEVELS)
async def test_a_process_starts_runs_and_ends_with_its_exact_exit_code(level):
    """hermes-agent's defect: the exit code of a sandboxed process was always 127."""
    async with sandbox(level) as box:
        started = await box.processes.start("echo out; echo err >&2; exit 41")
        assert started.pid > 0
        assert started.command == "echo out; echo err >&2; exit 41"
        ended = await box.processes.wait(started.id)
        assert (ended.running, ended.exit_code) == (False, 41)
        output = await box.processes.read(started.id)
        assert (output.data, output.start, output.total, output.running) == (b"out\nerr\n", 0, 8, False)


async def test_the_sandbox_has_processes_as_the_contract_says():
    async with sandbox() as box:
        assert isinstance(box.processes, Processes)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, 137), (signal.SIGSEGV, 139), (signal.SIGTERM, 143)])
async def test_a_process_that_a_signal_ended_has_the_exit_code_of_bash(number, code):
    async with sandbox() as box:
        started = await box.processes.start(f"kill -{number.value} $$")
        assert (await box.processes.wait(started.id)).exit_code == code


async def test_any_text_is_a_command_also_one_with_quotes():
    """hermes-agent's defect: a quote in the command broke the wrapper around it."""
    async with sandbox() as box:
        started = await box.processes.start("echo 'it'\"'\"'s' \"$(echo '\"')\" # ' comment\necho $'a\\'b'")
        await box.processes.wait(started.id)
        assert (await box.processes.read(started.id)).data == b"it's \"\na'b\n"


@pytest.mark.parametrize("level", LEVELS)
async def test_output_is_there_as_soon_as_it_was_written(level):
    """hermes-agent's defect: output was hidden up to 4096 characters, so servers looked silent."""
    async with sandbox(level) as box:
        started = await box.processes.start("echo listening; read line")
        assert await reads(box.processes, started.id, b"listening\n") == b"listening\n"
        assert (await box.processes.poll(started.id)).running


async def test_it_finds_directory_exports_and_functions_of_the_session_and_changes_none():
    async with sandbox() as box:
        await box.exec("mkdir -p a && cd a && export COLOUR=blue; greet() { echo hello $1; }")
        started = await box.processes.start("greet $COLOUR; pwd; cd /; export COLOUR=red; greet() { echo no; }")
        await box.processes.wait(started.id)
        assert (await box.processes.read(started.id)).data == f"hello blue\n{box.workspace}/a\n".encode()
        assert started.cwd == f"{box.workspace}/a"
        after = await box.exec("greet $COLOUR; pwd")
        assert after.output == f"hello blue\n{box.workspace}/a\n"


async def test_directory_and_variables_of_the_call_hold_for_the_process():
    async with sandbox() as box:
        await box.exec("mkdir sub")
        started = await box.processes.start('echo "$A ${PWD##*/}"', cwd="sub", env={"A": "it's"})
        await box.processes.wait(started.id)
        assert (await box.processes.read(started.id)).data == b"it's sub\n"


async def test_a_directory_that_is_not_there_starts_nothing():
    async with sandbox() as box:
        with pytest.raises(FileNotFoundError, match="nowhere"):
            await box.processes.start("true", cwd="nowhere")
        assert await box.processes.list() == []


async def test_an_unknown_process_is_a_lookup_error_for_every_question():
    async with sandbox() as box:
        ask = box.processes
        for question in (
            ask.poll("job_9"),
            ask.read("job_9"),
            ask.wait("job_9"),
            ask.write("job_9", b"x"),
            ask.close_stdin("job_9"),
            ask.resize("job_9", rows=1, cols=1),
            ask.kill("job_9"),
        ):
            with pytest.raises(ProcessLookupError):
                await question


async def test_waiting_with_a_timeout_answers_that_it_still_runs():
    async with sandbox() as box:
        started = await box.processes.start("read line")
        assert (await box.processes.wait(started.id, timeout=0.05)).running
        assert (await box.processes.wait(started.id, timeout=0)).running


async def test_several_may_wait_for_one_process_and_one_of_them_may_give_up():
    async with sandbox() as box:
        started = await box.processes.start("read line; exit 3")
        waits = [asyncio.ensure_future(box.processes.wait(started.id)) for _ in range(3)]
        await box.processes.poll(started.id)
        waits[0].cancel()
        await asyncio.wait(waits[:1])
        await box.processes.write(started.id, b"\n")
        assert [(await wait).exit_code for wait in waits[1:]] == [3, 3]
        assert waits[0].cancelled()


async def test_commands_of_the_session_run_beside_it():
    async with sandbox() as box:
        started = await box.processes.start("read line; echo got $line > answer")
        assert (await box.exec("echo quick")).output == "quick\n"
        await box.processes.write(started.id, b"it\n")
        await box.processes.wait(started.id)
        assert await box.read_file("answer") == b"got it\n"


async def test_a_timeout_of_a_command_leaves_background_processes_alone():
    async with sandbox() as box:
        started = await box.processes.start("read line; exit 7")
        assert (await box.exec("sleep 60", timeout=0.2)).timed_out
        assert (await box.processes.poll(started.id)).running
        await box.processes.write(started.id, b"\n")
        assert (await box.processes.wait(started.id)).exit_code == 7


async def test_output_is_kept_to_one_mebibyte_and_counted_exactly():
    async with sandbox() as box:
        started = await box.processes.start("head -c 3000000 /dev/zero | tr '\\0' x; printf end")
        ended = await box.processes.wait(started.id)
        assert ended.output_bytes == 3_000_003
        output = await box.processes.read(started.id, offset=0, limit=1 << 22)
        assert output.start == 3_000_003 - (1 << 20)
        assert (len(output.data), output.data[-4:]) == (1 << 20, b"xend")


async def test_each_reader_goes_on_from_its_own_offset():
    async with sandbox() as box:
        started = await box.processes.start("printf 0123456789")
        await box.processes.wait(started.id)
        first = await box.processes.read(started.id, limit=4)
        second = await box.processes.read(started.id, offset=first.start + len(first.data))
        assert (first.data, second.data) == (b"0123", b"456789")
        assert (await box.processes.read(started.id, offset=-3)).data == b"789"
        beyond = await box.processes.read(started.id, offset=99)
        assert (beyond.data, beyond.start, beyond.total) == (b"", 10, 10)


def test_the_ring_keeps_positions_however_the_pieces_fall():
    ring = TailRing(10)
    stream = bytes(range(200))
    for start in range(0, 200, 7):
        ring.add(stream[start : start + 7])
    assert ring.total == 200
    assert ring.read(0, 100) == (190, stream[190:])
    assert ring.read(195, 3) == (195, stream[195:198])
    assert ring.read(-4, 2) == (196, stream[196:198])


async def test_input_larger_than_a_pipe_is_taken_while_the_process_reads(set_constants):
    # A program that has no processor for a while reads no more than one that has stopped reading.
    set_constants("background.job_input", _PATIENCE=600.0)
    data = b"x" * 3_000_000
    async with sandbox() as box:
        started = await box.processes.start("exec wc -c")
        assert await box.processes.write(started.id, data) == len(data)
        await box.processes.close_stdin(started.id)
        await box.processes.wait(started.id)
        assert (await box.processes.read(started.id)).data == b"3000000\n"


async def test_a_process_that_does_not_read_holds_up_nobody():
    async with sandbox() as box:
        started = await box.processes.start("exec sleep 600")
        writing = asyncio.ensure_future(box.processes.write(started.id, b"x" * 1_000_000))
        assert (await box.exec("echo quick")).output == "quick\n"
        taken = await writing
        assert 4096 <= taken < 1_000_000


async def test_writing_to_closed_input_is_a_broken_pipe():
    async with sandbox() as box:
        started = await box.processes.start("exec <&-; echo closed; exec sleep 600")
        await reads(box.processes, started.id, b"closed")
        with pytest.raises(BrokenPipeError):
            await box.processes.write(started.id, b"x")
        ended = await box.processes.start("true")
        await box.processes.wait(ended.id)
        with pytest.raises(BrokenPipeError):
            await box.processes.write(ended.id, b"x")


@pytest.mark.parametrize("level", LEVELS)
async def test_killing_ends_everything_it_started_and_says_what_was_observed(level):
    """hermes-agent's defect: only the wrapper got a signal, and "killed" was reported before any end."""
    async with sandbox(level) as box:
        script = (
            "sleep 600 & echo $!; setsid sleep 601 & echo $!; (trap '' TERM; exec sleep 602) & echo $!; echo up; wait"
        )
        started = await box.processes.start(script)
        children = (await reads(box.processes, started.id, b"up")).decode().split()[:3]
        ended = await box.processes.kill(started.id, grace=0.2)
        assert not ended.running
        assert ended.exit_code in {143, 137}
        look = "for p in $PIDS; do grep -H State: /proc/$p/status; done | grep -v '(zombie)'"
        left = await box.exec(look, env={"PIDS": " ".join([*children, str(started.pid)])})
        assert left.stdout == b""


async def test_a_process_that_ignores_the_request_is_killed_after_the_grace():
    async with sandbox() as box:
        started = await box.processes.start("trap 'echo no' TERM; echo up; while :; do read -t 600 line; done")
        await reads(box.processes, started.id, b"up")
        ended = await box.processes.kill(started.id, grace=0.2)
        assert (ended.running, ended.exit_code) == (False, 137)
        assert await wait_until_gone(ended.pid)


async def test_a_process_may_end_by_itself_in_the_grace_and_its_own_code_is_told():
    async with sandbox() as box:
        started = await box.processes.start("trap 'exit 5' TERM; echo up; while :; do read -t 0.05 line; done")
        await reads(box.processes, started.id, b"up")
        assert (await box.processes.kill(started.id, grace=60)).exit_code == 5


async def test_what_an_ended_process_left_running_is_ended_by_killing_it():
    async with sandbox() as box:
        started = await box.processes.start("setsid sleep 600 & echo $!")
        await box.processes.wait(started.id)
        left = int((await box.processes.read(started.id)).data)
        assert left in read_table()
        await box.processes.kill(started.id, grace=0.2)
        assert await wait_until_gone(left)


async def test_killing_what_has_ended_leaves_alone_who_has_its_number_now():
    """hermes-agent's defect: a number was taken for the process that once had it."""
    async with sandbox() as box:
        other = await asyncio.create_subprocess_exec("sleep", "600", start_new_session=True)
        root = read_table()[other.pid]
        slot = SimpleNamespace(acting=contextlib.nullcontext, loop=None)
        left = []
        Hunt(slot, root._replace(start=root.start - 100), f"{box.id}.1.j1", 0.0, left.append).step()
        assert left == [0]
        assert other.pid in read_table()
        other.kill()
        await other.wait()


async def test_no_more_than_sixty_four_run_and_one_that_ends_makes_room():
    """hermes-agent's defect: the number of running ones had no bound."""
    async with sandbox() as box:
        started = [await box.processes.start("read line") for _ in range(64)]
        with pytest.raises(ProcessLimitError, match="64"):
            await box.processes.start("true")
        await box.processes.write(started[0].id, b"\n")
        await box.processes.wait(started[0].id)
        await box.processes.start("true")
        listed = await box.processes.list()
        assert [info.id for info in listed[:64]] == [info.id for info in started]


async def test_the_list_tells_commands_as_they_were_given():
    async with sandbox() as box:
        long = "true # " + "x" * 500_000
        for command in (long, "false"):
            await box.processes.wait((await box.processes.start(command)).id)
        listed = await box.processes.list()
        assert [(info.command, info.exit_code, info.running) for info in listed] == [
            (long, 0, False),
            ("false", 1, False),
        ]


async def test_processes_end_with_a_renewal_and_with_the_sandbox():
    async with sandbox() as box:
        first = await box.processes.start("exec sleep 600")
        await box.renew()
        assert await wait_until_gone(first.pid)
        with pytest.raises(ProcessLookupError):
            await box.processes.poll(first.id)
        second = await box.processes.start("exec sleep 600")
    assert await wait_until_gone(second.pid)
    with pytest.raises(SandboxLostError):
        await box.processes.list()


async def test_cancelling_a_start_leaves_no_process():
    async with sandbox() as box:
        starting = asyncio.ensure_future(box.processes.start("exec sleep 600"))
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        assert [info for info in await box.processes.list() if info.running] == []


@pytest.mark.parametrize("level", LEVELS)
async def test_an_interactive_program_runs_on_a_terminal(level):
    async with sandbox(level) as box:
        started = await box.processes.start("python3 -q", pty=True)
        assert started.pty
        await reads(box.processes, started.id, b">>> ")
        await box.processes.write(started.id, b"print(6 * 7, __import__('os').isatty(0))\n")
        await reads(box.processes, started.id, b"42 True")
        await box.processes.close_stdin(started.id)
        assert (await box.processes.wait(started.id, timeout=60)).exit_code == 0


@pytest.mark.parametrize("level", LEVELS)
async def test_a_terminal_has_its_size_its_control_keys_and_a_name(level):
    async with sandbox(level) as box:
        script = "stty size; tty; trap 'stty size; exit 9' INT; echo up; while :; do read -t 600 line; done"
        started = await box.processes.start(script, pty=True, rows=40, cols=100)
        text = await reads(box.processes, started.id, b"up")
        assert b"40 100" in text
        assert b"/dev/pts/" in text
        await box.processes.resize(started.id, rows=50, cols=132)
        await box.processes.write(started.id, b"\x03")
        ended = await box.processes.wait(started.id, timeout=60)
        assert ended.exit_code == 9
        assert b"50 132" in (await box.processes.read(started.id)).data


async def test_a_renewed_sandbox_gives_terminals_again():
    async with sandbox() as box:
        for _ in range(2):
            started = await box.processes.start("test -t 1 && exit 6", pty=True)
            assert (await box.processes.wait(started.id)).exit_code == 6
            await box.renew()


async def test_a_process_without_a_terminal_has_none_to_resize():
    async with sandbox() as box:
        started = await box.processes.start("read line")
        with pytest.raises(ValueError, match="no terminal"):
            await box.processes.resize(started.id, rows=1, cols=1)
        with pytest.raises(ValueError, match="rows and columns"):
            await box.processes.start("true", pty=True, rows=0)


async def test_without_ptyprocess_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(processes_client.util, "find_spec", lambda _name: None)
    async with sandbox() as box:
        with pytest.raises(UnavailableComponentError, match=r"pip install 'hermes-sandbox\[pty\]'"):
            await box.processes.start("true", pty=True)
        assert await box.processes.list() == []


async def test_nothing_of_the_agent_is_inherited():
    async with sandbox() as box:
        for pty in (False, True):
            started = await box.processes.start("ls /proc/self/fd | tr '\\n' ' '; exit", pty=pty)
            await box.processes.wait(started.id)
            assert (await box.processes.read(started.id)).data.split() == [b"0", b"1", b"2", b"3"]
        assert os.getpgid(0) != started.pid
