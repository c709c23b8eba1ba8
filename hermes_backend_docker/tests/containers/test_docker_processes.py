"""Background processes and interactive programs in containers, as in every other sandbox."""

from __future__ import annotations

import asyncio
import re

import pytest

from hermes_backend_docker.backend import DockerBackend
from hermes_core.contracts.sandbox import IsolationLevel, Processes, SandboxSpec

pytestmark = [
    pytest.mark.component("docker"),
    pytest.mark.parametrize("isolation", ["container", "container+slot"]),
]


async def reads(processes: Processes, process_id: str, *wanted: bytes) -> bytes:
    """Wait until the output contains all `wanted` texts in order; return the whole output."""
    pattern = re.compile(b".*".join(map(re.escape, wanted)), re.DOTALL)
    async with asyncio.timeout(60):
        while True:
            output = await processes.read(process_id)
            if pattern.search(output.data):
                return output.data
            assert output.running, output.data
            await asyncio.sleep(0.01)


async def test_an_interactive_program_is_driven_on_a_terminal(
    backend: DockerBackend, isolation: IsolationLevel
) -> None:
    """hermes-agent's defect: a process in a container had neither input nor a terminal."""
    async with await backend.open(SandboxSpec(isolation=isolation, network="none")) as box:
        started = await box.processes.start("python3 -q", pty=True)
        await reads(box.processes, started.id, b">>> ")
        await box.processes.write(started.id, b"print(6 * 7, open('/dev/tty').isatty())\n")
        # Until it asks again it reads nothing, and what is the end of its input is lost when it then changes how its
        # terminal reads.
        await reads(box.processes, started.id, b"42 True", b">>> ")
        await box.processes.close_stdin(started.id)
        assert (await box.processes.wait(started.id, timeout=60)).exit_code == 0


async def test_exit_codes_are_exact_and_input_is_taken(backend: DockerBackend, isolation: IsolationLevel) -> None:
    """hermes-agent's defect: the exit code of a process in a container was always 127."""
    async with await backend.open(SandboxSpec(isolation=isolation, network="none")) as box:
        started = await box.processes.start('read line; echo "got $line"; exit 41')
        await box.processes.write(started.id, b"it's\n")
        assert (await box.processes.wait(started.id, timeout=60)).exit_code == 41
        assert (await box.processes.read(started.id)).data == b"got it's\n"


async def test_a_kill_leaves_nothing_in_the_container(backend: DockerBackend, isolation: IsolationLevel) -> None:
    """hermes-agent's defect: in a container only the wrapper got a signal."""
    async with await backend.open(SandboxSpec(isolation=isolation, network="none")) as box:
        started = await box.processes.start("setsid sleep 600 & (trap '' TERM; exec sleep 601) & echo up; wait")
        await reads(box.processes, started.id, b"up")
        assert not (await box.processes.kill(started.id, grace=0.2)).running
        left = await box.exec("cat /proc/[0-9]*/comm | grep -c sleep")
        assert left.output == "0\n"
