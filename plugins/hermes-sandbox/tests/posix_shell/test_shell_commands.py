"""Commands without Python in the sandbox: any POSIX shell serves them, and a session keeps directory and exports."""

from __future__ import annotations

import asyncio

import pytest
from plain_support import plain_backend, plain_sandbox, running

from hermes_core.contracts.sandbox import ExecResult, SandboxSpec
from hermes_testing.watching import TooSoon, begin, exists, with_more_time


@pytest.fixture(params=["dash", "bash"])
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_streams_stay_apart_and_exit_codes_are_the_shells(shell: str) -> None:
    async with plain_sandbox(shell) as box:
        result = await box.exec("echo out; echo err >&2; exit 7")
        assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 7)
        assert (await box.exec("no-such-command")).exit_code == 127
        assert (await box.exec("kill -9 $$")).exit_code == 137
        assert (await box.exec("echo 'unclosed")).exit_code == 2


@pytest.mark.parametrize("limit", [1000, 65536])
async def test_merged_streams_keep_the_exact_order_of_their_writes_and_one_limit(shell: str, limit: int) -> None:
    writes = "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo o$i; echo e$i >&2; done"
    whole = "".join(f"o{number}\ne{number}\n" for number in range(1, 2001)).encode()
    async with plain_sandbox(shell, output_limit=limit) as box:
        for command in (writes, f"sh -c '{writes}'"):
            result = await box.exec(command, merge_stderr=True)
            assert (result.stderr, result.omitted_bytes) == (b"", max(0, len(whole) - 2 * limit))
            assert result.stdout.startswith(whole[:limit])
            assert result.stdout.endswith(whole[-limit:])
            assert result.output.encode() == result.stdout


async def test_merging_holds_for_one_call_and_a_repeat_has_the_streams_of_the_first(shell: str) -> None:
    async with plain_sandbox(shell) as box:
        merged = await box.exec("echo err >&2; echo out; set -u; : $none", execution_id="1", merge_stderr=True)
        assert merged.output.startswith("err\nout\n")
        assert "none" in merged.output
        assert merged.stderr == b""
        assert await box.exec("echo other", execution_id="1") == merged
        apart = await box.exec("echo err >&2; echo out")
        assert (apart.stdout, apart.stderr, apart.output) == (b"out\n", b"err\n", "out\nerr\n")


async def test_a_command_is_taken_as_the_shell_would(shell: str) -> None:
    texts = {
        "cat <<'EOF'\n$HOME 'y'\nEOF": "$HOME 'y'\n",
        "echo ok # and no more": "ok\n",
        "for i in 1 2; do\n  echo $i\ndone": "1\n2\n",
        "": "",
    }
    async with plain_sandbox(shell) as box:
        for text, expected in texts.items():
            assert (await box.exec(text)).output == expected


async def test_directory_and_exports_survive_with_quotes_and_newlines(shell: str) -> None:
    async with plain_sandbox(shell) as box:
        await box.exec("mkdir 'a b'; cd 'a b'; export KEPT=\"it's \\\"two\\\"\nlines\"")
        assert (await box.exec('printf "%s|" "$KEPT" "${PWD##*/}"')).output == 'it\'s "two"\nlines|a b|'
        await box.exec("unset KEPT")
        assert (await box.exec("echo ${KEPT-unset}")).output == "unset\n"


async def test_a_directory_whose_name_ends_in_a_newline_is_kept(shell: str) -> None:
    async with plain_sandbox(shell) as box:
        await box.exec('n=$(printf \'x\\ny\'); n=${n%y}; mkdir "$n"; cd "$n"; touch here')
        assert (await box.exec("ls")).output == "here\n"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("exit 7", 7),
        ("exec sh -c 'exit 5'", 5),
        ("set -e; false; echo no", 1),
        ("kill -9 $$", 137),
        ("set -u; : $no", 2),
    ],
)
async def test_state_survives_the_end_of_the_shell(command: str, code: int) -> None:
    async with plain_sandbox() as box:
        await box.exec("mkdir deep; cd deep; export KEPT=yes")
        assert (await box.exec(command)).exit_code == code
        assert (await box.exec("echo $KEPT ${PWD##*/}")).output == "yes deep\n"


async def test_env_and_cwd_hold_for_one_call(shell: str) -> None:
    async with plain_sandbox(shell, env={"KNOWN": "before"}) as box:
        await box.exec("mkdir sub")
        value = "x y $HOME 'q' \"d\"\nsecond"
        asked = await box.exec('printf %s "$ASKED$KNOWN"; cd /', env={"ASKED": value, "KNOWN": "!"}, cwd="sub")
        assert asked.output == value + "!"
        assert (await box.exec('echo ${ASKED-unset} $KNOWN "$PWD"')).output == f"unset before {box.workspace}\n"
        refused = await box.exec("touch ran", cwd="no/such/place")
        assert refused.exit_code == 126
        assert [entry.path for entry in await box.list_dir()] == ["sub"]


@pytest.mark.parametrize("data", [b"a\0b\xff\n", "é\n", b"", bytes(range(256)) * 1024])
async def test_bytes_pass_unchanged(shell: str, data: bytes | str) -> None:
    async with plain_sandbox(shell, output_limit=1 << 20) as box:
        result = await box.exec("cat", stdin=data)
        assert result.stdout == (data.encode() if isinstance(data, str) else data)
        assert (await box.exec("cat; echo $?")).stdout == b"0\n"


async def test_a_command_longer_than_an_argument_runs() -> None:
    async with plain_sandbox() as box:
        assert (await box.exec(f"x='{'a' * 300_000}'; echo ${{#x}}")).output == "300000\n"


@pytest.mark.parametrize("limit", [0, 10, 1000])
async def test_long_output_keeps_both_ends_and_counts_the_rest(limit: int) -> None:
    whole = b"".join(b"%d\n" % n for n in range(1, 20_001))
    async with plain_sandbox(output_limit=limit) as box:
        result = await box.exec("seq 1 20000")
        assert (result.truncated, result.omitted_bytes) == (True, len(whole) - 2 * limit)
        assert result.stdout.startswith(whole[:limit])
        assert result.stdout.endswith(whole[len(whole) - limit :])
        short = await box.exec(f"head -c {2 * limit} /dev/zero")
        assert (len(short.stdout), short.truncated) == (2 * limit, False)


async def test_a_timeout_keeps_what_was_printed_and_kills_what_was_started() -> None:
    apart = "setsid sh -c 'touch apart; exec sleep 7171' & (trap '' TERM INT; touch deaf; sleep 7171; true) &"
    both = "while [ ! -e apart ] || [ ! -e deaf ]; do sleep 0.02; done"
    async with plain_sandbox() as box:

        async def attempt(seconds: float) -> ExecResult:
            await box.exec("rm -f apart deaf begun")
            result = await box.exec(f"echo before; {apart} {both}; touch begun; sleep 7171", timeout=seconds)
            TooSoon.unless(await exists(box, "begun"), "not everything had been started")
            return result

        result = await with_more_time(attempt)
        assert (result.exit_code, result.timed_out, result.stdout) == (124, True, b"before\n")
        assert (await box.exec("echo still here")).output == "still here\n"
        assert not running(box.id, "7171")


async def test_a_background_child_neither_holds_the_call_nor_loses_its_output() -> None:
    async with plain_sandbox() as box:
        first = await box.exec(
            "(while [ ! -e go ]; do sleep 0.05; done; echo late; touch survived) & echo started", timeout=60
        )
        assert (first.output, first.timed_out) == ("started\n", False)
        await box.write_file("go", b"")
        done = await box.exec("while [ ! -e survived ]; do sleep 0.05; done", timeout=60)
        assert (done.exit_code, done.output) == (0, "")


async def test_cancelling_kills_the_command_and_keeps_the_session() -> None:
    async with plain_sandbox() as box:
        await box.exec("export KEPT=yes")
        call = await begin(box, "setsid sleep 7272 & touch begun; sleep 7272")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await box.exec("echo $KEPT")).output == "yes\n"
        assert not running(box.id, "7272")


async def test_an_execution_is_done_once() -> None:
    async with plain_sandbox() as box:
        results = await asyncio.gather(*(box.exec("echo x >>log; cat log", execution_id="one") for _ in range(3)))
        assert [result.output for result in results] == ["x\n"] * 3


async def test_sandboxes_do_not_wait_for_each_other() -> None:
    async with plain_backend() as backend, await backend.open(SandboxSpec()) as slow:
        waiting = await begin(slow, "sleep 7373")
        async with await backend.open(SandboxSpec()) as quick:
            assert (await quick.exec("echo quick")).output == "quick\n"
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
