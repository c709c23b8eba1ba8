"""The tool `terminal`, against a real sandbox."""

from __future__ import annotations

import json
import math
import re
from types import SimpleNamespace

import pytest

from hermes_sandbox import open_sandbox
from hermes_testing.watching import TooSoon, exists, with_more_time
from hermes_tools.terminal import TerminalTool, exit_code_meaning


@pytest.fixture
async def context():
    async with open_sandbox("local") as sandbox:
        yield SimpleNamespace(sandbox=sandbox, state={})


async def run(context, command, **arguments):
    result = await TerminalTool().call({"command": command, **arguments}, context)
    return json.loads(result.content) | {"failed": result.error}


async def test_a_command_answers_output_exit_code_and_no_error(context):
    answer = await run(context, "echo ' hello '; echo oops >&2; exit 3")
    assert answer == {"output": " hello \noops", "exit_code": 3, "error": None, "failed": None}


async def test_a_model_reads_both_streams_in_the_order_of_their_writes(context):
    answer = await run(context, "for i in {1..300}; do echo o$i; echo e$i >&2; done")
    assert answer["output"].split() == [f"{stream}{number}" for number in range(1, 301) for stream in "oe"]


async def test_the_session_is_kept_between_calls(context):
    await run(context, "mkdir -p a/b && cd a/b && export COLOUR=blue")
    assert (await run(context, 'echo "$COLOUR ${PWD##*/}"'))["output"] == "blue b"


async def test_a_timeout_is_answered_with_124_and_is_no_failed_call(context):
    async def attempt(seconds):
        limit = math.ceil(seconds)
        await context.sandbox.exec("rm -f begun")
        answer = await run(context, "echo begun; touch begun; sleep 600", timeout=limit)
        TooSoon.unless(await exists(context.sandbox, "begun"), "the command had not begun")
        assert answer["exit_code"] == 124
        assert answer["error"] == f"Command timed out after {limit} seconds"
        assert answer["failed"] is None
        assert "begun" in answer["output"]

    await with_more_time(attempt)
    assert (await run(context, "echo on"))["output"] == "on"


async def test_a_timeout_above_the_maximum_is_refused_and_nothing_is_run(context):
    answer = await run(context, "touch done", timeout=601)
    assert answer["exit_code"] == -1
    assert "600" in answer["error"]
    assert answer["failed"]
    assert (await run(context, "ls"))["output"] == ""


async def test_long_output_keeps_head_and_tail_with_the_exact_number_omitted(context):
    """hermes-agent's defect: one version lost the tail, which has the errors, the other the head."""
    answer = await run(context, "seq 1 15000")
    whole = "\n".join(map(str, range(1, 15001)))
    head, notice, tail = re.split(r"\n(\[OUTPUT TRUNCATED.*?\])\n", answer["output"])
    assert (len(head), len(tail)) == (20_000, 30_000)
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert f" {len(whole) - 50_000} of {len(whole)} characters omitted" in notice


async def test_output_beyond_what_the_sandbox_keeps_is_counted_in_the_notice(context):
    answer = await run(context, "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo the end")
    assert answer["output"].endswith("the end")
    head, omitted, total, unkept, tail = re.fullmatch(
        r"(x+)\n\[OUTPUT TRUNCATED - (\d+) of (\d+) characters omitted here, besides (\d+) bytes .*\]\n(.*)",
        answer["output"],
        re.DOTALL,
    ).groups()
    assert int(total) + int(unkept) == 3_000_000 + len("\nthe end\n") - len("\n")
    assert len(head) + int(omitted) + len(tail) == int(total)


async def test_escape_sequences_are_removed(context):
    answer = await run(context, r"printf '\033[1;31mred\033[0m \033]0;title\007plain\033(B'")
    assert answer["output"] == "red plain"


async def test_workdir_is_taken_literally(context):
    for name in ["it's", 'a "b"', "$(touch x)", "; touch x;", "a b\tc", "-n", "ü", "`x`", "*"]:
        await context.sandbox.write_file(f"dirs/{name}/inside", b"")
        answer = await run(context, "ls", workdir=f"{context.sandbox.workspace}/dirs/{name}")
        assert answer["output"] == "inside", name
    assert (await run(context, "ls"))["output"] == "dirs"


async def test_a_workdir_that_is_no_directory_is_named(context):
    await context.sandbox.write_file("file", b"")
    for path in ("/no/such", f"{context.sandbox.workspace}/file"):
        answer = await run(context, "touch done", workdir=path)
        assert answer["exit_code"] == 126
        assert path in answer["error"]
    assert (await run(context, "ls"))["output"] == "file"


async def test_commands_that_quote_badly_or_hold_heredocs_behave_as_in_bash(context):
    assert (await run(context, "cat <<'E'\nit's \"quoted\" # here\nE\necho end # comment"))["output"] == (
        'it\'s "quoted" # here\nend'
    )
    assert (await run(context, "echo 'open"))["exit_code"] != 0
    assert (await run(context, "echo fine"))["output"] == "fine"
    assert "NUL" in (await run(context, "a\0b"))["error"]


async def test_a_backend_that_fails_is_not_asked_again(context):
    """hermes-agent's defect: a command was run up to three more times when the backend raised."""
    calls = []

    async def break_down(*arguments, **options):
        calls.append(arguments)
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError):
        await run(SimpleNamespace(sandbox=SimpleNamespace(exec=break_down), state={}), "rm -r x")
    assert len(calls) == 1


async def test_an_exit_code_that_is_no_error_is_explained(context):
    assert "no lines matched" in (await run(context, "grep -q x /dev/null"))["exit_code_meaning"]
    assert "exit_code_meaning" not in await run(context, "true")


@pytest.mark.parametrize(
    ("command", "meaning"),
    [
        ("diff a b", "differ"),
        ("LC_ALL=C /usr/bin/grep 'a && b' f", "no lines"),
        ("grep x f 2>/dev/null >out", "no lines"),
        ("make || grep x log", "no lines"),
        # With pipefail or set -e the code can come from another program.
        ("cat f | grep x", None),
        ("make 2>&1 |& grep x", None),
        ("make || cat f | grep x", None),
        ("ls; grep x f", None),
        ("make & grep x f", None),
        ("grep x " + "f" * 5000, None),
        ("[ -f x ]", "condition"),
        ("cd x && grep y z", None),
        ("a && b | grep x", None),
        ("python -c 'import grep'", None),
        ("grep x\nexit 1", None),
        ("(grep x)", None),
        ("echo 'open", None),
        ("", None),
    ],
)
def test_a_meaning_is_given_only_where_the_program_is_certain(command, meaning):
    found = exit_code_meaning(command, 1)
    assert found is None if meaning is None else meaning in found
