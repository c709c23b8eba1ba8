"""The measured kinds of sandboxes, and how to open them."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.sandboxes.small_image import IMAGE
from hermes_core.contracts.sandbox import Sandbox, SandboxSpec, TerminalBackend
from hermes_core.discovery import load_plugins
from hermes_sandbox.backends import AgentBackend


@dataclass(frozen=True)
class SandboxKind:
    """A backend, its isolation level and its options."""

    backend: str
    isolation: str
    options: Mapping[str, Any] = field(default_factory=dict)
    image: str = IMAGE


def _docker(**options: Any) -> dict[str, Any]:
    return {"image": IMAGE, **options}


KINDS: dict[str, SandboxKind] = {
    "local": SandboxKind("local", "bwrap"),
    "local none": SandboxKind("local", "none"),
    "docker": SandboxKind("docker", "container", _docker()),
    "docker pool": SandboxKind("docker", "container+slot", _docker(slots_per_container=64)),
}
_CROWD = SandboxKind("docker", "container+slot", _docker(slots_per_container=1024))


@contextmanager
def ssh_server() -> Iterator[None]:
    """Run an sshd on a loopback port, as the tests of the SSH backend do; while it runs, `ssh` is one of `KINDS`."""
    sys.path.append(str(Path(__file__).parents[2] / "plugins/hermes-backend-ssh/tests/support"))
    module = importlib.import_module("sshd_server")
    with tempfile.TemporaryDirectory() as folder:
        server = module.SshServer(Path(folder, "sshd")).start()
        KINDS["ssh"] = SandboxKind("ssh", "none", {**server.options, "root_dir": folder})
        try:
            yield
        finally:
            server.stop()


@contextmanager
def apptainer_image() -> Iterator[None]:
    """Make the small image of the Singularity backend's tests; while this lasts, `singularity` is one of `KINDS`.

    Raises:
        RuntimeError: There is no Apptainer.
    """
    sys.path.append(str(Path(__file__).parents[2] / "plugins/hermes-backend-singularity/tests/support"))
    images = importlib.import_module("small_images")
    program = images.program()
    if program is None:
        raise RuntimeError("neither apptainer nor singularity is on PATH or in HERMES_TEST_APPTAINER")
    options = {"program": program, "image": str(images.sandbox())}
    KINDS["singularity"] = SandboxKind("singularity", "container", options)
    yield


@dataclass
class OpenSandboxes:
    """Open sandboxes of one kind."""

    backend: TerminalBackend
    spec: SandboxSpec
    sandboxes: list[Sandbox] = field(default_factory=list)

    @property
    def sandbox(self) -> Sandbox:
        """The first of them."""
        return self.sandboxes[0]

    async def open_another(self) -> None:
        """Open one more."""
        self.sandboxes.append(await self.backend.open(self.spec))


@asynccontextmanager
async def open_sandboxes(name: str, session: str, *, count: int) -> AsyncIterator[OpenSandboxes]:
    """Open sandboxes of one kind with a separate backend; raises the backend's errors."""
    kind = _CROWD if name == "docker crowd" else KINDS[name]
    async with AsyncExitStack() as stack:
        leases = stack.enter_context(tempfile.TemporaryDirectory())
        backend: Any = load_plugins().create("backend", kind.backend, kind.options)
        stack.push_async_callback(backend.aclose)
        if isinstance(backend, AgentBackend):
            backend.lease_dir = Path(leases)
        fields: dict[str, Any] = {"isolation": kind.isolation, "session": session}
        found = OpenSandboxes(backend, SandboxSpec(**fields))
        await backend.check(found.spec)
        for _ in range(count):
            await found.open_another()
        yield found
