"""The interactive terminal in containers, as in every other sandbox."""

from __future__ import annotations

import asyncio
import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_backend_docker.backend import DockerBackend
from hermes_core.contracts.sandbox import IsolationLevel, Sandbox, SandboxSpec
from hermes_testing.watching import TooSoon, exists, with_more_time
from hermes_tools import TerminalStatefulTool, TmuxTool
from hermes_tools.interactive.session import terminal_session

pytestmark = [
    pytest.mark.component("docker"),
    pytest.mark.parametrize("isolation", ["container", "container+slot"]),
]

# The small image has no entries for terminals, so this draws by itself.
PROGRAM = r"""
import sys, termios, tty
old = termios.tcgetattr(0)
tty.setraw(0)
sys.stdout.write('\033[?1049h\033[2J\033[5;10HPress a key')
sys.stdout.flush()
key = sys.stdin.read(1)
sys.stdout.write(f'\033[6;10HYou pressed {key}')
sys.stdout.flush()
sys.stdin.read(1)
sys.stdout.write('\033[?1049l')
sys.stdout.flush()
termios.tcsetattr(0, termios.TCSADRAIN, old)
raise SystemExit(6)
"""


@pytest.fixture(autouse=True)
def _slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the shell the time that it takes on a busy machine to come back."""
    monkeypatch.setattr(terminal_session, "_READY", 60.0)
    monkeypatch.setattr(terminal_session, "_RECOVERS", 20.0)


def _rollout(box: Sandbox) -> Any:
    return SimpleNamespace(sandbox=box, state={})


async def _run(rollout: Any, command: str, **arguments: Any) -> dict[str, Any]:
    result = await TerminalStatefulTool().call({"command": command, **arguments}, rollout)
    answer: dict[str, Any] = json.loads(result.content)
    return answer


async def _tmux(rollout: Any, action: str, **arguments: Any) -> dict[str, Any]:
    result = await TmuxTool().call({"action": action, **arguments}, rollout)
    answer: dict[str, Any] = json.loads(result.content)
    return answer


async def _sees(rollout: Any, wanted: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while wanted not in (answer := await _tmux(rollout, "capture"))["screen"]:
            assert answer.get("status") != "exited", answer
    return answer


async def test_the_shell_stays_and_tells_exit_codes(backend: DockerBackend, isolation: IsolationLevel) -> None:
    async with await backend.open(SandboxSpec(isolation=isolation, network="none")) as box:
        rollout = _rollout(box)
        await _run(rollout, "mkdir a && cd a; colour=blue; sleep 1000 &")
        answer = await _run(rollout, 'echo "$colour ${PWD##*/}"; jobs -p | wc -l; (exit 3) # a comment')
        assert answer == {"output": "blue a\n1", "exit_code": 3, "error": None}

        async def is_interrupted(seconds: float) -> None:
            await box.exec("rm -f begun")
            ended = await _run(rollout, f"touch {box.workspace}/begun; sleep 600", timeout=math.ceil(seconds))
            TooSoon.unless(await exists(box, "begun"), "the command had not begun")
            TooSoon.unless(ended["exit_code"] is not None, "the shell had not come back")
            assert ended["exit_code"] == 130

        await with_more_time(is_interrupted)
        assert (await _run(rollout, "exit 7"))["exit_code"] == 7
        assert (await _run(rollout, "echo 'new'"))["output"] == "new"


async def test_a_full_screen_program_is_driven_and_read(backend: DockerBackend, isolation: IsolationLevel) -> None:
    async with await backend.open(SandboxSpec(isolation=isolation, network="none")) as box:
        rollout = _rollout(box)
        await box.write_file("program.py", PROGRAM)
        await _tmux(rollout, "send_keys", keys=["python3 program.py", "Enter"])
        answer = await _sees(rollout, "Press a key")
        assert answer["full_screen"] is True
        assert answer["screen"] == "\n" * 4 + " " * 9 + "Press a key"
        await _tmux(rollout, "send_keys", keys=["x"])
        await _sees(rollout, "You pressed x")
        answer = await _tmux(rollout, "send_keys", keys=["Enter"], block=True)
        assert (answer["completed"], answer["exit_code"]) == (True, 6)
        # The prompt may be shown later than the shell has come back.
        answer = await _sees(rollout, "program.py\n$")
        assert answer["screen"] == "$ python3 program.py\n$"


async def test_no_other_user_can_read_the_terminals_state(backend: DockerBackend, isolation: IsolationLevel) -> None:
    async with await backend.open(SandboxSpec(isolation=isolation, network="none")) as box:
        rollout = _rollout(box)
        await _run(rollout, "true")
        listed = await box.exec('stat -c "%a %U" "${TMPDIR:-/tmp}"/hermes-terminal.*')
        assert listed.output.startswith("700 ")
        await _tmux(rollout, "stop")
        assert (await box.exec('ls -d "${TMPDIR:-/tmp}"/hermes-terminal.*')).exit_code != 0
