"""Many sandboxes over one connection, in one channel."""

from __future__ import annotations

import asyncio
import signal

import pytest

from hermes_backend_ssh.backend import SshBackend
from hermes_backend_ssh.options import SshOptions
from hermes_core.contracts.errors import SandboxLostError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_testing.watching import eventually, longest_stall, processes_here, sleep_token

pytestmark = pytest.mark.component("sshd")


@pytest.fixture
async def backend(own_sshd, tmp_path):
    """A backend with its sandboxes in a directory of the test."""
    root = tmp_path / "root"
    root.mkdir()
    backend = SshBackend(SshOptions(**own_sshd.options, root_dir=str(root)))
    backend.lease_dir = tmp_path / "leases"
    yield backend
    await backend.aclose()
    assert list(root.iterdir()) == []
    assert list((tmp_path / "leases").glob("*.json")) == []


async def test_sixty_four_sandboxes_share_one_connection(own_sshd, backend):
    # More than sshd's MaxSessions (10) at the same time, each with separate state.
    sandboxes = await asyncio.gather(*(backend.open(SandboxSpec()) for _ in range(64)))
    assert len(own_sshd.agents()) == 1

    async def work(number, sandbox):
        await sandbox.write_file("number", str(number))
        await sandbox.exec(f"export MINE={number}; cd $HOME")
        return (await sandbox.exec("sleep 0.1; echo $MINE $(cat $OLDPWD/number)")).output

    answers, stall = await longest_stall(asyncio.gather(*map(work, range(64), sandboxes)))
    assert answers == [f"{n} {n}\n" for n in range(64)]
    assert stall < 1.5
    await asyncio.gather(*(sandbox.aclose() for sandbox in sandboxes))


async def test_a_full_connection_is_followed_by_another(own_sshd, tmp_path):
    backend = SshBackend(SshOptions(**own_sshd.options, slots_per_agent=2))
    backend.lease_dir = tmp_path / "leases"
    sandboxes = [await backend.open(SandboxSpec()) for _ in range(5)]
    assert len(own_sshd.agents()) == 3
    answers = await asyncio.gather(*(sandbox.exec(f"echo {n}") for n, sandbox in enumerate(sandboxes)))
    assert [answer.output for answer in answers] == [f"{n}\n" for n in range(5)]
    await backend.aclose()
    assert await eventually(lambda: own_sshd.agents() == [])


async def test_the_number_of_connections_can_be_limited(own_sshd, tmp_path):
    backend = SshBackend(SshOptions(**own_sshd.options, slots_per_agent=1, connections=2))
    backend.lease_dir = tmp_path / "leases"
    opened = await asyncio.gather(*(backend.open(SandboxSpec()) for _ in range(3)), return_exceptions=True)
    (refused,) = [error for error in opened if isinstance(error, BaseException)]
    assert "got all 2 in use" in str(refused)
    await next(sandbox for sandbox in opened if not isinstance(sandbox, BaseException)).aclose()
    async with await backend.open(SandboxSpec()) as sandbox:
        assert (await sandbox.exec("echo room again")).output == "room again\n"
    await backend.aclose()


async def test_one_sandbox_ends_and_the_others_stay(backend):
    token, kept = sleep_token(), sleep_token()
    async with await backend.open(SandboxSpec()) as other:
        sandbox = await backend.open(SandboxSpec())
        await sandbox.exec(f"setsid sleep {token} & echo")
        await other.exec(f"setsid sleep {kept} & echo")
        await sandbox.aclose()
        assert processes_here(token) == []
        assert await eventually(lambda: len(processes_here(kept)) == 1)


async def test_a_sandbox_is_private_to_its_user_and_has_a_home_and_a_place_for_temporary_files(backend, tmp_path):
    async with await backend.open(SandboxSpec()) as sandbox:
        result = await sandbox.exec('[ -d "$TMPDIR" ] && mktemp; cd; pwd; stat -c %a "$HOME" "$OLDPWD"')
        made, home, *modes = result.output.split()
        assert made.startswith(f"{home}/tmp/")
        assert home == f"{sandbox.workspace}.home"
        assert modes == ["700", "700"]


async def test_a_lost_connection_takes_its_sandboxes_along_and_the_next_one_gets_a_new_one(own_sshd, backend, tmp_path):
    token = sleep_token()
    lost = [await backend.open(SandboxSpec()) for _ in range(3)]
    await lost[0].exec(f"setsid sleep {token} & echo")
    own_sshd.signal_sessions(signal.SIGKILL)
    for sandbox in lost:
        with pytest.raises(SandboxLostError):
            await asyncio.wait_for(sandbox.exec("echo ghost"), 60)
    async with await backend.open(SandboxSpec()) as sandbox:
        assert (await sandbox.exec("echo new")).output == "new\n"
    await asyncio.wait_for(asyncio.gather(*(sandbox.aclose() for sandbox in lost)), 60)
    assert processes_here(token) == []


@pytest.mark.component("bwrap")
async def test_bubblewrap_shares_no_agent(own_sshd, tmp_path):
    backend = SshBackend(SshOptions(**own_sshd.options))
    backend.lease_dir = tmp_path / "leases"
    async with (
        await backend.open(SandboxSpec(isolation="bwrap")) as one,
        await backend.open(SandboxSpec(isolation="bwrap", network="none")) as two,
    ):
        assert len(own_sshd.agents()) == 2
        assert (await one.exec("echo mine > /tmp/mine")).exit_code == 0
        assert (await two.exec("cat /tmp/mine")).exit_code == 1
        interfaces = await two.exec("tail -n +3 /proc/net/dev | cut -d: -f1")
        assert interfaces.output.split() == ["lo"]
    await backend.aclose()


async def answer(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nreached")
    writer.close()


FETCH = """python3 -c '
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())
' """


@pytest.mark.component("bwrap")
async def test_an_allowlist_lets_through_what_is_listed(own_sshd, tmp_path):
    backend = SshBackend(SshOptions(**own_sshd.options))
    backend.lease_dir = tmp_path / "leases"
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        spec = SandboxSpec(isolation="bwrap", network="allowlist", allow_hosts=(f"127.0.0.1:{port}@private",))
        async with await backend.open(spec) as sandbox:
            # Loopback belongs to the sandbox, so its own programs are reached without the proxy.
            await sandbox.exec("unset no_proxy NO_PROXY")
            assert (await sandbox.exec(FETCH + f"http://127.0.0.1:{port}/")).output == "reached\n"
            assert (await sandbox.exec(FETCH + "http://127.0.0.1:9/ 2>&1")).output.endswith(
                "HTTP Error 403: Forbidden\n"
            )
            assert (await sandbox.exec(f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>&1")).exit_code != 0
    await backend.aclose()


@pytest.mark.component("bwrap")
async def test_a_frozen_workspace_cannot_be_written(own_sshd, tmp_path):
    backend = SshBackend(SshOptions(**own_sshd.options))
    backend.lease_dir = tmp_path / "leases"
    async with await backend.open(SandboxSpec(isolation="bwrap")) as sandbox:
        await sandbox.write_file("result", "1\n")
        await sandbox.freeze()
        assert (
            await sandbox.exec("echo 2 > result; cat result; kill -9 1; echo still here")
        ).stdout == b"1\nstill here\n"
    await backend.aclose()
