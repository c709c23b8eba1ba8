"""Sandboxes without a network of their own that reach what is listed, through the proxy and no other way."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import sys
from pathlib import Path

import pytest
from egress_support import PIECE, origin
from rollout_script import Script, call, calls, says, spec_for
from sandbox_support import backend, processes_of, resident
from sandbox_support import sandbox as open_one

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.rollout import Runtime, run_rollout
from hermes_core.specs import BackendSpec
from hermes_sandbox.backends import PYTHON_FLAGS, AgentBackend, SandboxHost
from hermes_sandbox.protocol.agent_process import AgentProcess
from hermes_sandbox.protocol.client import AgentClient
from hermes_testing.watching import eventually

pytestmark = pytest.mark.component("bwrap")

FETCH = """python3 -c '
import sys, urllib.request, urllib.error
try:
    sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
except OSError as error:
    print("none:", error)
' """
TUNNEL = """python3 -c '
import base64, os, socket, sys, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["https_proxy"])
s = socket.create_connection((proxy.hostname, proxy.port))
word = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
s.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\nProxy-Authorization: Basic {word}\\r\\n\\r\\n".encode())
head = b""
while not head.endswith(b"\\r\\n\\r\\n"):
    head += s.recv(1)
exec(sys.argv[2])
' """


def sockets() -> set[str]:
    """Return the sockets of this process."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


def allowing(*hosts):
    return open_one("bwrap", network="allowlist", allow_hosts=hosts)


async def test_a_listed_host_is_reached_by_python_and_curl_and_an_unlisted_one_is_refused():
    """hermes-agent's defect: no egress policy, and the network could not be switched off by config."""
    async with origin() as server, origin() as other:
        url = f"http://127.0.0.1:{server.port}/"
        async with allowing(f"127.0.0.1:{server.port}@private") as sandbox:
            # Loopback is the sandbox's own, so its own programs are asked for it without the proxy.
            await sandbox.exec("unset no_proxy NO_PROXY")
            assert (await sandbox.exec(FETCH + url)).output == "reached"
            refused = (await sandbox.exec(FETCH + f"http://127.0.0.1:{other.port}/")).output
            assert refused.startswith("403 ")
            assert f"127.0.0.1:{other.port}" in refused
            assert "sandbox.allow_hosts" in refused
            if (await sandbox.exec("command -v curl")).exit_code == 0:
                curled = await sandbox.exec(
                    f"curl -sS {url}; curl -sS -p {url}; curl -s https://other.example || echo $?"
                )
                assert curled.output == "reachedreached56\n"
            assert other.connections == 0
            log = sandbox.egress_log
            assert next(d.host for d in log.decisions if not d.allowed) == "127.0.0.1"
            assert sandbox.provenance["egress"]["refused"] == log.refused >= 1


async def test_without_the_proxy_nothing_is_reached():
    async with origin() as server, allowing(f"127.0.0.1:{server.port}@private") as sandbox:
        direct = await sandbox.exec(f"exec 5<>/dev/tcp/127.0.0.1/{server.port} && cat <&5")
        assert direct.exit_code != 0
        lookup = "python3 -c 'import socket; socket.create_connection((\"8.8.8.8\", 53), 3)'"
        assert "unreachable" in (await sandbox.exec(lookup)).output
        assert (await sandbox.exec("cut -d: -f1 /proc/net/dev | tail -n +3")).output.split() == ["lo"]
        assert server.connections == 0
        assert sandbox.egress_log.to_json()["decisions"] == []


async def test_an_empty_list_refuses_everything():
    async with allowing() as sandbox:
        assert (await sandbox.exec(FETCH + "http://example.org/")).output.startswith("403 ")
        assert sandbox.egress_log.refused == 1
        assert sandbox.provenance["network"] == "allowlist"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"network": "full", "allow_hosts": ("example.org",)}, "no effect with network 'full'"),
        ({"network": "none", "allow_hosts": ("example.org",)}, "no effect with network 'none'"),
        ({"network": "allowlist", "allow_hosts": ("http://example.org",)}, "http://example.org"),
        ({"network": "allowlist", "allow_hosts": ("10.0.0.1",)}, "10.0.0.1@private"),
    ],
)
async def test_hosts_that_cannot_be_meant_are_refused_before_anything_exists(fields, said):
    async with backend() as made:
        for refuse in (made.check, made.open):
            with pytest.raises(SandboxRefusedError, match=said) as caught:
                await refuse(SandboxSpec(isolation="bwrap", **fields))
            assert caught.value.hint


async def test_variables_of_the_spec_win_and_the_sandbox_itself_needs_no_proxy():
    async with open_one("bwrap", network="allowlist", env={"HTTPS_PROXY": "mine"}) as sandbox:
        answer = await sandbox.exec("echo $HTTPS_PROXY; echo ${http_proxy%%:*} $no_proxy; [ $http_proxy = $ALL_PROXY ]")
        assert answer.output == "mine\nhttp localhost,127.0.0.1,::1\n"
        assert answer.exit_code == 0


async def test_a_renewed_sandbox_has_its_proxy_and_its_log_again():
    async with origin() as server, allowing(f"127.0.0.1:{server.port}@private") as sandbox:
        fetch = f"no_proxy= NO_PROXY= {FETCH} http://127.0.0.1:{server.port}/"
        assert (await sandbox.exec(fetch)).output == "reached"
        await sandbox.renew()
        assert (await sandbox.exec(fetch)).output == "reached"
        assert sandbox.egress_log.allowed == 2


async def test_one_sandbox_cannot_use_the_port_and_the_allowance_of_another():
    """hermes-agent's defect: every slot could reach the sandbox server, and run commands in any other slot."""
    async with origin() as server, allowing(f"127.0.0.1:{server.port}@private") as first, allowing() as second:
        url = (await first.exec("echo $http_proxy")).output.strip()
        fetch = f"http_proxy={url} no_proxy= NO_PROXY= {FETCH} http://127.0.0.1:{server.port}/"
        assert "none:" in (await second.exec(fetch)).output
        wrong = (await first.exec(fetch.replace("http://hermes:", "http://hermes:x"))).output
        assert wrong.startswith("407 ")
        assert server.connections == 0


async def test_two_hundred_megabytes_take_no_memory_at_either_end():
    size = 200 << 20
    most = []

    async def serve(made, reader, writer):
        piece = bytes(PIECE)
        for number in range(size // PIECE):
            writer.write(piece)
            await writer.drain()
            if number % 256 == 0:
                most.append(resident(os.getpid()) + sum(map(resident, agents)))

    async with origin(serve) as server, allowing(f"127.0.0.1:{server.port}@private") as sandbox:
        agents = processes_of(sandbox.id)
        before = resident(os.getpid()) + sum(map(resident, agents))
        count = "print(sum(map(len, iter(lambda: s.recv(65536), bytes()))))"
        assert (await sandbox.exec(f"{TUNNEL} 127.0.0.1:{server.port} '{count}'")).output == f"{size}\n"
        assert max(most) - before < 32 << 20
        assert sandbox.egress_log.received == size


async def test_a_flood_through_a_tunnel_delays_no_command():
    async def serve(made, reader, writer):
        while True:
            writer.write(bytes(PIECE))
            await writer.drain()
            made.seen.set()

    async with origin(serve) as server, allowing(f"127.0.0.1:{server.port}@private") as sandbox:
        await sandbox.exec(
            f"{TUNNEL} 127.0.0.1:{server.port} '[s.recv(65536) for n in iter(int, 1)]' > /dev/null 2>&1 &"
        )
        await server.seen.wait()
        before = sandbox.egress_log.received
        for number in range(20):
            assert (await sandbox.exec(f"echo {number}")).output == f"{number}\n"
        # What passed meanwhile says how long the commands took, on any machine: seconds would be a gigabyte.
        assert sandbox.egress_log.received - before < 20 * (32 << 20)
        assert await eventually(lambda: sandbox.egress_log.received > before)


async def test_bytes_arrive_unchanged_in_both_directions():
    async def serve(made, reader, writer):
        while data := await reader.read(PIECE):
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async with origin(serve) as server, allowing(f"127.0.0.1:{server.port}@private") as sandbox:
        program = (
            "import threading, hashlib; data = os.urandom(20 << 20); sent = hashlib.sha256(data).hexdigest(); "
            "threading.Thread(target=lambda: (s.sendall(data), s.shutdown(1))).start(); h = hashlib.sha256(); "
            "[h.update(x) for x in iter(lambda: s.recv(65536), bytes())]; print(h.hexdigest() == sent)"
        )
        assert (await sandbox.exec(f"{TUNNEL} 127.0.0.1:{server.port} '{program}'")).output == "True\n"


async def test_a_program_that_reads_nothing_holds_up_nobody():
    """A window is full, and commands and other connections go on."""
    started = asyncio.Event()

    async def serve(made, reader, writer):
        if made.connections > 1:
            writer.write(b"second")
            await writer.drain()
            return
        while True:
            started.set()
            writer.write(bytes(PIECE))
            await writer.drain()

    async with origin(serve) as server, allowing(f"127.0.0.1:{server.port}@private") as sandbox:
        target = f"127.0.0.1:{server.port}"
        await sandbox.exec(f"{TUNNEL} {target} 'import time; time.sleep(300)' > /dev/null 2>&1 &")
        await started.wait()
        second = await sandbox.exec(f"{TUNNEL} {target} 'print(s.recv(100))'")
        assert second.output == "b'second'\n"
        assert (await sandbox.exec("echo still here")).output == "still here\n"


async def test_more_connections_than_a_sandbox_may_have_wait_for_their_turn():
    async def serve(made, reader, writer):
        writer.write(b"x")
        await writer.drain()

    async with origin(serve) as server, allowing(f"127.0.0.1:{server.port}@private") as sandbox:
        program = (
            "import concurrent.futures as c, subprocess\n"
            "def one(_):\n"
            "    t = socket.create_connection((proxy.hostname, proxy.port))\n"
            '    t.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\nProxy-Authorization: Basic {word}".encode())\n'
            '    t.sendall(b"\\r\\n\\r\\n")\n'
            '    return b"".join(iter(lambda: t.recv(99), b"")).endswith(b"x")\n'
            "with c.ThreadPoolExecutor(400) as pool: print(sum(pool.map(one, range(400))))"
        )
        assert (await sandbox.exec(f"{TUNNEL} 127.0.0.1:{server.port} '{program}'")).output == "400\n"


async def test_a_storm_of_connections_is_slowed_down_in_the_sandbox():
    """Each costs the caller's event loop something, which serves other sandboxes too."""
    async with allowing() as sandbox:
        storm = (
            "python3 -c 'import os, socket, struct, sys, time\n"
            'port = int(os.environ["http_proxy"].rpartition(":")[2]); began = time.monotonic()\n'
            "for n in range(600):\n"
            '    s = socket.create_connection(("127.0.0.1", port)); s.sendall(b"x")\n'
            '    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", n % 2, 0)); s.close()\n'
            "print(time.monotonic() - began)'"
        )
        # 256 at once and 128 in the queue, and then 200 a second.
        assert float((await sandbox.exec(storm)).output) > (600 - 256 - 128) / 200 - 0.3
        assert (await sandbox.exec("echo usable")).output == "usable\n"


async def test_garbage_to_the_proxy_port_harms_nobody():
    async with allowing() as sandbox:
        garbage = (
            "python3 -c 'import os, socket\n"
            'port = int(os.environ["http_proxy"].rpartition(":")[2])\n'
            "for n in range(60):\n"
            '    s = socket.create_connection(("127.0.0.1", port)); s.sendall(os.urandom(1 << n % 16)); s.shutdown(1)\n'
            '    assert s.recv(12).startswith((bytes(), b"HTTP/1.1 4")); s.close()\' && echo all'
        )
        assert (await sandbox.exec(garbage)).output == "all\n"
        assert sandbox.egress_log.allowed == 0
        assert sandbox.egress_log.refused == 60


async def test_a_refusal_is_read_also_by_a_program_that_is_still_sending():
    async with allowing() as sandbox:
        sending = (
            "python3 -c 'import os, socket, base64, urllib.parse\n"
            'proxy = urllib.parse.urlsplit(os.environ["http_proxy"])\n'
            'word = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()\n'
            "s = socket.create_connection((proxy.hostname, proxy.port))\n"
            's.sendall(f"POST http://example.org/ HTTP/1.1\\r\\nProxy-Authorization: Basic {word}\\r\\n".encode())\n'
            's.sendall(b"Content-Length: 16000000\\r\\n\\r\\n" + bytes(16000000))\n'
            "print(s.recv(12).decode())'"
        )
        assert (await sandbox.exec(sending)).output == "HTTP/1.1 403\n"


async def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one():
    async def serve(made, reader, writer):
        await reader.read(PIECE)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await writer.drain()
        option = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
        writer.transport.abort()

    async with origin(serve) as server, allowing(f"127.0.0.1:{server.port}@private") as sandbox:
        read_all = 's.sendall(b"x"); b"".join(iter(lambda: s.recv(99), bytes()))'
        broken = await sandbox.exec(f"{TUNNEL} 127.0.0.1:{server.port} '{read_all}'")
        assert "ConnectionResetError" in broken.output


async def test_a_program_that_reads_late_gets_everything_though_its_origin_has_long_gone():
    size = 200_000

    async def serve(made, reader, writer):
        writer.write(bytes(size))
        await writer.drain()

    async with origin(serve) as server, allowing(f"127.0.0.1:{server.port}@private") as sandbox:
        await sandbox.exec("mkfifo go result")
        late = 'open("go").read(); open("result", "w").write(str(sum(map(len, iter(lambda: s.recv(999), bytes())))))'
        await sandbox.exec(f"{TUNNEL} 127.0.0.1:{server.port} '{late}' > /dev/null 2>&1 &")
        assert await eventually(lambda: sandbox.egress_log.received >= size)
        assert (await sandbox.exec("echo > go; cat result")).output == str(size)


async def test_closing_leaves_no_socket_whatever_is_going_on():
    async def serve(made, reader, writer):
        while True:
            writer.write(bytes(PIECE))
            await writer.drain()
            if made.connections == 5:
                made.seen.set()

    async with origin(serve) as server:
        before = sockets()
        async with allowing(f"127.0.0.1:{server.port}@private") as sandbox:
            target = f"127.0.0.1:{server.port}"
            for program in ("import time; time.sleep(300)", "[s.recv(9999) for n in iter(int, 1)]"):
                await sandbox.exec(f"for n in 1 2 3; do {TUNNEL} {target} '{program}' > /dev/null 2>&1 & done")
            call = asyncio.create_task(sandbox.exec(f"{TUNNEL} {target} '[s.recv(9) for n in iter(int, 1)]'"))
            await server.seen.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert (await sandbox.exec("echo usable")).output == "usable\n"
        assert await eventually(lambda: not server.active and sockets() <= before)


class SharedHost(SandboxHost):
    """A slot in an agent that others use as well."""

    def __init__(self, client, workspace) -> None:
        self.client = client
        self.workspace = str(workspace)

    def slot_fields(self):
        return {"own_directory": True}

    async def serve(self, request, previous):
        if previous is None:
            return await request.open_in(self.client, self, exclusive=False)
        await previous.reset()
        return previous

    async def start_agent(self):
        raise NotImplementedError

    async def stop_all(self) -> None:
        pass

    async def destroy(self) -> None:
        pass


class SharedBackend(AgentBackend):
    declaration = BackendSpec(name="shared", summary="", target="no:where", networks=frozenset({"allowlist"}))

    def __init__(self, client, root) -> None:
        super().__init__()
        self.client = client
        self.root = root
        self.lease_dir = root / "leases"

    async def create(self, spec, sandbox_id):
        return SharedHost(self.client, self.root / sandbox_id)


@pytest.fixture
async def shared_agent(tmp_path):
    environment = {"PATH": os.environ["PATH"], "HERMES_SANDBOX": "shared.0"}
    process = await AgentProcess.start([sys.executable, *PYTHON_FLAGS], environment=environment)
    client = await AgentClient.connect(process.stream, {"marker": "shared", "limits": {}}, timeout=60)
    yield SharedBackend(client, tmp_path)
    await client.aclose()
    assert await process.end(60)


async def test_slots_of_one_agent_have_ports_and_passwords_of_their_own(shared_agent):
    """hermes-agent's defect: one token, or none, for all slots of a server."""
    async with origin() as server:
        target = f"127.0.0.1:{server.port}"
        fetch = f"no_proxy= NO_PROXY= {FETCH} http://{target}/"
        async with (
            await shared_agent.open(SandboxSpec(network="allowlist", allow_hosts=(f"{target}@private",))) as mine,
            await shared_agent.open(SandboxSpec(network="allowlist")) as other,
        ):
            assert (await mine.exec(fetch)).output == "reached"
            assert (await other.exec(fetch)).output.startswith("403 ")
            # Their network is the same, so the port of the other is in reach: it wants its own password.
            port = (await mine.exec("echo ${http_proxy##*:}")).output.strip()
            borrowed = await other.exec(f"http_proxy=${{http_proxy%:*}}:{port} {fetch}")
            assert borrowed.output.startswith("407 ")
            assert (mine.egress_log.allowed, mine.egress_log.refused, mine.egress_log.unauthorized) == (1, 0, 1)
            await mine.renew()
            assert (await mine.exec(fetch)).output == "reached"
            assert server.connections == 2
        assert shared_agent.client.lost is None


async def test_a_rollout_s_record_has_every_decision(registry):
    async with origin() as server:
        target = f"127.0.0.1:{server.port}"
        spec = SandboxSpec(isolation="bwrap", network="allowlist", allow_hosts=(f"{target}@private",))
        command = f"no_proxy= NO_PROXY= {FETCH} http://{target}/; {FETCH} http://example.org/"
        turn = calls(call("terminal", json.dumps({"command": command})))
        async with Runtime(registry, sandbox=spec) as runtime:
            rollout = spec_for(registry, tools=("terminal",))
            outcome = await run_rollout(rollout, runtime, Script(turn, says("done")))
        egress = json.loads(json.dumps(outcome.to_json()))["provenance"]["sandbox"]["egress"]
        assert (egress["allowed"], egress["refused"], egress["omitted"]) == (1, 1, 0)
        seen = [(d["host"], d["port"], d["allowed"], d["received"] > 0) for d in egress["decisions"]]
        assert seen == [("127.0.0.1", server.port, True, True), ("example.org", 80, False, False)]


async def test_what_listens_inside_cannot_be_reached_from_outside():
    for _ in range(10):
        async with allowing() as sandbox:
            port = int((await sandbox.exec("echo ${http_proxy##*:}")).output)
            # Nobody on this machine may have the same number: a program of somebody else, or the sandbox itself.
            with socket.socket() as own:
                try:
                    own.bind(("127.0.0.1", port))
                except OSError:
                    continue
                with pytest.raises(OSError):
                    await asyncio.open_connection("127.0.0.1", port)
                return
    pytest.fail("each time somebody on this machine has had the port of the sandbox's proxy")
