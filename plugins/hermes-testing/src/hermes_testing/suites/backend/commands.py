"""Tests of commands: input, output and endings."""

from __future__ import annotations

import asyncio
import hashlib
import tracemalloc
from collections.abc import Awaitable
from dataclasses import replace
from typing import TypeVar

import pytest

from hermes_core.contracts.sandbox import ExecResult, Sandbox, TerminalBackend
from hermes_testing.suites.backend.base import BackendBase
from hermes_testing.suites.base import needs
from hermes_testing.watching import TooSoon, exists, memory_growth, sleep_token, with_more_time

T = TypeVar("T")

_COMMANDS = {
    "quotes": ("""echo 'a"b'"c'd"\\"e""", 'a"bc\'d"e\n'),
    "heredoc": ("cat <<'EOF'\n$HOME \"x\" 'y'\nEOF", "$HOME \"x\" 'y'\n"),
    "trailing_comment": ("echo ok # and no more", "ok\n"),
    "trailing_backslash": ("echo ok \\\n  more", "ok more\n"),
    "loop": ("for i in 1 2; do\n  echo $i\ndone", "1\n2\n"),
    "pipeline": ("printf 'b\\na\\n' | sort", "a\nb\n"),
    "bash_only": ("[[ abc == a* ]] && x=(1 2 3) && echo ${#x[@]}", "3\n"),
    "nothing": ("", ""),
    "only_a_comment": ("# nothing", ""),
    "leading_dash": ("-x 2>/dev/null || echo ok", "ok\n"),
    "unicode": ("echo 'grüße ✓ 你好'", "grüße ✓ 你好\n"),
}
ALTERNATING = "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo o$i; echo e$i >&2; done"
"""A command that writes 4,000 times, to one stream and to the other in turn."""
_WRITERS = {
    "builtins": (ALTERNATING, 2000),
    "a_child": (f"sh -c '{ALTERNATING}'", 2000),
    "children": ('i=0; while [ $i -lt 100 ]; do i=$((i+1)); sh -c "echo o$i"; sh -c "echo e$i >&2"; done', 100),
}
_METACHARACTERS = "$(touch pwned) `touch pwned` ; & | > < \\ ' \" * ? [ ] { } ! # ~ \n\t$HOME\n"


class Commands(BackendBase):
    """Single commands."""

    async def test_stdout_and_stderr_are_kept_apart(self, shared: Sandbox) -> None:
        """Each stream has its own bytes."""
        result = await shared.exec("echo out; echo err >&2")
        assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 0)

    async def test_output_is_stdout_and_then_stderr(self, shared: Sandbox) -> None:
        """Whichever was written first."""
        assert (await shared.exec("echo err >&2; echo out")).output == "out\nerr\n"

    @pytest.mark.parametrize(("command", "lines"), _WRITERS.values(), ids=_WRITERS)
    async def test_separate_streams_never_mix(self, shared: Sandbox, command: str, lines: int) -> None:
        """However often they are written to in turn."""
        result = await shared.exec(command)
        assert result.stdout.decode() == "".join(f"o{number}\n" for number in range(1, lines + 1))
        assert result.stderr.decode() == "".join(f"e{number}\n" for number in range(1, lines + 1))

    @pytest.mark.parametrize(("command", "lines"), _WRITERS.values(), ids=_WRITERS)
    async def test_merged_streams_keep_the_order_of_their_writes(
        self, shared: Sandbox, command: str, lines: int
    ) -> None:
        """Exactly, since they are one pipe; everything is stdout."""
        result = await shared.exec(command, merge_stderr=True)
        assert result.output == alternating_lines(lines)
        assert (result.stdout, result.stderr) == (result.output.encode(), b"")

    async def test_merged_streams_have_one_limit(self, backend: TerminalBackend) -> None:
        """The beginning and the end are those of the two together."""
        whole = alternating_lines(2000).encode()
        async with await backend.open(self.ask(output_limit=1000)) as sandbox:
            result = await sandbox.exec(ALTERNATING, merge_stderr=True)
        assert (result.truncated, result.omitted_bytes) == (True, len(whole) - 2000)
        assert (result.stdout[:1000], result.stdout[-1000:]) == (whole[:1000], whole[-1000:])
        assert result.output.encode() == result.stdout

    async def test_a_result_tells_how_long_the_command_took(self, shared: Sandbox) -> None:
        """In seconds."""
        assert (await shared.exec("sleep 1")).seconds >= 1

    @pytest.mark.parametrize(
        ("command", "code"),
        [
            ("true", 0),
            ("false", 1),
            ("(exit 42)", 42),
            ("exit 255", 255),
            ("no-such-command-anywhere", 127),
            ("touch f; ./f", 126),
            ("sh -c 'kill -TERM $$'", 143),
            ("false | true", 0),
            ("true; echo 'unclosed", 2),
        ],
    )
    async def test_exit_codes_are_those_of_bash(self, shared: Sandbox, command: str, code: int) -> None:
        """128+n after signal n, 127 for an unknown command, 2 for a syntax error."""
        assert (await shared.exec(command)).exit_code == code

    @pytest.mark.parametrize(("command", "expected"), _COMMANDS.values(), ids=_COMMANDS)
    async def test_commands_are_taken_as_bash_would(self, shared: Sandbox, command: str, expected: str) -> None:
        """Wrapping a command changes neither its meaning nor that of the next command."""
        result = await shared.exec(command)
        assert (result.output, result.exit_code) == (expected, 0)
        assert (await shared.exec("echo next")).output == "next\n"

    async def test_bytes_arrive_unchanged(self, shared: Sandbox) -> None:
        """Binary output is not decoded on the way."""
        result = await shared.exec(r"printf '\000\377\376\200a\r\n'")
        assert result.stdout == b"\0\xff\xfe\x80a\r\n"

    async def test_output_is_text_whatever_the_bytes(self, shared: Sandbox) -> None:
        """UTF-8 is decoded, invalid UTF-8 is replaced."""
        result = await shared.exec(r"printf 'caf\303\251 \377 ok'")
        assert result.output == "café \N{REPLACEMENT CHARACTER} ok"

    @pytest.mark.parametrize("data", [b"a\0b\xff\n", "é\n", _METACHARACTERS, "", b"\n\n"])
    async def test_stdin_arrives_unchanged(self, shared: Sandbox, data: bytes | str) -> None:
        """Bytes and text (as UTF-8), including all characters that a shell would interpret."""
        result = await shared.exec("cat; test ! -e pwned", stdin=data)
        assert (result.stdout, result.exit_code) == (data.encode() if isinstance(data, str) else data, 0)

    async def test_a_mebibyte_of_stdin_arrives(self, shared: Sandbox) -> None:
        """Input larger than any pipe buffer arrives whole."""
        data = bytes(range(256)) * 4096
        result = await shared.exec("sha256sum", stdin=data)
        assert result.stdout[:64].decode() == hashlib.sha256(data).hexdigest()

    async def test_stdin_that_nobody_reads_does_no_harm(self, shared: Sandbox) -> None:
        """The command ends although its input was not read."""
        result = await shared.exec("echo done", stdin=b"x" * 1_000_000)
        assert (result.stdout, result.exit_code) == (b"done\n", 0)

    async def test_no_stdin_is_end_of_file(self, shared: Sandbox) -> None:
        """A program that prompts fails at once instead of hanging."""
        result = await shared.exec("cat; read -r answer; echo $?", timeout=self.patience)
        assert (result.output, result.timed_out) == ("1\n", False)

    async def test_a_command_of_a_megabyte_runs(self, shared: Sandbox) -> None:
        """A command longer than the limit of one argument (128 KiB) runs."""
        result = await shared.exec(f"x='{'a' * 1_000_000}'; echo ${{#x}}")
        assert result.output == "1000000\n"

    @pytest.mark.parametrize("command", ["echo a\0b", "echo \ud800"], ids=["NUL", "surrogate"])
    async def test_what_no_process_can_be_given_is_refused_clearly(self, shared: Sandbox, command: str) -> None:
        """Invalid commands, variables and directories: nothing is cut off, and the sandbox stays usable."""
        with pytest.raises(ValueError, match=r"NUL|null|surrogate"):
            await shared.exec(command)
        with pytest.raises(ValueError, match=r"NUL|null|surrogate"):
            await shared.exec("true", env={"NAME": command})
        with pytest.raises(ValueError, match=r"NUL|null|surrogate"):
            await shared.exec("true", cwd=command)
        assert (await shared.exec("echo usable")).output == "usable\n"

    @pytest.mark.parametrize("timeout", [-1, float("nan")])
    async def test_a_timeout_that_is_none_is_refused(self, shared: Sandbox, timeout: float) -> None:
        """An invalid timeout is refused before the command runs."""
        with pytest.raises(ValueError, match="timeout"):
            await shared.exec("touch ran", timeout=timeout)
        assert await shared.list_dir() == []

    async def test_env_holds_for_one_call(self, shared: Sandbox) -> None:
        """The value is taken literally and is gone after the call."""
        value = "x y $HOME 'q' \"d\"\nsecond"
        assert (await shared.exec('printf %s "$ASKED"', env={"ASKED": value})).output == value
        assert (await shared.exec("echo ${ASKED-unset}")).output == "unset\n"

    async def test_the_spec_s_env_is_there(self, backend: TerminalBackend) -> None:
        """Every command and its child processes see it."""
        async with await backend.open(self.ask(env={"FROM_SPEC": "a b"})) as sandbox:
            assert (await sandbox.exec("sh -c 'echo \"$FROM_SPEC\"'")).output == "a b\n"

    async def test_commands_begin_in_the_workspace(self, sandbox: Sandbox) -> None:
        """The sandbox's workspace path is absolute, and commands start there."""
        assert sandbox.workspace.startswith("/")
        result = await sandbox.exec(f"test . -ef '{sandbox.workspace}'")
        assert result.exit_code == 0

    async def test_cwd_holds_for_one_call(self, shared: Sandbox) -> None:
        """The directory may be absolute or relative to the workspace."""
        before = (await shared.exec("mkdir -p 'sub dir'; pwd")).output
        assert (await shared.exec("pwd", cwd="/")).output == "/\n"
        assert (await shared.exec("pwd", cwd="sub dir")).output.endswith("/sub dir\n")
        assert (await shared.exec("pwd")).output == before

    async def test_an_absent_cwd_is_exit_code_126(self, shared: Sandbox) -> None:
        """The command does not run in another directory instead."""
        result = await shared.exec("touch ran", cwd="no/such/place")
        assert result.exit_code == 126
        assert (await shared.exec("ls")).output == ""

    async def test_a_repeated_execution_id_runs_nothing(self, shared: Sandbox) -> None:
        """The first result is returned again (hermes-agent: retries ran a command twice)."""
        name, command = sleep_token(), "echo ran | tee -a log; echo error >&2; exit 3"
        first = await shared.exec(command, execution_id=name)
        again = await shared.exec(command, execution_id=name)
        assert (first.stdout, first.stderr, first.exit_code) == (b"ran\n", b"error\n", 3)
        assert replace(again, seconds=0.0) == replace(first, seconds=0.0)
        assert await shared.read_file("log") == b"ran\n"

    async def test_a_repeated_execution_has_the_streams_of_the_first(self, shared: Sandbox) -> None:
        """Merged or not, whatever the repeat asks for."""
        for merge_stderr in (True, False):
            name = sleep_token()
            first = await shared.exec("echo out; echo err >&2", execution_id=name, merge_stderr=merge_stderr)
            again = await shared.exec("echo out; echo err >&2", execution_id=name, merge_stderr=not merge_stderr)
            assert (first.stdout, first.stderr) == ((b"out\nerr\n", b"") if merge_stderr else (b"out\n", b"err\n"))
            assert replace(again, seconds=0.0) == replace(first, seconds=0.0)

    async def test_the_last_64_executions_are_known(self, shared: Sandbox) -> None:
        """Even the first of them: a caller that lost its connection may ask after other calls."""
        log = sleep_token()
        names = [f"{log}.{number}" for number in range(64)]
        await asyncio.gather(*(shared.exec(f"echo ran >> {log}", execution_id=name) for name in names))
        for name in (names[0], names[-1]):
            await shared.exec(f"echo again >> {log}", execution_id=name)
        assert await shared.read_file(log) == b"ran\n" * 64

    async def test_an_execution_is_one_of_its_sandbox(self, shared: Sandbox, sandbox: Sandbox) -> None:
        """Two rollouts may use the same execution ids."""
        name = sleep_token()
        for place in (shared, sandbox):
            await place.exec(f"echo ran >> {name}", execution_id=name)
            assert await place.read_file(name) == b"ran\n"

    async def test_a_repeat_of_a_running_execution_gets_its_answer(self, shared: Sandbox) -> None:
        """It waits for the first call's result; nothing runs twice."""
        name = sleep_token()
        calls = [shared.exec("echo ran >> log; sleep 0.2; echo done", execution_id=name) for _ in range(3)]
        assert [result.output for result in await asyncio.gather(*calls)] == ["done\n"] * 3
        assert await shared.read_file("log") == b"ran\n"

    async def test_other_execution_ids_are_other_executions(self, shared: Sandbox) -> None:
        """The same command runs once for each id."""
        for _ in range(2):
            await shared.exec("echo ran >> log", execution_id=sleep_token())
        assert await shared.read_file("log") == b"ran\nran\n"

    async def test_a_timeout_is_exit_code_124_with_what_was_printed(self, shared: Sandbox) -> None:
        """The flag is set and the output so far of both streams is kept."""
        result = await self.runs_out_of_time(shared, "echo before; echo error >&2; touch reached; sleep 600")
        assert (result.exit_code, result.timed_out) == (124, True)
        assert (result.stdout, result.stderr) == (b"before\n", b"error\n")
        assert result.output == "before\nerror\n"

    async def test_a_timed_out_execution_is_known_too(self, shared: Sandbox) -> None:
        """A repeat returns the stored result and does not run the command again."""

        async def attempt(seconds: float) -> tuple[str, ExecResult, ExecResult]:
            name = sleep_token()
            command = f"echo ran | tee -a log-{name}; touch reached; sleep {name}"
            first = await shared.exec(command, timeout=seconds, execution_id=name)
            TooSoon.unless(await exists(shared, "reached"), "it had not come to `touch reached`")
            return name, first, await shared.exec(command, timeout=seconds, execution_id=name)

        name, first, again = await with_more_time(attempt)
        assert (first.timed_out, replace(again, seconds=0.0)) == (True, replace(first, seconds=0.0))
        assert await shared.read_file(f"log-{name}") == b"ran\n"

    async def test_exit_code_124_alone_is_no_timeout(self, shared: Sandbox) -> None:
        """A command may exit with 124 by itself."""
        result = await shared.exec("exit 124", timeout=60)
        assert (result.exit_code, result.timed_out) == (124, False)

    async def test_the_spec_s_timeout_is_the_default(self, backend: TerminalBackend) -> None:
        """It applies if a call has no timeout."""
        async with await backend.open(self.ask(timeout=0.4)) as sandbox:
            assert (await sandbox.exec("sleep 600")).timed_out

    @pytest.mark.parametrize(
        "command",
        [
            "touch reached; sleep TOKEN",
            "sleep TOKEN & touch reached; wait",
            "(sh -c 'touch reached; sleep TOKEN; true'; true) | cat",
            "setsid sleep TOKEN & touch reached; sleep 600",
            "trap '' TERM INT HUP; sh -c 'trap \"\" TERM INT HUP; touch reached; sleep TOKEN; true'; sleep 600",
        ],
        ids=["child", "background", "grandchild", "setsid", "deaf_to_signals"],
    )
    async def test_a_timeout_kills_every_process_of_the_command(self, shared: Sandbox, command: str) -> None:
        """Children, grandchildren, those in another session and those that ignore signals."""
        token = sleep_token()
        result = await self.runs_out_of_time(shared, command.replace("TOKEN", token))
        assert result.timed_out
        assert await self.vanishes(shared, token)

    async def test_a_background_child_does_not_hold_the_call(self, sandbox: Sandbox) -> None:
        """The call ends with the shell, even if the child keeps the output open; the child lives on."""
        token = sleep_token()
        result = await sandbox.exec(f"sleep {token} & echo started", timeout=self.patience)
        assert (result.output, result.exit_code, result.timed_out) == ("started\n", 0, False)
        assert await self.starts(sandbox, token)

    async def test_long_output_keeps_head_and_tail_and_counts_the_rest(self, backend: TerminalBackend) -> None:
        """The number of omitted bytes is exact and part of the text."""
        whole = b"".join(b"%d\n" % n for n in range(1, 20_001))
        async with await backend.open(self.ask(output_limit=1000)) as sandbox:
            result = await sandbox.exec("seq 1 20000")
        omitted = len(whole) - 2000
        assert (result.truncated, result.omitted_bytes, result.exit_code) == (True, omitted, 0)
        assert result.stdout.startswith(whole[:1000])
        assert result.stdout.endswith(whole[-1000:])
        assert str(omitted) in result.output

    async def test_output_at_the_limit_is_whole(self, backend: TerminalBackend) -> None:
        """Head and tail together hold exactly twice the limit."""
        async with await backend.open(self.ask(output_limit=1000)) as sandbox:
            result = await sandbox.exec("head -c 2000 /dev/zero | tr '\\0' x")
        assert (result.stdout, result.truncated, result.omitted_bytes) == (b"x" * 2000, False, 0)

    async def test_a_flood_on_both_streams_ends(self, shared: Sandbox) -> None:
        """Both pipes are drained at the same time (hermes-agent: deadlock above 64 KB)."""
        flood = "head -c 9000000 /dev/zero"
        result = await shared.exec(f"{flood} >&2 & {flood}; wait; exit 5", timeout=60)
        assert (result.exit_code, result.truncated, result.timed_out) == (5, True, False)
        # Both ends of each stream are kept, and the missing bytes of both are counted, which is more than one stream
        # had.
        assert min(len(result.stdout), len(result.stderr)) >= 2 * self.ask().output_limit
        assert result.omitted_bytes > 9_000_000

    async def test_output_of_200_megabytes_takes_little_memory(self, shared: Sandbox) -> None:
        """Omitted output is counted, not stored (hermes-agent: 200 MB took 621 MB)."""
        flood = shared.exec("head -c 200000000 /dev/zero", timeout=250)
        (result, held), grown = await memory_growth(most_held(flood))
        assert result.omitted_bytes == 200_000_000 - 2 * self.ask().output_limit
        assert (result.exit_code, result.truncated) == (0, True)
        assert held < 64 << 20
        # Memory outside Python objects shows only in the process size, which may grow for other reasons too.
        assert grown < 150 << 20

    async def test_output_without_end_ends_at_the_timeout(self, shared: Sandbox) -> None:
        """Beginning and end of the output are kept, and the command is dead."""
        # More than is kept, and more than fits into an unread pipe.
        much = 2 * self.ask().output_limit + (4 << 20)
        result = await self.runs_out_of_time(shared, f"echo first; yes | head -c {much}; touch reached; yes")
        assert (result.exit_code, result.timed_out, result.truncated) == (124, True, True)
        assert result.stdout.startswith(b"first\ny\n")
        assert result.omitted_bytes > 0

    @needs("visible_environment")
    async def test_the_caller_s_secrets_are_invisible(self, shared: Sandbox) -> None:
        """Neither the command's environment nor that of any process it can inspect has them."""
        seen = await shared.exec("env; cat /proc/$$/environ /proc/$PPID/environ 2>/dev/null; true")
        assert b"PATH=" in seen.stdout
        assert b"sk-never-seen" not in seen.stdout


def alternating_lines(count: int) -> str:
    """Return what a command has written that counts on both streams in turn."""
    return "".join(f"o{number}\ne{number}\n" for number in range(1, count + 1))


async def most_held(awaitable: Awaitable[T]) -> tuple[T, int]:
    """Await something and measure the peak memory of Python objects meanwhile, beyond that of before."""
    was_tracing = tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        result = await awaitable
        return result, tracemalloc.get_traced_memory()[1] - before
    finally:
        if not was_tracing:
            tracemalloc.stop()
