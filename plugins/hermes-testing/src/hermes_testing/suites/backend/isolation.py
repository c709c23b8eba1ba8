"""Tests of separation: from the network, other sandboxes, the agent and this machine."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_core.contracts.sandbox import Sandbox, SandboxSpec, TerminalBackend
from hermes_core.specs import BackendSpec
from hermes_testing.separation import require_separation
from hermes_testing.socket_ways import openings_in
from hermes_testing.suites.backend.base import SECRET_VALUE, BackendBase
from hermes_testing.suites.base import needs
from hermes_testing.watching import runs_inside, sleep_token

_FETCH = (
    'at=${http_proxy##*@}; at=${at%/}; exec 3<>"/dev/tcp/${at%:*}/${at##*:}"; login=${http_proxy#*//}; '
    "printf 'GET %s HTTP/1.0\\r\\nHost: %s\\r\\nProxy-Authorization: Basic %s\\r\\n\\r\\n' "
    '"$url" "$host" "$(printf %s "${login%@*}" | base64 -w0)" >&3; cat <&3'
)
"""Request an address from the proxy in the environment, with only bash and coreutils."""
_ANCESTORS = (
    'p=$PPID; while [ "$p" -gt 0 ]; do cat /proc/$p/environ; ls -l /proc/$p/fd; head -c 1 /proc/$p/mem; '
    "echo spoilt > /proc/$p/fd/0; echo spoilt > /proc/$p/fd/1; cat /proc/$p/maps; "
    "p=$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$p/status); [ \"$p\" ] || break; done 2>/dev/null; true"
)
_CROWD = (
    "timeout -s KILL 30 sh -c "
    "'i=0; while [ $i -lt 240 ]; do sleep 300 >/dev/null 2>&1 & echo $! >> crowd; i=$((i + 1)); done'; "
    "n=0; while read -r pid; do n=$((n + 1)); kill $pid; done < crowd 2>/dev/null; echo $n"
)
"""Start up to 240 processes, end them, and print their number. If it cannot fork, the first shell ends, or tries again
and is killed. The second shell does not fork after that, because there is no capacity.
"""


def _bound_of(sandbox: Sandbox) -> str:
    limits = sandbox.provenance.get("limits") or {}
    said = limits.get("pids")
    assert isinstance(said, str), f"expected a text in provenance['limits']['pids'], got {said!r}"
    return said


class Isolation(BackendBase):
    """Each level must keep its promises; `none` promises no separation."""

    async def isolated_spec(self, backend: TerminalBackend, spec: BackendSpec, **fields: object) -> SandboxSpec:
        """Return a spec with fields that need a network mode or a limit; skips if the backend refuses them."""
        levels = [self.level(), *(level for level in reversed(spec.isolation) if level != "none")]
        if levels[0] == "none" and "network" in fields and len(levels) > 1:
            return await self.ask_for(backend, **fields, isolation=levels[1])
        return await self.ask_for(backend, **fields)

    async def test_no_network_is_none(self, backend: TerminalBackend, spec: BackendSpec) -> None:
        """Network "none" has only its own loopback, which reaches no listener of this machine."""
        if "none" not in spec.networks:
            pytest.skip('network "none" is not declared; another test checks that it is refused')
        wanted = await self.isolated_spec(backend, spec, network="none")
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, await backend.open(wanted) as sandbox:
            reached = await sandbox.exec(f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached")
            interfaces = await sandbox.exec("sed -n 's/^ *\\([^:|]*\\):.*/\\1/p' /proc/net/dev")
            assert sandbox.provenance["network"] == "none"
        assert reached.output == ""
        assert set(interfaces.output.split()) <= {"lo"}

    @pytest.mark.parametrize("network", ["none", "allowlist"])
    async def test_no_socket_leads_past_the_network_namespace(
        self, backend: TerminalBackend, spec: BackendSpec, network: str, tmp_path: Path
    ) -> None:
        """Not by families without a namespace such as AF_VSOCK, io_uring, or other kernel interfaces."""
        if network not in spec.networks:
            pytest.skip(f"network {network!r} is not declared; another test checks that it is refused")
        hosts = ("example.org",) if network == "allowlist" else ()
        wanted = await self.isolated_spec(backend, spec, network=network, allow_hosts=hosts)
        async with await backend.open(wanted) as sandbox:
            for _ in range(2):
                assert await openings_in(sandbox, tmp_path) == []
                await sandbox.renew()

    async def test_an_allowlist_reaches_what_it_names(self, backend: TerminalBackend, spec: BackendSpec) -> None:
        """Nothing else: no other port of the address, nothing past the proxy; both are recorded."""
        if "allowlist" not in spec.networks:
            pytest.skip('network "allowlist" is not declared; another test checks that it is refused')

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\nreached\n")
            await writer.drain()
            writer.close()

        # Opened before the sandbox, because its port is on the list; closed even if the sandbox is refused.
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            hosts = (f"127.0.0.1:{port}@private",)
            wanted = await self.isolated_spec(backend, spec, network="allowlist", allow_hosts=hosts)
            async with await backend.open(wanted) as sandbox:
                named = {"url": f"http://127.0.0.1:{port}/", "host": f"127.0.0.1:{port}"}
                other = {"url": "http://127.0.0.1:1/", "host": "127.0.0.1:1"}
                assert (await sandbox.exec(_FETCH, env=named, timeout=60)).output.endswith("\nreached\n")
                assert " 403 " in (await sandbox.exec(_FETCH, env=other, timeout=60)).output.partition("\n")[0]
                past = await sandbox.exec(f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached")
                assert past.output == ""
                assert "egress" in sandbox.provenance

    @needs("separation")
    async def test_a_sandbox_shows_that_this_machine_is_out_of_its_reach(self, shared: Sandbox) -> None:
        """It sees its own processes and none of this machine's; otherwise no attack below is tried."""
        await require_separation(shared)

    @needs("separation")
    async def test_killing_everything_that_is_visible_is_survived(self, sandbox: Sandbox) -> None:
        """The command is dead; the sandbox runs the next one and keeps its files."""
        await require_separation(sandbox)
        await sandbox.write_file("kept", b"1")
        await sandbox.exec("kill -9 -1; for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done 2>/dev/null", timeout=10)
        for _ in range(3):
            await sandbox.exec("kill -9 $PPID 1; kill -TERM -1", timeout=10)
        assert (await sandbox.exec("echo usable; cat kept")).stdout == b"usable\n1"

    @needs("separation")
    async def test_the_agent_is_out_of_reach(self, sandbox: Sandbox) -> None:
        """No parent process of commands reveals its environment, memory or descriptors, or takes input."""
        await require_separation(sandbox)
        seen = await sandbox.exec(_ANCESTORS)
        assert (seen.stdout, seen.exit_code) == (b"", 0)
        assert (await sandbox.exec("echo still")).stdout == b"still\n"

    @needs("separation")
    async def test_sandboxes_do_not_reach_each_other_s_processes(self, backend: TerminalBackend) -> None:
        """They can neither kill nor inspect them, even if their users have the same name."""
        token = sleep_token()
        async with await backend.open(self.ask()) as one, await backend.open(self.ask()) as two:
            await require_separation(two)
            await one.exec(f"OWN={token} sleep {token} >/dev/null 2>&1 &")
            assert await self.starts(one, token)
            await two.exec("for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done 2>/dev/null; true", timeout=10)
            seen = await two.exec("cat /proc/[0-9]*/environ 2>/dev/null; ls /proc/[0-9]*/cwd/ 2>/dev/null; true")
            assert f"OWN={token}".encode() not in seen.stdout
            assert await runs_inside(one, token)

    @needs("separation")
    async def test_sandboxes_share_no_file(self, backend: TerminalBackend) -> None:
        """Neither in the workspace nor in HOME (hermes-agent: two rollouts shared a workspace)."""
        async with await backend.open(self.ask()) as one, await backend.open(self.ask()) as two:
            home = (await one.exec("echo $HOME")).output.strip()
            for place in (one.workspace, home):
                await one.exec(f"echo private > {place}/of-one; chmod 666 {place}/of-one")
                seen = await two.exec(f"cat {place}/of-one; ls {place}; touch {place}/of-two")
                assert b"of-one" not in seen.stdout
                assert b"private" not in seen.stdout
            assert sorted({entry.path for entry in await one.list_dir()} - {"of-one"}) == []

    @needs("separation", "private_tmp")
    async def test_sandboxes_share_no_temporary_file(self, backend: TerminalBackend) -> None:
        """The same name in /tmp means a different file in each sandbox."""
        async with await backend.open(self.ask()) as one, await backend.open(self.ask()) as two:
            await require_separation(one)
            for place in ("/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108 - inside
                for sandbox in (one, two):
                    made = await sandbox.exec(
                        f"test ! -w {place} || (umask 0; mkdir {place}/same && basename {place}/same)"
                    )
                    assert made.output in {"same\n", ""}

    @needs("separation")
    async def test_commands_have_no_privileges(self, shared: Sandbox) -> None:
        """They have no capability, and cannot gain one by running a program."""
        status = (await shared.exec("cat /proc/self/status")).output
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert int(fields["CapEff"], 16) == 0
        assert int(fields["CapPrm"], 16) == 0
        assert fields["NoNewPrivs"] == "1"

    @needs("separation")
    async def test_the_system_s_files_cannot_be_changed(self, backend: TerminalBackend) -> None:
        """Later sandboxes find the same programs and settings."""
        names = [
            f"{folder}/planted-{sleep_token()}" for folder in ("/usr/bin", "/etc", "", "/usr/lib", "/root", "/opt")
        ]
        async with await backend.open(self.ask()) as one, await backend.open(self.ask()) as two:
            await require_separation(one)
            await one.exec("; ".join(f"echo planted > {name}" for name in names))
            assert (await two.exec(f"cat {' '.join(names)}")).stdout == b""

    @needs("separation")
    async def test_files_of_this_machine_are_invisible(self, shared: Sandbox, tmp_path: Path) -> None:
        """The caller's files, by their absolute path, for commands and file calls."""
        secret = tmp_path / "secret"
        secret.write_text(SECRET_VALUE, encoding="utf-8")
        secret.chmod(0o644)
        assert (await shared.exec(f"cat {secret}")).exit_code != 0
        with pytest.raises((FileNotFoundError, PermissionError)):
            await shared.read_file(str(secret))

    async def test_a_command_that_takes_too_much_memory_dies_alone(
        self, backend: TerminalBackend, spec: BackendSpec
    ) -> None:
        """It ends with exit code 137; the sandbox and its state survive."""
        self._require_limit(spec, "memory")
        async with await backend.open(await self.ask_for(backend, memory_mb=96)) as sandbox:
            await sandbox.exec("export KEPT=yes")
            # Only four times the limit, so that the machine survives the test if the limit does not hold.
            hog = f"head -c {400 << 20} /dev/zero | tail"
            assert (await sandbox.exec(hog, timeout=60)).exit_code == 137
            assert (await sandbox.exec("echo $KEPT")).output == "yes\n"

    async def test_processes_without_end_stay_in_their_limit(self, backend: TerminalBackend, spec: BackendSpec) -> None:
        """A crowd is limited, a fork bomb is stopped, and the next command can start processes."""
        self._require_limit(spec, "pids")
        async with await backend.open(await self.ask_for(backend, pids=80)) as sandbox:
            # A finite crowd first: if the limit does not hold, no fork bomb is tried.
            crowd = await sandbox.exec(_CROWD, timeout=120)
            # A backend may add processes for the sandbox itself: `local` has three more. If the limit is that of a user
            # with other processes, those may end meanwhile: then it is enough that one fork was refused.
            most = 239 if "more than its user had" in _bound_of(sandbox) else 90
            assert int(crowd.stdout) <= most, "more processes than the limit"
            bomb = "f() { [ $1 -gt 0 ] && { f $(($1 - 1)) & f $(($1 - 1)) & }; sleep 5; }; f 9 2>/dev/null; sleep 600"
            assert (await sandbox.exec(bomb, timeout=0.5)).timed_out
            assert (await sandbox.exec("echo $(echo $(echo room))")).output == "room\n"

    async def test_a_sandbox_that_nobody_bounded_says_what_bounds_its_processes(
        self, backend: TerminalBackend, spec: BackendSpec, shared: Sandbox
    ) -> None:
        """`limits.pids` is a number, which a task's limit changes, or "none" with the reason."""
        said = _bound_of(shared)
        assert re.match(r"\d+\b|none\b", said), said
        if said.startswith("none") or "pids" not in spec.limits:
            return
        try:
            sandbox = await backend.open(self.ask(pids=80))
        except SandboxRefusedError:
            return  # at this level; the test of a crowd checks it
        async with sandbox:
            assert re.match(r"80\b", _bound_of(sandbox)), _bound_of(sandbox)

    async def test_a_file_stays_below_its_limit(self, backend: TerminalBackend, spec: BackendSpec) -> None:
        """A writer gets an error or a signal, and the file is not larger than the limit."""
        self._require_limit(spec, "file_size")
        async with await backend.open(await self.ask_for(backend, file_size_mb=4)) as sandbox:
            assert (await sandbox.exec("head -c 3000000 /dev/zero > fits")).exit_code == 0
            assert (await sandbox.exec("head -c 9000000 /dev/zero > large")).exit_code != 0
            assert (await sandbox.stat("large")).size <= 4 << 20
            assert (await sandbox.exec("echo next")).output == "next\n"

    async def test_the_disk_is_full_at_its_limit(self, backend: TerminalBackend, spec: BackendSpec) -> None:
        """The system's error reports it; deleting frees space, and the session survives."""
        self._require_limit(spec, "disk")
        async with await backend.open(await self.ask_for(backend, disk_mb=32)) as sandbox:
            await sandbox.exec("export KEPT=yes")
            full = await sandbox.exec("head -c 64000000 /dev/zero > large")
            assert full.exit_code != 0
            assert "space" in full.output
            await sandbox.remove("large")
            assert (await sandbox.exec("echo $KEPT > small; cat small")).output == "yes\n"

    def _require_limit(self, spec: BackendSpec, limit: str) -> None:
        if limit not in spec.limits:
            pytest.skip(f"limit {limit} is not declared; another test checks that it is refused")
