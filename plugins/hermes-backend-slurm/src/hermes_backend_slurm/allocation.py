"""A Slurm allocation: an existing one, or a new one that ends with this process."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Sequence
from typing import Final, Self

from hermes_backend_slurm.commands import Slurm, end
from hermes_backend_slurm.failures import explain, refuse_for_ever, remember, tail
from hermes_backend_slurm.options import SlurmOptions
from hermes_backend_slurm.ownership import own_mark
from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError, SandboxRefusedError

_READY: Final = "hermes-allocation"
# salloc releases the allocation when its command ends. This command ends at the end of its input, which comes when this
# process ends, in whatever way.
_WAIT: Final = f'echo "{_READY} $SLURM_JOB_ID $SLURM_JOB_NODELIST"; exec cat > /dev/null'
_BAD: Final = ("down", "drain", "drng", "fail", "unk", "boot", "err", "inval", "pow", "maint", "futr")
_GIVING_BACK: Final = 10.0
_LOOK_AGAIN: Final = 2.0
"""Seconds between checks of why a job is still pending."""


class Allocation:
    """A Slurm job and the nodes allocated to it."""

    def __init__(self, slurm: Slurm, job_id: str, nodes: tuple[str, ...], lease: AllocationLease | None = None) -> None:
        self.job_id = job_id
        self.nodes = nodes
        self._slurm = slurm
        self._lease = lease
        self._ended = ""

    @classmethod
    async def existing(cls, slurm: Slurm, job_id: str) -> Self:
        """Return an existing allocation, which somebody else has requested.

        Raises:
            SandboxRefusedError: The allocation is not running (any more).
        """
        state, nodes, reason = await _state(slurm, job_id)
        if state != "RUNNING":
            why = f"it is {state}" + (f" ({reason})" if reason not in {"", "None"} else "")
            raise SandboxRefusedError(
                f"allocation {job_id} cannot be used: {why}",
                hint=f"`squeue -j {job_id}`; make another (`salloc -N2`) and set the option job_id, or remove it",
            )
        return cls(slurm, job_id, await _names(slurm, nodes))

    @classmethod
    async def own(
        cls, slurm: Slurm, options: SlurmOptions, *, only: Sequence[str] = (), time: str | None = None
    ) -> Self:
        """Request an allocation and wait until it is granted; if cancelled, withdraw the request from the queue.

        Args:
            slurm: Slurm's commands.
            options: The requested allocation.
            only: The exact nodes to request; any nodes if empty.
            time: The time limit, instead of the one in the options.
        """
        lease = await AllocationLease.ask(slurm, options, only=only, time=time or options.time)
        try:
            job_id, nodes = await lease.await_grant(options.queue_timeout)
            return cls(slurm, job_id, await _names(slurm, nodes), lease)
        except BaseException as error:
            await run_uncancelled(lease.give_up(error))
            raise

    @property
    def is_own(self) -> bool:
        """Whether this process requested the allocation, and so releases it in the end."""
        return self._lease is not None

    @property
    def alive(self) -> bool:
        """Whether the allocation is still active, as far as known."""
        return not self.why_ended

    @property
    def why_ended(self) -> str:
        """The reason why the allocation has ended; empty while it is active."""
        if self._lease is not None and self._lease.over:
            return self._lease.said or "it was revoked"
        return self._ended

    async def healthy(self) -> list[str]:
        """Return the nodes that Slurm gives work to now. If the allocation has ended, record why and return none."""
        state, nodes, reason = await _state(self._slurm, self.job_id)
        if state != "RUNNING":
            self._ended = f"it is {state} ({reason})"
            return []
        return await healthy(self._slurm, await _names(self._slurm, nodes))

    async def steps(self, name: str) -> list[str]:
        """Return the ids of the allocation's steps with this name."""
        rows = await self._slurm.ask(
            "the allocation's steps cannot be listed", "squeue", "-h", "-s", "-j", self.job_id, "-o", "%i|%j"
        )
        return [row.partition("|")[0] for row in rows if row.partition("|")[2].strip() == name]

    async def aclose(self) -> None:
        """Release the allocation if this process requested it."""
        self._ended = self._ended or "it was released"
        if self._lease is not None:
            await self._lease.give_back()


class AllocationLease:
    """A running salloc. Its job lasts as long as the process, which ends at the end of its standard input."""

    def __init__(self, slurm: Slurm, process: asyncio.subprocess.Process, name: str) -> None:
        self.name = name
        self.said = ""
        self._slurm = slurm
        self._process = process
        self._given = False
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def ask(cls, slurm: Slurm, options: SlurmOptions, *, only: Sequence[str], time: str | None) -> Self:
        """Submit a job with its owner in the name; remove it when cancelled."""
        name = f"{own_mark()}:{uuid.uuid4().hex[:12]}"
        where = [f"--nodelist={','.join(only)}"] if only else []
        arguments = [
            f"--job-name={name}",
            f"--nodes={len(only) or options.nodes}",
            *("--ntasks-per-node=1", "--no-kill", "--kill-command=KILL", "--chdir=/"),
            *([f"--time={time}"] if time else []),
            *where,
            *options.wishes,
            *("/bin/sh", "-c", _WAIT),
        ]
        # A cancelled start would kill salloc, which may have a job in the queue by then.
        spawning = asyncio.ensure_future(slurm.spawn("salloc", *arguments))
        try:
            return cls(slurm, await asyncio.shield(spawning), name)
        except asyncio.CancelledError as error:
            await run_uncancelled(cls._abandon(slurm, spawning, name, error))
            raise

    @classmethod
    async def _abandon(
        cls, slurm: Slurm, spawning: asyncio.Future[asyncio.subprocess.Process], name: str, error: BaseException
    ) -> None:
        await asyncio.wait((spawning,))
        if not spawning.cancelled() and spawning.exception() is None:
            await cls(slurm, spawning.result(), name).give_up(error)

    async def _read(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(1 << 16):
            self.said = (self.said + data.decode(errors="replace"))[-4000:]

    @property
    def over(self) -> bool:
        """Whether salloc has ended, and the job with it."""
        return self._process.returncode is not None

    async def await_grant(self, seconds: float) -> tuple[str, str]:
        """Wait until the allocation is granted; return its job id, and its node list in Slurm's notation."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                line = await self._first_line(self._process.stdout)
        except TimeoutError as error:
            raise await self._late(seconds) from error
        words = line.split()
        if len(words) != 3 or words[0] != _READY:
            raise explain("Slurm grants no allocation", self.said or line)
        self._given = True
        return words[1], words[2]

    async def _first_line(self, output: asyncio.StreamReader) -> str:
        reading = asyncio.ensure_future(output.readline())
        try:
            while not (await asyncio.wait((reading,), timeout=_LOOK_AGAIN))[0]:
                try:
                    job, _, reason, _ = await self._queue_entry()
                except BackendError:
                    continue  # slurmctld may be restarting; salloc waits for it, too
                refuse_for_ever(job, reason)
        finally:
            reading.cancel()
        if not reading.result():
            await self._process.wait()
            await asyncio.wait((self._reading,))
        return reading.result().decode()

    async def _queue_entry(self) -> tuple[str, str, str, str]:
        rows = await self._slurm.ask(
            "the queue cannot be read", "squeue", "-h", f"--name={self.name}", "-o", "%i|%T|%r|%S"
        )
        job, state, reason, start = (rows[0].split("|") + [""] * 4)[:4] if rows else ("",) * 4
        return job, state, reason, start

    async def _late(self, seconds: float) -> BackendError:
        found = "; salloc says: " + tail(self.said)
        with contextlib.suppress(BackendError):
            job, state, reason, start = await self._queue_entry()
            if job:
                found = f": job {job} is {state} ({reason})"
                found += "" if start in {"", "N/A"} else f", expected to start at {start}"
        return BackendError(
            f"Slurm granted no allocation within {seconds:g} s{found}",
            hint="raise the option queue_timeout, ask for less, or run inside an allocation (`salloc -N2`)",
        )

    async def give_up(self, error: BaseException) -> None:
        """End the job because of an error; problems are added to that error as notes and do not replace it."""
        try:
            await self.give_back()
        except BackendError as trouble:
            remember(error, f"job {self.name} may be left in the queue", trouble)

    async def give_back(self) -> None:
        """End the job; safe to call twice."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if not self.over and not await self._ends(_GIVING_BACK if self._given else 0.01):
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            await self._ends(_GIVING_BACK)
        await end(self._process)
        await asyncio.wait((self._reading,))
        if not self._given or self._process.returncode != 0:
            # If a signal ended salloc before it handled signals, its job is still in the queue.
            await self._slurm.withdraw(self.name)

    async def _ends(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            return False
        return True


async def healthy(slurm: Slurm, names: Sequence[str]) -> list[str]:
    """Return the nodes among `names` that Slurm gives work to."""
    rows = await slurm.ask(
        "the state of the nodes cannot be read", "sinfo", "-h", "-N", "-n", ",".join(names), "-o", "%N|%t"
    )
    states = dict(row.strip().split("|") for row in rows if "|" in row)
    return [name for name in names if _is_good(states.get(name, "unk"))]


async def _state(slurm: Slurm, job_id: str) -> tuple[str, str, str]:
    done = await slurm.run("squeue", "-h", "-j", job_id, "-t", "all", "-o", "%T|%N|%r")
    if done.status != 0 and "invalid job id" not in done.complaint.lower():
        raise explain(f"allocation {job_id} cannot be looked up", done.complaint)
    line = done.output.decode(errors="replace").strip().partition("\n")[0]
    state, nodes, reason = [*line.split("|"), "", "", ""][:3]
    return state or "unknown or ended", nodes, reason


async def _names(slurm: Slurm, nodes: str) -> tuple[str, ...]:
    rows = await slurm.ask(f"the node list {nodes!r} cannot be expanded", "scontrol", "show", "hostnames", nodes)
    return tuple(row.strip() for row in rows if row.strip())


def _is_good(state: str) -> bool:
    return not state.endswith("*") and not state.lower().startswith(_BAD)
