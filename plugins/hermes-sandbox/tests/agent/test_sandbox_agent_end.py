"""The end of an agent: what it has started ends with it, and its status says whether that is so."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sandbox_support import slot_fields
from slot_agents import agent, open_slot, out

from hermes_sandbox.agent.wire import PROTOCOL, Decoder, encode
from hermes_sandbox.backends import PYTHON_FLAGS
from hermes_sandbox.protocol.bootstrap import agent_message
from hermes_sandbox.protocol.slots import AgentSlot
from hermes_testing.watching import processes_here, sleep_token

PATCH = "import hermes_sandbox.agent.processes as own, hermes_sandbox.agent.server as server\n"
KILLING = """
import os, subprocess
from hermes_sandbox.agent import processes as own
own.become_reaper()
full = own.read_table
subprocess.Popen(["bash", "-c", "sleep {token} & setsid -f sleep {token}; wait"])
subprocess.Popen(["sh", "-c", "kill -STOP $$; sleep {token}"])
while len(own.with_descendants(own.read_table(), [os.getpid()])) < 5:
    pass
{change}
print(own.kill_descendants(os.getpid(), 5.0), own.with_descendants(full(), [os.getpid()]) == {{os.getpid()}})
"""


def end_agent(source):
    """Start an agent, let it run a text, end its input, and return its status and what it has written."""
    hello = encode({"id": 1, "op": "hello", "marker": "m", "limits": {}})
    module = encode({"id": 2, "op": "module", "name": "patch"}, source.encode())
    command = [sys.executable, *PYTHON_FLAGS]
    given = agent_message() + hello + module
    done = subprocess.run(command, input=given, capture_output=True, timeout=60, check=False)
    (first, _), *_ = Decoder().feed(done.stdout)
    assert first["ok"]["protocol"] == PROTOCOL
    return done.returncode, done.stderr.decode()


def test_an_agent_with_nothing_left_ends_well():
    assert end_agent("") == (0, "")


def test_an_agent_that_cannot_end_everything_says_so_by_its_status():
    assert end_agent(f"{PATCH}server.kill_descendants = lambda *_: False") == (1, "")


def test_an_error_of_the_end_is_told_and_is_a_bad_end():
    status, errors = end_agent(f"{PATCH}def fail(*_): raise OSError('no end')\nserver.kill_descendants = fail")
    assert (status, errors.splitlines()[-1]) == (1, "OSError: no end")


def test_garbage_is_collected_while_an_agent_runs():
    assert end_agent("import gc, sys; sys.stderr.write(str(gc.isenabled()))") == (0, "True")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("", id="both ways"),
        pytest.param("own._find_descendants = lambda root: set()", id="without the lists of children"),
        pytest.param("own.read_table = dict", id="without all of proc"),
    ],
)
def test_descendants_are_killed_by_either_way(change):
    token = sleep_token()
    program = KILLING.format(token=token, change=change)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("True True\n", "")
    assert processes_here(token) == []


async def test_a_slot_of_the_whole_file_system_ends_what_has_left_its_mark(tmp_path):
    token = sleep_token()
    async with agent() as client:
        other = await open_slot(client, tmp_path)
        whole = await AgentSlot.open(client, slot_fields("/", state_dir=None), exclusive=False)
        await out(whole, f"(env -i setsid sleep {token} >/dev/null 2>&1 &)")
        await whole.aclose()
        assert processes_here(token) == []
        await other.aclose()
