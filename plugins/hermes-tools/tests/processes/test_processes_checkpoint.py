"""The checkpoint of background processes: it finds the processes that a killed run left running, and no others."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest
from background import Model, model
from sandbox_support import wait_until_gone

from hermes_core.contracts.errors import OutputError
from hermes_tools import ProcessRegistry
from hermes_tools.processes import detached_process
from hermes_tools.processes.process_checkpoint import boot_id, pid_namespace, start_of


@pytest.fixture
def sleeper():
    started = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield started
    started.kill()
    started.wait()


def entry_of(pid, **changed):
    entry = {
        "session_id": "proc_0123456789ab",
        "command": "sleep 600",
        "pid": pid,
        "start_time": start_of(pid),
        "boot_id": boot_id(),
        "pid_namespace": pid_namespace(),
        "cwd": "/",
        "started_at": 1_000_000.0,
        "task_id": "rollout-1",
        "session_key": "chat-1",
        "pid_scope": "host",
        "sandbox_id": "s",
        "pty": False,
    }
    return entry | changed


async def test_the_running_processes_are_on_disk_after_each_start_and_end(tmp_path):
    path = tmp_path / "run" / "processes.json"
    async with model(checkpoint=path) as one:
        first = await one.background("read line")
        second = await one.background("read line")
        entries = json.loads(path.read_text())
        assert [entry["session_id"] for entry in entries] == [first, second]
        assert entries[0]["task_id"] == "rollout-1"
        assert entries[0]["session_key"] == "chat-1"
        assert entries[0]["pid_scope"] == "host"
        assert entries[0]["start_time"] == start_of(entries[0]["pid"])
        assert entries[0]["boot_id"] == boot_id()
        await one.process("kill", first)
        assert [entry["session_id"] for entry in json.loads(path.read_text())] == [second]
        assert path.stat().st_mode & 0o777 == 0o600
        assert [left.name for left in path.parent.iterdir()] == ["processes.json"]
    assert json.loads(path.read_text()) == []


@pytest.mark.component("bwrap")
async def test_a_pid_inside_a_sandbox_is_marked_as_such_and_never_looked_up_here(tmp_path, sleeper):
    """hermes-agent's defect: pids of sandboxes were probed on the host."""
    path = tmp_path / "processes.json"
    async with model("bwrap", checkpoint=path) as one:
        await one.background("read line")
        (entry,) = json.loads(path.read_text())
        assert (entry["pid_scope"], entry["start_time"]) == ("sandbox", None)
    path.write_text(json.dumps([entry | {"pid": sleeper.pid, "boot_id": boot_id()}]))
    registry = ProcessRegistry(checkpoint=path)
    assert await registry.recover_from_checkpoint() == 0
    await registry.aclose()


async def test_a_living_process_is_listed_again_as_detached(tmp_path, sleeper):
    path = tmp_path / "processes.json"
    path.write_text(json.dumps([entry_of(sleeper.pid)]))
    registry = ProcessRegistry(checkpoint=path)
    assert await registry.recover_from_checkpoint() == 1
    one = Model(None, registry, "rollout-1")
    (row,) = (await one.process("list"))["processes"]
    assert (row["session_id"], row["status"], row["detached"]) == ("proc_0123456789ab", "running", True)
    assert "unavailable" in row["note"]
    assert registry.has_active_for_session("chat-1")
    assert (await one.process("write", row["session_id"], data="x"))["status"] == "error"
    assert (await one.process("wait", row["session_id"], timeout=1))["status"] == "timeout"
    await registry.aclose()


async def test_killing_a_detached_process_really_kills_it(tmp_path, monkeypatch):
    """hermes-agent's defect: a detached process was reported as killed without any signal."""
    monkeypatch.setattr(detached_process, "_LAST", 60.0)  # a busy machine shows late that the process has ended
    script = "trap '' TERM; (trap '' TERM; sleep 600) & echo $!; wait; wait; sleep 600"
    started = await asyncio.create_subprocess_exec(
        "bash", "-c", script, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert started.stdout is not None
    child = int(await started.stdout.readline())
    path = tmp_path / "processes.json"
    path.write_text(json.dumps([entry_of(started.pid)]))
    registry = ProcessRegistry(checkpoint=path)
    await registry.recover_from_checkpoint()
    one = Model(None, registry, "rollout-1")
    assert (await one.process("kill", "proc_0123456789ab"))["status"] == "killed"
    assert await wait_until_gone(child)
    assert await started.wait() == -9
    assert json.loads(path.read_text()) == []
    await registry.aclose()


async def test_the_end_of_a_detached_process_is_noticed(tmp_path, sleeper):
    path = tmp_path / "processes.json"
    path.write_text(json.dumps([entry_of(sleeper.pid)]))
    registry = ProcessRegistry(checkpoint=path)
    await registry.recover_from_checkpoint()
    one = Model(None, registry, "rollout-1")
    waiting = asyncio.ensure_future(one.process("wait", "proc_0123456789ab"))
    sleeper.kill()
    sleeper.wait()
    assert (await waiting)["status"] == "exited"
    assert not registry.has_active_processes("rollout-1")
    await registry.aclose()


@pytest.mark.parametrize(
    "changed",
    [{"start_time": 1}, {"boot_id": "another boot"}, {"pid_namespace": "pid:[1]"}, {"start_time": None}],
    ids=["another process of that pid", "another boot", "another namespace", "unknown start"],
)
async def test_a_pid_that_means_another_process_is_not_taken_for_the_old_one(tmp_path, sleeper, changed):
    """hermes-agent's defect: a reused pid was listed, and could be killed, as the old process."""
    path = tmp_path / "processes.json"
    path.write_text(json.dumps([entry_of(sleeper.pid, **changed)]))
    registry = ProcessRegistry(checkpoint=path)
    assert await registry.recover_from_checkpoint() == 0
    assert registry.list("rollout-1") == []
    assert json.loads(path.read_text()) == []
    await registry.aclose()


async def test_no_checkpoint_and_no_file_recover_nothing(tmp_path):
    assert await ProcessRegistry().recover_from_checkpoint() == 0
    assert await ProcessRegistry(checkpoint=tmp_path / "processes.json").recover_from_checkpoint() == 0


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"pid": 1}]', "\0"])
async def test_a_damaged_checkpoint_says_which_file_to_remove(tmp_path, text):
    path = tmp_path / "processes.json"
    path.write_text(text)
    with pytest.raises(OutputError, match=f"rm {path}"):
        await ProcessRegistry(checkpoint=path).recover_from_checkpoint()


async def test_a_process_that_cannot_be_written_down_is_not_left_running(tmp_path):
    (tmp_path / "file").write_text("")
    async with model(checkpoint=tmp_path / "file" / "processes.json") as one:
        with pytest.raises(OutputError, match="cannot write the checkpoint"):
            await one.background("exec sleep 600")
        assert [info for info in await one.context.sandbox.processes.list() if info.running] == []


async def test_a_checkpoint_that_cannot_be_replaced_leaves_no_draft(tmp_path):
    (tmp_path / "processes.json").mkdir()
    async with model(checkpoint=tmp_path / "processes.json") as one:
        with pytest.raises(OutputError, match="cannot write the checkpoint"):
            await one.background("exec sleep 600")
    assert [path.name for path in tmp_path.iterdir()] == ["processes.json"]


async def test_two_runs_write_two_files(tmp_path):
    """hermes-agent's defect: all runs of a user shared one file, written in place."""
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    async with model(checkpoint=paths[0]) as first, model(checkpoint=paths[1]) as second:
        sessions = [await first.background("read line"), await second.background("read line")]
        found = [[entry["session_id"] for entry in json.loads(path.read_text())] for path in paths]
        assert found == [[sessions[0]], [sessions[1]]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]
