"""The choice of nodes, the transport of bytes, and the shared connection."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
import ray
from ray import cloudpickle
from ray_cluster import PERMANENT

from hermes_backend_ray.backend import RayBackend
from hermes_backend_ray.cluster.announcements import log_announcements
from hermes_backend_ray.host_actors.host_actor import actor_class
from hermes_backend_ray.host_actors.placement import Hosts
from hermes_backend_ray.options import RayOptions
from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_core.contracts.sandbox import SandboxSpec


@pytest.fixture
async def hosts(ray_driver):
    """A set of hosts, which is closed after the test."""
    made = []

    def make(**options):
        made.append(Hosts(RayOptions(**{"address": ray_driver.address, "resources": PERMANENT, **options})))
        return made[-1]

    yield make
    for one in made:
        await one.aclose()


@pytest.fixture
async def link(hosts):
    """A link to a node."""
    made = await hosts().link()
    yield made
    await made.aclose()


async def test_a_new_link_goes_to_the_node_with_the_fewest(hosts):
    cluster = hosts()
    links = await asyncio.gather(*(cluster.link() for _ in range(6)))
    counts = {}
    for link in links:
        counts[link.host.node.id] = counts.get(link.host.node.id, 0) + 1
    assert max(counts.values()) - min(counts.values()) <= 1
    assert len(counts) >= 3
    left = links[0].host.node.id
    await links[0].aclose()
    assert (await cluster.link()).host.node.id == left or min(counts.values()) < max(counts.values())


async def test_at_most_max_hosts_nodes_are_used(hosts):
    cluster = hosts(pool={"max_hosts": 2})
    first, *others = [await cluster.link() for _ in range(5)]
    assert len({link.host.node.id for link in (first, *others)}) == 2


async def test_links_to_one_node_share_its_actor(hosts):
    cluster = hosts(pool={"max_hosts": 1})
    one, two = await asyncio.gather(cluster.link(), cluster.link())
    assert one.host is two.host
    await one.aclose()
    assert (await two.run("echo still", timeout=100)).output == b"still\n"


def test_a_node_needs_none_of_our_packages():
    # A module that the node would have to import is in the pickle by its name.
    sent = cloudpickle.dumps(actor_class())
    assert b"hermes_backend_ray" not in sent
    assert b"hermes_core" not in sent


async def test_a_command_returns_status_output_and_standard_error(link):
    done = await link.run("cat; echo oh >&2; exit 3", b"given", timeout=100)
    assert (done.status, done.output, done.complaint) == (3, b"given", "oh")


async def test_a_command_that_takes_too_long_is_lost_and_ended(link, tmp_path):
    async with asyncio.timeout(100):
        with pytest.raises(SandboxLostError, match=r"did not finish within 0.5 s"):
            await link.run(f"sleep 600; touch {tmp_path}/late", timeout=0.5)


async def test_bytes_come_back_as_they_were_sent(link):
    program = await link.start("cat")
    data = os.urandom(5 << 20)
    writing = asyncio.create_task(write_all(program.stream.writer, data))
    assert await program.stream.reader.readexactly(len(data)) == data
    await writing
    program.stream.writer.close()
    assert await program.wait(100)
    assert program.over


async def write_all(writer, data):
    for start in range(0, len(data), 1 << 18):
        writer.write(data[start : start + (1 << 18)])
        await writer.drain()


async def test_a_writer_waits_while_the_program_does_not_read(link):
    program = await link.start("read x; exec sleep 600")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(write_all(program.stream.writer, bytes(64 << 20)), 3)
    assert not await program.wait(0.1)
    assert not program.over


async def test_a_program_that_fails_gives_its_standard_error_as_the_reason(link):
    program = await link.start("echo no such thing >&2; exit 7")
    assert not await program.wait(100)
    assert program.over
    assert await program.stream.diagnose() == "no such thing\n"
    with pytest.raises(asyncio.IncompleteReadError):
        await program.stream.reader.readexactly(1)


async def test_closing_a_link_ends_its_programs_only(hosts):
    cluster = hosts(pool={"max_hosts": 1})
    one, two = await cluster.link(), await cluster.link()
    ended, kept = await one.start("cat"), await two.start("cat")
    await one.aclose()
    await one.aclose()
    with pytest.raises(SandboxLostError, match="was closed"):
        await one.run("true", timeout=5)
    with pytest.raises(asyncio.IncompleteReadError):
        await ended.stream.reader.readexactly(1)
    kept.stream.writer.write(b"here")
    assert await kept.stream.reader.readexactly(4) == b"here"


async def test_a_connection_without_the_token_gets_nothing(hosts):
    link = await hosts().link()
    port = (await link.host.call("start", "cat", link.host.node.address, os.urandom(32)))[1]
    reader, writer = await asyncio.open_connection(link.host.node.address, port)
    writer.write(os.urandom(32) + b"hello")
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


async def test_a_node_that_cannot_be_reached_directly_says_what_to_do(hosts, monkeypatch):
    link = await hosts().link()

    async def refuse(_address):
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr("hermes_backend_ray.host_actors.node_link._dial", refuse)
    with pytest.raises(BackendError, match=r"cannot be reached directly, at port \d+: Connection refused") as caught:
        await link.start("cat")
    assert "start the run on a node of the cluster" in str(caught.value.hint)


_SHARING = """
import asyncio, sys
from pathlib import Path
import ray
from hermes_backend_ray.cluster.announcements import log_announcements
from hermes_backend_ray.backend import RayBackend
from hermes_backend_ray.options import RayOptions
from hermes_core.contracts.sandbox import SandboxSpec

async def main(address, leases, own):
    if own == "own":
        ray.init(address, log_to_driver=False)
    backends = [RayBackend(RayOptions(address=None if own == "own" else address)) for _ in range(2)]
    for backend in backends:
        backend.lease_dir = Path(leases)
    one, two = [await backend.open(SandboxSpec()) for backend in backends]
    await backends[0].aclose()
    result = await two.exec("echo still here")
    await backends[1].aclose()
    print(result.output.strip(), ray.is_initialized())

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(("own", "expected"), [("own", "still here True"), ("ours", "still here False")])
def test_two_backends_share_a_connection_and_end_only_their_own(ray_cluster, tmp_path, own, expected):
    command = [sys.executable, "-c", _SHARING, ray_cluster.address, str(tmp_path), own]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    assert done.stdout.splitlines()[-1] == expected


async def test_a_connection_of_this_process_stays_open_when_a_backend_closes(ray_driver, tmp_path):
    backend = RayBackend(RayOptions(address=ray_driver.address, resources=PERMANENT))
    backend.lease_dir = tmp_path
    async with await backend.open(SandboxSpec()) as sandbox:
        provenance = dict(sandbox.provenance)
    await backend.aclose()
    assert provenance["address"] == ray_driver.address
    assert ray.is_initialized()


def test_ray_s_notices_are_logged_and_not_printed(capsys, caplog):
    from ray._private import worker

    lost = {"lines": ["a node has gone"], "pid": "raylet", "is_err": False}
    with caplog.at_level("INFO", "hermes_backend_ray"):
        restore = log_announcements()
        worker.print_to_stdstream(lost, ignore_prefix=False)
        restore()
    assert capsys.readouterr().out == ""
    assert "a node has gone" in caplog.text
    worker.print_to_stdstream(lost, ignore_prefix=False)
    assert "a node has gone" in capsys.readouterr().out
