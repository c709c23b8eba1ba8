"""Containers without a network that reach what is listed, through the caller's proxy."""

from __future__ import annotations

import asyncio

import pytest

from hermes_core.contracts.sandbox import SandboxSpec

pytestmark = pytest.mark.component("docker")

FETCH = """no_proxy= NO_PROXY= python3 -c '
import sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
' """


@pytest.mark.parametrize("isolation", ["container", "container+slot"])
async def test_a_container_reaches_the_listed_host_and_no_other(backend, isolation):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nreached")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    allowed = (f"127.0.0.1:{port}@private",)
    spec = SandboxSpec(isolation=isolation, network="allowlist", allow_hosts=allowed)
    async with server, await backend.open(spec) as sandbox:
        assert (await sandbox.exec(f"{FETCH} http://127.0.0.1:{port}/")).output == "reached\n"
        assert (await sandbox.exec(f"{FETCH} http://example.org/")).output.startswith("403 ")
        assert (await sandbox.exec("cut -d: -f1 /proc/net/dev | tail -n +3")).output.split() == ["lo"]
        await sandbox.renew()
        assert (await sandbox.exec(f"{FETCH} http://127.0.0.1:{port}/")).output == "reached\n"
        assert (sandbox.egress_log.allowed, sandbox.egress_log.refused) == (2, 1)
