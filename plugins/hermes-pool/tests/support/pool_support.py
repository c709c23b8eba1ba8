"""A backend with small hosts, each a process of this machine with a real agent, and a pool over it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import uuid
from contextlib import asynccontextmanager
from pathlib import Path

from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_pool import PoolOptions, SlotPool
from hermes_sandbox.backends import PYTHON_FLAGS, AgentBackend, AgentStream, SandboxHost, SharedHost, SlotRequest
from hermes_sandbox.local import AgentProcess


class Engine:
    """Makes hosts and records them; fails or waits as a test says."""

    def __init__(self):
        self.hosts = []
        self.asked = 0
        self.starting = self.most_starting = 0
        self.failing = None
        """Returns the error of the n-th request, or None."""
        self.gate = asyncio.Event()
        self.gate.set()

    async def make(self, kind=None):
        self.asked += 1
        number = self.asked
        self.starting += 1
        self.most_starting = max(self.most_starting, self.starting)
        try:
            await self.gate.wait()
            error = self.failing(number) if self.failing else None
            if error is not None:
                raise error
        finally:
            self.starting -= 1
        host = Host(kind)
        self.hosts.append(host)
        return host

    @property
    def alive(self):
        return [host for host in self.hosts if not host.destroyed]


class Host(SandboxHost):
    """A Python on this machine."""

    def __init__(self, kind):
        self.environment = {"PATH": "/usr/bin:/bin"}
        self.kind = kind
        self.process = None
        self.destroyed = False
        self.complaint = None
        self.stuck = None

    async def start_agent(self) -> AgentStream:
        self.process = await AgentProcess.start(["/usr/bin/python3", *PYTHON_FLAGS], environment=dict(os.environ))
        return self.process.stream

    async def examine(self):
        if self.complaint is not None:
            raise BackendError(self.complaint)

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)

    async def stop_all(self):
        if self.process is not None:
            self.process.stream.writer.close()
            await self.process.end(60)
            self.process = None

    async def destroy(self):
        self.destroyed = True
        if self.stuck is not None:
            raise BackendError(self.stuck)


class Backend(AgentBackend):
    """Opens sandboxes in slots of such hosts; sandboxes with different images get different hosts."""

    declaration = BackendSpec(name="engine", summary="Shared folders.", target="nowhere:Backend", images=True)

    def __init__(self, root, options, *, limit=1000):
        super().__init__()
        self.root, self.limit = root, limit
        self.lease_dir = root / "leases"
        self.engine = Engine()
        self.host_pool = self.pool = pool(options)

    def shares(self, spec):
        return True

    async def create(self, spec, sandbox_id):
        def describe(_host, number):
            workspace = f"{self.root}/{sandbox_id}-{number}"
            return {"workspace": workspace, "state_dir": f"{workspace}.state", "own_directory": True}

        make = self.engine.make
        return SharedHost(self.host_pool, spec.image, lambda: make(spec.image), limit=self.limit, describe=describe)


def pool(options, **arguments):
    # A healthy agent on a busy machine may take its time to answer.
    given = PoolOptions(**{"health_timeout": 60, **options})
    return SlotPool(given, name="engine", load=lambda: 0.0, **arguments)


@asynccontextmanager
async def backend(*, limit=1000, **options):
    root = Path(tempfile.mkdtemp(prefix="hermes-test-"))
    made = Backend(root, options, limit=limit)
    try:
        yield made
    finally:
        made.engine.gate.set()
        await made.aclose()
        assert made.engine.alive == []
        # An agent that was killed cannot delete what it has saved; such a host's files end with this folder.
        left = [path.name for path in root.iterdir() if path.name != "leases" and path.suffix != ".state"]
        leases = list((root / "leases").glob("*"))
        shutil.rmtree(root)
        assert leases == []
        assert left == []


def request(rollout_id=None):
    """Return a request for a slot."""
    spec = SandboxSpec(rollout_id=rollout_id)
    sandbox_id = uuid.uuid4().hex[:16]
    return SlotRequest(
        spec=spec, sandbox_id=sandbox_id, environment={}, setup_timeout=60.0, patience=60.0, processes=1024
    )


@asynccontextmanager
async def slot_pool(*, names=None, **options):
    """A pool without a backend, and the engine that makes its hosts."""
    engine, made = Engine(), pool(options, names=names)
    try:
        yield made, engine
    finally:
        engine.gate.set()
        await made.aclose()
        assert engine.alive == []
