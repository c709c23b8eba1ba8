"""What a hostile command can see and do in a container."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hermes_backend_docker.backend import DockerBackend
from hermes_backend_docker.containers.hardening import AGENT_CAPABILITIES
from hermes_backend_docker.containers.ownership import container_name
from hermes_backend_docker.options import DockerOptions
from hermes_core.contracts.errors import SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import Sandbox, SandboxSpec
from hermes_testing.watching import TooSoon, with_more_time

pytestmark = pytest.mark.component("docker")
# 511 processes where nothing bounds them, and all of them end by themselves.
_BOMB = "exec 2>said; bomb() { [ $1 -gt 0 ] || exec sleep 60; bomb $(($1 - 1)) & bomb $(($1 - 1)) & wait; }; bomb 8"


def _ask(**fields: Any) -> SandboxSpec:
    return SandboxSpec(isolation="container", network="none", **fields)


@pytest_asyncio.fixture
async def sandbox(backend: DockerBackend) -> AsyncIterator[Sandbox]:
    async with await backend.open(_ask()) as made:
        yield made


async def _inspect(sandbox: Sandbox) -> dict[str, Any]:
    name = container_name(sandbox.id)
    found = await asyncio.to_thread(subprocess.run, ["docker", "inspect", name], capture_output=True, check=True)
    described: dict[str, Any] = json.loads(found.stdout)[0]
    return described


async def test_commands_have_another_user_and_no_capability(sandbox: Sandbox) -> None:
    found = await sandbox.exec(
        "id -u; id -g; grep -E '^(CapEff|CapPrm|CapInh|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status"
    )
    assert found.output.split() == [
        "1000", "1000", "CapInh:", "0" * 16, "CapPrm:", "0" * 16, "CapEff:", "0" * 16, "CapAmb:", "0" * 16,
        "NoNewPrivs:", "1", "Seccomp:", "2",
    ]  # fmt: skip


async def test_no_set_uid_program_gives_more(sandbox: Sandbox) -> None:
    found = await sandbox.exec(
        "python3 -c 'import os; os.setuid(0)' 2>&1 | tail -n 1; mount -t tmpfs none /mnt 2>&1; true"
    )
    assert "Operation not permitted" in found.output


async def test_the_agent_is_out_of_reach(sandbox: Sandbox) -> None:
    tries = [
        "kill -9 1",
        "kill -STOP 1",
        "cat /proc/1/environ",
        "ls /proc/1/fd",
        "cat /proc/1/mem",
        "echo x > /proc/1/fd/0",
    ]
    for attempt in tries:
        assert (await sandbox.exec(f"{attempt} 2>/dev/null")).exit_code != 0, attempt
    assert (await sandbox.exec("echo alive")).output == "alive\n"


async def test_a_container_is_described_as_the_readme_says(sandbox: Sandbox) -> None:
    host = (await _inspect(sandbox))["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert {name.removeprefix("CAP_") for name in host["CapAdd"]} == set(AGENT_CAPABILITIES)
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert (host["PidsLimit"], host["NetworkMode"], host["IpcMode"]) == (1025, "none", "private")
    assert (host["Privileged"], host["AutoRemove"], host["LogConfig"]["Type"]) == (False, True, "none")


async def test_the_engine_s_socket_and_the_caller_s_files_are_not_inside(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    assert (await sandbox.exec(f"ls {tmp_path} /var/run/docker.sock")).exit_code != 0


async def test_limits_are_in_force_and_recorded(backend: DockerBackend) -> None:
    async with await backend.open(_ask(memory_mb=96, cpu=0.5, pids=40, file_size_mb=2)) as sandbox:
        host = (await _inspect(sandbox))["HostConfig"]
        assert (host["Memory"], host["MemorySwap"], host["NanoCpus"], host["PidsLimit"]) == (
            96 << 20,
            96 << 20,
            5 * 10**8,
            41,
        )
        limits = {"pids": "40", "cpu": "0.5 cores", "memory": "96 MB, no swap", "file_size": "2 MB"}
        assert sandbox.provenance["limits"] == limits
        found = await sandbox.exec("head -c 5000000 /dev/zero > big; echo $?; stat -c %s big")
        assert found.stdout.decode().split()[-2:] == ["153", str(2 << 20)]


async def test_a_command_that_takes_all_memory_is_killed_and_the_sandbox_survives(backend: DockerBackend) -> None:
    async with await backend.open(_ask(memory_mb=96)) as sandbox:
        await sandbox.exec("export KEPT=yes")
        found = await sandbox.exec("""python3 -c 'x = bytearray(500 << 20)'""", timeout=60)
        assert found.exit_code == 137
        assert (await sandbox.exec("echo $KEPT")).output == "yes\n"


async def test_memory_that_no_kill_frees_loses_the_sandbox_with_a_reason(backend: DockerBackend) -> None:
    async with await backend.open(_ask(memory_mb=48)) as sandbox:
        # Files in memory belong to the container, and ending a process does not free them.
        await sandbox.exec("head -c 25000000 /dev/zero > /dev/shm/full")
        with pytest.raises(SandboxLostError, match="ran out of memory"):
            await sandbox.write_file("/dev/shm/more", bytes(25_000_000))


async def test_a_fork_bomb_hits_the_limit_and_the_sandbox_answers(backend: DockerBackend) -> None:
    async with await backend.open(_ask(pids=48)) as sandbox:
        await sandbox.write_file("kept", b"1")

        async def bombs(seconds: float) -> None:
            await sandbox.write_file("said", b"")
            bombed = await sandbox.exec(_BOMB, timeout=seconds)
            assert bombed.exit_code != 0
            TooSoon.unless(b"unavailable" in await sandbox.read_file("said"), "the bomb had not been refused a process")

        await with_more_time(bombs)
        assert (await sandbox.exec("cat kept", timeout=60)).output == "1"


async def test_a_full_disk_is_an_error_inside_and_the_sandbox_answers(backend: DockerBackend) -> None:
    async with await backend.open(_ask(disk_mb=16, memory_mb=256)) as sandbox:
        await sandbox.exec("export KEPT=yes")
        for folder in (".", "/tmp", "/var/tmp"):
            full = await sandbox.exec(f"head -c 100000000 /dev/zero > {folder}/full")
            assert (full.exit_code, b"No space left" in full.stderr) == (1, True), folder
        with pytest.raises(OSError, match="No space left"):
            await sandbox.write_file("more", b"x" * 1_000_000)
        assert (await sandbox.exec("touch /usr/x ~agent/x 2>/dev/null; echo $KEPT")).output == "yes\n"
        await sandbox.remove("full")
        await sandbox.write_file("more", b"x" * 1_000_000)
        assert sandbox.provenance["limits"]["disk"] == "16 MB, in memory"


async def test_a_root_file_system_can_be_read_only(image: str, tmp_path: Path) -> None:
    made = DockerBackend(DockerOptions(image=image, pull="never", read_only_root=True, tmpfs={"/tmp": 8}))
    made.lease_dir = tmp_path
    try:
        async with await made.open(_ask()) as sandbox:
            found = await sandbox.exec("touch ok /tmp/ok && ls; touch ~agent/x /var/tmp/x")
            assert found.stdout == b"ok\n"
            assert found.stderr.count(b"Read-only file system") == 2
    finally:
        await made.aclose()


async def test_root_inside_is_allowed_and_recorded_as_weaker(image: str, tmp_path: Path) -> None:
    made = DockerBackend(DockerOptions(image=image, pull="never", user="root"))
    made.lease_dir = tmp_path
    try:
        async with await made.open(_ask()) as sandbox:
            assert (await sandbox.exec("id -u; touch /etc/mine && echo written")).output == "0\nwritten\n"
            assert sandbox.provenance["weaker"] == ["commands are root inside"]
            assert (
                await sandbox.exec("kill -9 1; mount -t tmpfs none /mnt 2>/dev/null || echo refused")
            ).output == "refused\n"
    finally:
        await made.aclose()


async def test_another_user_s_number_needs_no_account(image: str, tmp_path: Path) -> None:
    made = DockerBackend(DockerOptions(image=image, pull="never", user="4321:1234", workspace="/not/yet/there"))
    made.lease_dir = tmp_path
    try:
        async with await made.open(_ask()) as sandbox:
            found = await sandbox.exec("id -u; id -g; pwd; touch mine && stat -c %u mine")
            assert found.output == "4321\n1234\n/not/yet/there\n4321\n"
    finally:
        await made.aclose()


async def test_what_an_image_has_put_into_the_workspace_is_the_commands_own(
    backend: DockerBackend, image: str, tmp_path: Path
) -> None:
    (tmp_path / "Dockerfile").write_text(
        f"FROM {image}\nWORKDIR /workspace/sub\nRUN touch file && ln -s /etc/passwd link"
    )
    async with await backend.open(_ask(image=f"dockerfile:{tmp_path}/Dockerfile")) as sandbox:
        found = await sandbox.exec("echo mine > sub/file && touch sub/new && stat -c %U sub/link /etc/passwd")
        assert found.output == "agent\nroot\n"


async def test_a_frozen_workspace_can_be_read_and_run_and_not_written(backend: DockerBackend) -> None:
    async with await backend.open(_ask()) as sandbox:
        await sandbox.exec(
            "mkdir -p -m 0700 a/b; echo 1 > a/b/f; chmod 0 a/b; printf '#!/bin/sh\\necho ran' > run; chmod 700 run"
        )
        await sandbox.freeze()
        assert (await sandbox.exec("cat a/b/f; ./run")).output == "1\nran\n"
        for attempt in ("echo 2 > a/b/f", "rm a/b/f", "touch new", "chmod 777 a", "mv run other", "rm -rf a"):
            assert (await sandbox.exec(attempt)).exit_code != 0, attempt
        with pytest.raises(PermissionError):
            await sandbox.write_file("new", b"1")
        assert (await sandbox.exec("cat a/b/f; echo elsewhere > /tmp/x && cat /tmp/x")).output == "1\nelsewhere\n"


async def test_a_workspace_cannot_be_frozen_for_root(image: str, tmp_path: Path) -> None:
    made = DockerBackend(DockerOptions(image=image, pull="never", user="root"))
    made.lease_dir = tmp_path
    try:
        async with await made.open(_ask()) as sandbox:
            with pytest.raises(SandboxRefusedError, match="commands that run as root"):
                await sandbox.freeze()
    finally:
        await made.aclose()


async def test_volumes_variables_and_labels_of_the_options_are_there(image: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("shared\n")
    made = DockerBackend(
        DockerOptions(
            image=image,
            pull="never",
            volumes=[f"{tmp_path}/data:/data:ro"],
            env={"FROM_OPTIONS": "a b"},
            labels={"team": "rl"},
        )
    )
    made.lease_dir = tmp_path / "leases"
    try:
        async with await made.open(_ask()) as sandbox:
            assert (await sandbox.exec("cat /data/file; echo $FROM_OPTIONS")).output == "shared\na b\n"
            assert (await sandbox.exec("touch /data/x")).exit_code == 1
            assert (await _inspect(sandbox))["Config"]["Labels"]["team"] == "rl"
    finally:
        await made.aclose()


async def test_a_volume_in_the_workspace_keeps_its_owner_and_cannot_be_frozen(image: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("shared\n")
    volume = f"{tmp_path}/data:/workspace/data"
    made = DockerBackend(DockerOptions(image=image, pull="never", volumes=[volume]))
    made.lease_dir = tmp_path / "leases"
    try:
        async with await made.open(_ask()) as sandbox:
            assert (await sandbox.exec("cat data/file; touch beside")).output == "shared\n"
            assert (tmp_path / "data" / "file").stat().st_uid == os.geteuid()
            with pytest.raises(SandboxRefusedError, match="with a volume in it cannot be read-only: /workspace/data"):
                await sandbox.freeze()
    finally:
        await made.aclose()


async def test_a_full_network_is_the_engine_s(backend: DockerBackend) -> None:
    async with await backend.open(SandboxSpec(isolation="container", network="full")) as sandbox:
        assert (await _inspect(sandbox))["HostConfig"]["NetworkMode"] == "bridge"
        assert "eth0" in (await sandbox.exec("cat /proc/net/dev")).output
    async with await backend.open(_ask()) as sandbox:
        assert "eth0" not in (await sandbox.exec("cat /proc/net/dev")).output
