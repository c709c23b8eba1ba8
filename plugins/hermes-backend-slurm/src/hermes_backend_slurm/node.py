"""Run programs on one node of an allocation, as steps."""

from __future__ import annotations

import asyncio
import re
import uuid
from typing import Final

from hermes_backend_slurm.allocation import Allocation
from hermes_backend_slurm.commands import Slurm
from hermes_backend_slurm.failures import explain, remember, tail, without_noise
from hermes_backend_slurm.ownership import own_mark
from hermes_backend_slurm.step import StepProgram
from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_sandbox.remote import CompletedCommand

_OWN_END: Final = re.compile(r"srun: error: \S+: tasks? [\d,-]+: |srun: Terminating StepId=|srun: launch/slurm: ")
"""srun's messages about a program that failed by itself."""
_CANCELLING: Final = 20.0
_SLURM_SAYS: Final = re.compile(r"^(srun|slurmstepd|slurmd)[:\[]")


class NodeLink:
    """A link to one node, through srun."""

    def __init__(self, slurm: Slurm, allocation: Allocation, node: str) -> None:
        self.node = node
        self.allocation = allocation
        self._slurm = slurm
        self._closed = False
        self._programs: list[StepProgram] = []

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node

    @property
    def alive(self) -> bool:
        """Whether the allocation is still active, as far as known."""
        return not self._closed and self.allocation.alive

    def _arguments(self, step: str, command: str) -> list[str]:
        return [
            f"--jobid={self.allocation.job_id}",
            f"--job-name={step}",
            f"--nodelist={self.node}",
            *("--nodes=1", "--ntasks=1", "--unbuffered", "--quiet", "--chdir=/", "--mpi=none", "--cpu-bind=none"),
            # Many steps share the node: each can use all that the allocation has there, and none waits for another.
            *("--overlap", "--mem=0"),
            f"--immediate={max(1, round(self._slurm.timeout))}",
            *("/bin/sh", "-c", command),
        ]

    async def run(self, command: str, data: bytes = b"", *, timeout: float) -> CompletedCommand:
        """Run a program to its end."""
        self._require()
        step = self._step()
        try:
            done = await self._slurm.run("srun", *self._arguments(step, command), data=data, timeout=timeout)
        except (BackendError, asyncio.CancelledError) as error:
            try:
                await self._cancel(step)
            except BackendError as trouble:
                remember(error, f"step {step} on node {self.node} may still run", trouble)
            if isinstance(error, asyncio.CancelledError):
                raise
            notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
            raise SandboxLostError(f"node {self.node}: {error.message}{notes}", hint=error.hint) from error
        lines = [line for line in without_noise(done.complaint.splitlines()) if not _OWN_END.match(line)]
        if done.status != 0 and any(_SLURM_SAYS.match(line) for line in lines):
            what = f"node {self.node} of allocation {self.allocation.job_id} cannot run a step"
            raise explain(what, "\n".join(lines), passing=True)
        return CompletedCommand(done.status, done.output, "\n".join(lines))

    async def start(self, command: str) -> StepProgram:
        """Start a program that talks to the caller until its input ends."""
        self._require()
        step = self._step()
        argv = [self._slurm.program("srun"), *self._arguments(step, command)]
        program = await StepProgram.start(argv, environment=self._slurm.environment, cancel=lambda: self._cancel(step))
        self._programs.append(program)
        return program

    def _require(self) -> None:
        if not self.alive:
            why = tail(self.allocation.why_ended) if self.allocation.why_ended else "the link was closed"
            raise SandboxLostError(f"node {self.node} of allocation {self.allocation.job_id} is lost: {why}")

    def _step(self) -> str:
        return f"{own_mark()}:{uuid.uuid4().hex[:12]}"

    async def _cancel(self, step: str) -> None:
        if not self.allocation.alive:
            return
        try:
            async with asyncio.timeout(_CANCELLING):
                await self._slurm.cancel(*await self.allocation.steps(step))
        except TimeoutError as error:
            raise BackendError(f"Slurm did not cancel the step within {_CANCELLING:g} s") from error

    async def aclose(self) -> None:
        """End every step that was started; safe to call twice."""
        self._closed = True
        programs, self._programs = self._programs, []
        await asyncio.gather(*(program.wait(0.0) for program in programs))
