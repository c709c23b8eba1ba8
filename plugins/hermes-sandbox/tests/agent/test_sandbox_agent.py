"""The agent as a program: what it is made of, and how its stream behaves."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandbox_support import slot_fields

from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_sandbox.agent import wire
from hermes_sandbox.agent.processes import read_process
from hermes_sandbox.backends import PYTHON_FLAGS, AgentStream
from hermes_sandbox.protocol import bootstrap as source
from hermes_sandbox.protocol.bootstrap import agent_message
from hermes_sandbox.protocol.client import AgentClient
from hermes_sandbox.protocol.slots import AgentSlot
from hermes_testing.watching import eventually

HEADERS = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.none(), max_size=3)


@given(st.lists(st.tuples(HEADERS, st.binary(max_size=50)), max_size=5), st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_frames_survive_any_cutting_of_the_stream(frames, step):
    data = b"".join(wire.encode(header, body) for header, body in frames)
    decoder = wire.Decoder()
    found = [frame for start in range(0, len(data), step) for frame in decoder.feed(data[start : start + step])]
    assert found == frames


@pytest.mark.parametrize(
    "noise", [b"Welcome to this machine, stranger\n", b"\0\0\0\2\0\0\0\0[]", b"\0\0\0\2\0\0\0\0{{"]
)
def test_what_is_no_frame_is_an_error_and_not_an_allocation(noise):
    with pytest.raises(wire.FrameError):
        list(wire.Decoder().feed(noise))


def test_a_frame_that_is_too_large_is_not_sent():
    with pytest.raises(wire.FrameError):
        wire.encode({}, bytes(wire.MAX_BODY + 1))


HELLO = {"marker": "m", "limits": {}}


async def open_slot(stream, workspace, **fields):
    """Greet an agent and open a slot that it serves alone."""
    client = await AgentClient.connect(stream, HELLO, timeout=60)
    return await AgentSlot.open(client, slot_fields(workspace, **fields), exclusive=True)


async def start_and_connect(argv):
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL)
    theirs.close()
    reader, writer = await asyncio.open_connection(sock=ours)
    return process, AgentStream(reader, writer)


async def test_an_agent_ends_itself_and_everything_when_its_input_ends(tmp_path):
    process, stream = await start_and_connect([sys.executable, *PYTHON_FLAGS])
    client = await open_slot(stream, tmp_path)
    body = b"echo $$ >pid; trap '' INT TERM HUP; (setsid sleep 300 &); sleep 300"
    header = {"op": "exec", "command": len(body), "stdin": False, "timeout": 60, "limit": 10, "cwd": None, "env": {}}
    running = asyncio.create_task(client.request({**header, "merge_stderr": True}, body))
    assert await eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    await client.aclose()
    with pytest.raises(SandboxLostError):
        await running
    assert await asyncio.to_thread(process.wait, 60) == 0
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
    assert not (tmp_path / "state").exists()


async def test_the_agent_adopts_orphans_and_cannot_be_looked_into(tmp_path):
    process, stream = await start_and_connect([sys.executable, *PYTHON_FLAGS])
    client = await open_slot(stream, tmp_path)
    body = b"(setsid sleep 300 & echo $!)"
    header = {"op": "exec", "command": len(body), "stdin": False, "timeout": 60, "limit": 4000, "cwd": None, "env": {}}
    _, output = await client.request({**header, "merge_stderr": True}, body)
    orphan = read_process(int(output.split()[0]))
    assert orphan is not None
    assert orphan.parent == process.pid
    assert Path(f"/proc/{process.pid}/mem").stat().st_uid == 0
    await client.aclose()
    await asyncio.to_thread(process.wait, 60)


async def test_something_else_that_answers_is_told_from_an_agent(tmp_path):
    process, stream = await start_and_connect(
        ["/bin/sh", "-c", "echo 'Last login: yesterday, on a terminal'; cat >/dev/null"]
    )
    with pytest.raises(BackendError, match="not a frame"):
        await AgentClient.connect(stream, HELLO, timeout=60)
    await asyncio.to_thread(process.wait, 60)


async def test_an_agent_of_another_protocol_is_refused(tmp_path):
    program = (
        f"import os, json, struct; n = {len(agent_message())}\n"
        "while n: n -= len(os.read(0, n))\n"
        "os.read(0, 9999); h = json.dumps({'id': 1, 'ok': {'protocol': 99}}).encode()\n"
        "os.write(1, struct.pack('!II', len(h), 0) + h); os.read(0, 1)"
    )
    process, stream = await start_and_connect([sys.executable, "-c", program])
    with pytest.raises(BackendError, match=f"protocol {wire.PROTOCOL}, got 99"):
        await AgentClient.connect(stream, HELLO, timeout=60)
    await asyncio.to_thread(process.wait, 60)


async def test_another_python_than_the_caller_s_compiles_the_agent_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "MAGIC_NUMBER", b"none")
    source._message.cache_clear()
    try:
        process, stream = await start_and_connect([sys.executable, *PYTHON_FLAGS])
        client = await open_slot(stream, tmp_path)
        assert (await client.collect({"op": "list", "path": "."}))[1] == []
        await client.aclose()
        await asyncio.to_thread(process.wait, 60)
    finally:
        source._message.cache_clear()


async def test_damaged_content_is_never_written(tmp_path):
    process, stream = await start_and_connect([sys.executable, *PYTHON_FLAGS])
    client = await open_slot(stream, tmp_path)
    header = {"op": "write", "path": "f", "mode": None, "sha256": hashlib.sha256(b"sent").hexdigest()}
    with pytest.raises(OSError, match="damaged"):
        await client.request(header, b"arrived")
    assert not (tmp_path / "f").exists()
    await client.aclose()
    await asyncio.to_thread(process.wait, 60)


async def test_state_that_lay_there_before_the_agent_started_is_not_its_session_s(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "state").write_bytes(b"1\0grep() { echo FORGED; }\n\0/\n\x001\0")
    process, stream = await start_and_connect([sys.executable, *PYTHON_FLAGS])
    client = await open_slot(stream, tmp_path)
    said = []
    for body in (b"kill -9 $$", b"grep nothing /etc/passwd"):
        header = {"op": "exec", "command": len(body), "stdin": False, "timeout": 60, "limit": 99, "cwd": None}
        said.append((await client.request({**header, "env": {}, "merge_stderr": True}, body))[1])
    assert said == [b"", b""]
    await client.aclose()
    await asyncio.to_thread(process.wait, 60)
