"""The interactive terminal on a machine reached by SSH."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from hermes_backend_ssh.backend import SshBackend
from hermes_backend_ssh.options import SshOptions
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_tools import TerminalStatefulTool, TmuxTool

pytestmark = pytest.mark.component("sshd")


async def test_the_shell_stays_and_its_screen_is_read(own_sshd, tmp_path):
    backend = SshBackend(SshOptions(**own_sshd.options))
    backend.lease_dir = tmp_path / "leases"
    try:
        async with await backend.open(SandboxSpec()) as box:
            rollout = SimpleNamespace(sandbox=box, state={})
            stateful, tmux = TerminalStatefulTool(), TmuxTool()
            await stateful.call({"command": "colour=blue"}, rollout)
            result = await stateful.call({"command": "echo $colour # said; (exit 3)\n(exit 3)"}, rollout)
            assert json.loads(result.content) == {"output": "blue", "exit_code": 3, "error": None}
            keys = {"action": "send_keys", "keys": ["echo on; (exit 4)", "Enter"], "block": True}
            answer = json.loads((await tmux.call(keys, rollout)).content)
            assert (answer["completed"], answer["exit_code"]) == (True, 4)
            assert answer["screen"].endswith("$ echo on; (exit 4)\non\n$")
    finally:
        await backend.aclose()
