"""Opening, refusing, cancelling and removing sandboxes of backend `local`."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from sandbox_support import LEVELS, backend, processes_of, require
from sandbox_support import sandbox as open_one

from hermes_core.contracts.errors import BackendError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import Sandbox, SandboxSpec, TerminalBackend
from hermes_sandbox import open_sandbox
from hermes_sandbox.agent.processes import read_marker, read_table


def children_of_mine():
    import os

    return {p.pid for p in read_table().values() if p.parent == os.getpid() and read_marker(p.pid)}


async def test_the_public_entry_opens_any_backend_by_name(tmp_path):
    async with open_sandbox("local", lease_dir=tmp_path, env={"A": "1"}) as sandbox:
        assert isinstance(sandbox, Sandbox)
        assert (await sandbox.exec("echo $A")).output == "1\n"
        assert sandbox.provenance["backend"] == "local"
        place = Path(sandbox.workspace).parent
        assert place.is_dir()
    assert not place.exists()
    assert list(tmp_path.iterdir()) == []


async def test_the_backend_satisfies_its_contract():
    async with backend() as made:
        assert isinstance(made, TerminalBackend)
        await made.check(SandboxSpec())


@pytest.mark.parametrize("level", LEVELS)
async def test_two_sandboxes_see_nothing_of_each_other(level):
    """hermes-agent's defect: all rollouts shared one sandbox."""
    async with open_one(level) as one, open_one(level) as other:
        await asyncio.gather(one.exec("export X=one; touch mine; cd /"), other.exec("export Y=other"))
        assert (await other.exec("echo ${X-none} $PWD; ls")).stdout.decode() == f"none {other.workspace}\n"
        assert (await one.exec("echo ${Y-none}")).stdout == b"none\n"
        assert one.id != other.id


async def test_many_sandboxes_work_side_by_side():
    async with backend(setup_timeout=120) as made:

        async def use(number):
            async with await made.open(SandboxSpec()) as sandbox:
                await sandbox.exec(f"export N={number}")
                return int((await sandbox.exec("echo $N")).output)

        assert await asyncio.gather(*(use(n) for n in range(24))) == list(range(24))
    assert children_of_mine() == set()


@pytest.mark.parametrize("level", LEVELS)
async def test_opening_can_be_cancelled_at_any_moment_and_leaves_nothing(level):
    """hermes-agent's defect: whatever was cancelled outside one branch was never cleaned up."""
    require(level)
    async with backend() as made:
        for delay in (0, 0.0005, 0.002, 0.01, 0.03, 0.06, 0.1):
            opening = asyncio.create_task(made.open(SandboxSpec(isolation=level)))
            await asyncio.sleep(delay)
            opening.cancel()
            try:
                sandbox = await opening
            except asyncio.CancelledError:
                assert [p.name for p in made.options.root_dir.iterdir() if p.name != "leases"] == []
                assert list(made.lease_dir.glob("*")) == []
            else:
                await sandbox.aclose()
    assert children_of_mine() == set()


async def test_closing_the_backend_closes_every_sandbox():
    """hermes-agent's defect: closing removed the directories of other processes as well."""
    async with backend() as made:
        sandboxes = [await made.open(SandboxSpec()) for _ in range(3)]
        await made.aclose()
        for sandbox in sandboxes:
            assert processes_of(sandbox.id) == []
            with pytest.raises(SandboxLostError):
                await sandbox.exec("true")


async def test_a_directory_with_write_protected_and_very_deep_contents_is_deleted():
    async with backend() as made, await made.open(SandboxSpec()) as sandbox:
        await sandbox.exec("mkdir -p a/b; touch a/b/c; chmod 500 a/b; chmod 400 a; ln -s / root")
        await sandbox.exec("python3 -c \"import os\nfor n in range(2500): os.mkdir('d'); os.chdir('d')\"")
    # The fixture asserts that nothing is left.


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"network": "none"}, "network 'none' at isolation 'none'"),
        ({"network": "allowlist", "allow_hosts": ("example.org",)}, "network 'allowlist' at isolation 'none'"),
        ({"isolation": "container"}, "isolation 'container'"),
        ({"image": "debian"}, "image 'debian'"),
        ({"disk_mb": 64}, "disk_mb"),
    ],
)
async def test_what_cannot_be_enforced_is_refused_before_anything_exists(fields, named):
    """hermes-agent's defect: isolation was off by default, network none could not be had."""
    async with backend() as made:
        for refuse in (made.check, made.open):
            with pytest.raises(SandboxRefusedError, match=named) as caught:
                await refuse(SandboxSpec(**fields))
            assert caught.value.hint


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"network": "none"}, "--isolation bwrap"),
        ({"isolation": "container"}, "--isolation none or bwrap"),
        ({"network": "allowlist"}, "--isolation bwrap"),
    ],
)
async def test_a_refusal_says_what_to_type(fields, hint):
    async with backend() as made:
        with pytest.raises(SandboxRefusedError) as caught:
            await made.check(SandboxSpec(**fields))
        assert caught.value.hint.startswith(hint)


async def test_bwrap_that_is_missing_is_refused_with_the_package_to_install(monkeypatch):
    """hermes-agent's defect: without bubblewrap everything ran unsandboxed, without a word."""
    monkeypatch.setattr(shutil, "which", lambda *_args, **_more: None)
    async with backend() as made:
        with pytest.raises(SandboxRefusedError, match="apt-get install bubblewrap"):
            await made.check(SandboxSpec(isolation="bwrap"))


async def test_a_python_that_does_not_work_is_an_error_that_says_why():
    async with backend(python="/nonexistent/python") as made:
        with pytest.raises(BackendError, match="/nonexistent/python"):
            await made.open(SandboxSpec())
    async with backend(python="/bin/false", setup_timeout=5) as made:
        with pytest.raises(BackendError, match="agent did not start"):
            await made.open(SandboxSpec())


async def test_a_program_that_never_answers_is_given_up_and_removed(tmp_path):
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexec sleep 300\n")
    silent.chmod(0o755)
    async with backend(python=str(silent), setup_timeout=0.3) as made:
        with pytest.raises(BackendError, match=r"agent did not start within 0\.3 s"):
            await made.open(SandboxSpec())
    assert children_of_mine() == set()


async def test_a_root_that_cannot_be_written_is_a_clear_error(tmp_path):
    async with backend() as made:
        made.options.root_dir, kept = tmp_path / "missing" / "deeper", made.options.root_dir
        with pytest.raises(BackendError, match="root_dir"):
            await made.open(SandboxSpec())
        made.options.root_dir = kept


@pytest.mark.component("bwrap")
async def test_bwrap_without_network_has_none_and_with_network_reaches_the_host():
    """hermes-agent's defect: the sandbox shared the network and reached the control server."""

    async def answer(reader, writer):
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nreached")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    command = f"exec 5<>/dev/tcp/127.0.0.1/{port} && cat <&5"
    async with server:
        async with open_one("bwrap", network="none") as sandbox:
            assert (await sandbox.exec(command)).exit_code != 0
            assert (await sandbox.exec("ls /sys/class/net 2>/dev/null; cut -d: -f1 /proc/net/dev")).output.split()[
                -1
            ] == "lo"
        async with open_one("bwrap", network="full") as sandbox:
            assert b"reached" in (await sandbox.exec(command)).stdout


@pytest.mark.component("bwrap")
async def test_bwrap_shows_little_of_the_machine_and_gives_no_rights():
    async with open_one("bwrap") as sandbox:
        status = (await sandbox.exec("cat /proc/self/status")).output
        assert "CapEff:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status
        assert (await sandbox.exec("id -un; echo $HOME $PWD; hostname")).output == (
            "sandbox\n/home/sandbox /workspace\nsandbox\n"
        )
        assert (await sandbox.exec("touch /usr/x /etc/x")).exit_code != 0
        assert (await sandbox.exec("unshare -U true")).exit_code != 0
        assert (await sandbox.exec("ls /")).output.split() == sorted(
            ["bin", "dev", "etc", "home", "lib", "lib64", "proc", "run", "sbin", "tmp", "usr", "workspace"]
        )
        assert int((await sandbox.exec("ls -d /proc/[0-9]* | wc -l")).output) < 8


@pytest.mark.component("bwrap")
async def test_printing_a_phrase_about_namespaces_changes_nothing():
    """hermes-agent's defect: output with that phrase switched isolation off for the whole server."""
    async with open_one("bwrap") as sandbox:
        await sandbox.exec("echo no permissions to create new namespace >&2; exit 1")
        assert (await sandbox.exec("pwd")).output == "/workspace\n"
