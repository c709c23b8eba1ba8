"""The saved state of a session can contain secrets. It is removed with its sandbox, and nothing of it stays in /tmp."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import uuid
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sandbox_support import UID, agent_of, backend, require, slot_fields

from hermes_core.contracts.errors import SandboxLostError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.protocol.agent_process import AgentProcess
from hermes_sandbox.protocol.bootstrap import PYTHON_FLAGS
from hermes_sandbox.protocol.client import AgentClient
from hermes_sandbox.protocol.slots import AgentSlot
from hermes_testing.watching import eventually

WAYS = [
    pytest.param("none", 1, id="none"),
    pytest.param("none", 4, id="shared"),
    pytest.param("bwrap", 1, id="bwrap", marks=pytest.mark.component("bwrap")),
]


def files_with(secret: str) -> list[str]:
    """Return the files with a text in the agents' folders in /tmp. Others create such folders too."""
    found, text = [], secret.encode()
    # An agent without a given folder saves its state here, whatever TMPDIR is.
    for folder in Path("/tmp").glob("hermes-*"):
        with contextlib.suppress(OSError):  # the folders of others can vanish at any time
            found += [str(path) for path in folder.iterdir() if path.is_file() and text in path.read_bytes()]
    return found


def kill_agent(sandbox, level: str) -> None:
    """Kill the agent as the kernel does when memory runs out. In bubblewrap, the agent does not know its outer pid."""
    pid = agent_of(sandbox.id) if level == "bwrap" else sandbox.slot.client.greeting["pid"]
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("ending", ["closed", "killed", "reclaimed"])
@pytest.mark.parametrize("session", ["robust", "live"])
@pytest.mark.parametrize(("level", "slots"), WAYS)
async def test_what_is_saved_of_a_session_goes_with_its_sandbox(level, slots, session, ending):
    require(level)
    spec, secret = SandboxSpec(isolation=level, session=session), uuid.uuid4().hex
    # On exit, this fails if its folder contains anything but leases.
    async with backend(slots_per_agent=slots) as made:
        sandbox = await made.open(spec)
        await sandbox.exec(f"export SECRET={secret}")
        await sandbox.renew()
        assert files_with(secret) == []
        assert (await sandbox.exec(f"echo ${{SECRET-gone}}; export SECRET={secret}")).output == "gone\n"
        # A live session has only its last command in a file, not its state.
        assert (await sandbox.exec(f"echo $SECRET; : {secret}")).output == f"{secret}\n"
        if ending != "closed":
            kill_agent(sandbox, level)
            with pytest.raises(SandboxLostError):
                await sandbox.exec("echo ghost")
        if ending == "reclaimed":
            await made.reclaim(made.handle(spec, sandbox.id))
            assert files_with(secret) == []
        await sandbox.aclose()
        assert files_with(secret) == []


@asynccontextmanager
async def agent():
    process = await AgentProcess.start([sys.executable, *PYTHON_FLAGS], environment={"PATH": "/usr/bin:/bin"})
    client = await AgentClient.connect(process.stream, {"marker": uuid.uuid4().hex[:16], "limits": {}}, timeout=60)
    try:
        yield client
    finally:
        await client.aclose()
        assert await process.end(60)


@pytest.fixture
def place():
    # Not tmp_path, because the users of slots cannot enter its parents.
    with tempfile.TemporaryDirectory(prefix="hermes-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


async def run(slot, command: str) -> bytes:
    """Run a command and return its output."""
    text = command.encode()
    header = {"op": "exec", "command": len(text), "stdin": False, "timeout": 120, "limit": 9999}
    return (await slot.request({**header, "cwd": None, "env": {}, "merge_stderr": True}, text))[1]


@pytest.mark.parametrize("session", ["robust", "live"])
@pytest.mark.parametrize(
    "damage",
    [
        "chmod 000 {0}",
        "chmod 500 {0}",
        "chmod 000 {0}/*",
        "chmod 200 {0}/*",
        "chmod 400 {0}/*",
        "rm -rf {0}; touch {0}",
        "for each in {0}/*; do rm -f $each; mkdir $each; done",
        "for each in {0}/*; do rm -f $each; mkfifo $each; done",
    ],
)
async def test_what_is_in_the_way_of_the_saved_state_costs_nothing(place, session, damage):
    # Permissions do not stop root.
    user = {"uid": UID + 1, "gid": UID + 1} if os.geteuid() == 0 else {}
    states = place / "states"
    states.mkdir()
    states.chmod(0o777)
    async with agent() as client:
        fields = {"state_dir": str(states / "own"), "own_directory": True, "session": session, **user}
        slot = await AgentSlot.open(client, slot_fields(place / "slot", **fields), exclusive=False)
        await run(slot, "X=kept")
        await run(slot, damage.format(states / "own"))
        assert await run(slot, "echo $X; Y=new") == b"kept\n"
        assert await run(slot, "echo $X $Y") == b"kept new\n"
        await slot.aclose()
        assert list(states.iterdir()) == []


@pytest.mark.parametrize("own_user", [False, True])
async def test_what_a_command_puts_beside_the_saved_state_goes_too(place, own_user):
    if own_user and os.geteuid() != 0:
        pytest.skip("slots have users of their own only under root")
    # Write-protected and nested, so that an `unlink` of each entry does not delete it.
    fill = "mkdir -p {0}/000/more; touch {0}/000/more/file; chmod 500 {0}/000/more"
    user = {"uid": UID + 1, "gid": UID + 1} if own_user else {}
    states = place / "states"
    states.mkdir()
    states.chmod(0o777)
    first, second = states / "first", states / "second"
    async with agent() as client:
        fields = slot_fields(place / "slot", state_dir=str(first), own_directory=True, **user)
        slot = await AgentSlot.open(client, fields, exclusive=False)
        await run(slot, f"export SECRET=1; {fill.format(first)}")
        assert (first / "000/more/file").exists()
        assert (first / "state").exists()
        await slot.reset(state_dir=str(second))
        assert not (first / "state").exists()
        await run(slot, fill.format(second))
        await slot.aclose()
        assert list(states.iterdir()) == []


SAVE_FOR_EVER = """
folder=$(tr '\\0' '\\n' </proc/$$/cmdline | grep -o -m 1 '/tmp/hermes-[0-9a-f]*' | head -n 1)
(setsid bash -c "while :; do mkdir -p $folder; echo SECRET >$folder/state; done" >/dev/null 2>&1 &)
"""


@pytest.mark.parametrize("own_user", [False, True])
async def test_what_a_slot_s_processes_save_until_they_are_killed_goes_too(place, own_user):
    """They can write between the request to end the slot, which deletes existing files, and their own end."""
    if own_user and os.geteuid() != 0:
        pytest.skip("slots have users of their own only under root")
    user = {"uid": UID + 1, "gid": UID + 1} if own_user else {}
    async with agent() as client:
        fields = slot_fields(place / "slot", state_dir=None, own_directory=True, **user)
        slot = await AgentSlot.open(client, fields, exclusive=False)
        for end in (slot.reset, slot.aclose):
            secret = uuid.uuid4().hex
            await run(slot, SAVE_FOR_EVER.replace("SECRET", secret))
            assert await eventually(lambda secret=secret: len(files_with(secret)) == 1)
            await end()
            assert files_with(secret) == []
