"""Run Slurm's commands without blocking, in a minimal environment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Mapping
from typing import Final

from hermes_backend_slurm.failures import explain
from hermes_backend_slurm.options import SlurmOptions
from hermes_core.contracts.errors import BackendError, SandboxRefusedError
from hermes_sandbox.backends import system_error
from hermes_sandbox.remote import CompletedCommand

_KEPT: Final = ("PATH", "HOME", "USER", "LOGNAME", "LD_LIBRARY_PATH", "KRB5CCNAME", "SLURM_CLUSTERS")
"""The environment variables that the commands get. Slurm's other variables describe the step that this process may run
in, and would change what the commands do."""
_CANCELLING: Final = 10.0
"""Timeout of scancel in seconds; short, because its caller has often been cancelled."""


class Slurm:
    """The commands of one cluster."""

    def __init__(self, options: SlurmOptions) -> None:
        self.timeout = options.setup_timeout
        self.left: set[str] = set()
        """Names of jobs that could not be cancelled; closing the backend tries again."""
        self._conf = options.conf
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        conf = {} if options.conf is None else {"SLURM_CONF": str(options.conf)}
        # This package reads the messages, so they must not be translated.
        self.environment: Mapping[str, str] = {"PATH": os.defpath, **kept, **conf, "LC_ALL": "C"}

    def program(self, name: str) -> str:
        """Return the path of a command.

        Raises:
            SandboxRefusedError: The command is not installed.
        """
        found = shutil.which(name, path=self.environment["PATH"])
        if found is None:
            raise SandboxRefusedError(
                f"backend 'slurm' needs Slurm's command {name}, and it is not on PATH",
                hint="`apt-get install slurm-client`, `module load slurm`, or run on a login node of the cluster",
            )
        return found

    async def spawn(self, name: str, *arguments: str) -> asyncio.subprocess.Process:
        """Start a command with pipes in a separate session, so that Ctrl-C at the terminal does not reach it."""
        if self._conf is not None and not self._conf.is_file():
            # Without the file, the commands would look for a controller elsewhere for a minute.
            raise SandboxRefusedError(
                f"Slurm's configuration file {self._conf} does not exist",
                hint="set the option conf or SLURM_CONF to the file, or remove both for Slurm's default",
            )
        try:
            return await asyncio.create_subprocess_exec(
                self.program(name),
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self.environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise system_error(f"{name} cannot be started", error) from error

    async def run(
        self, name: str, *arguments: str, data: bytes = b"", timeout: float | None = None
    ) -> CompletedCommand:
        """Run a command to its end; kill it if it is cancelled or too slow.

        Raises:
            BackendError: The command did not end in time.
        """
        process = await self.spawn(name, *arguments)
        seconds = self.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                output, said = await process.communicate(data)
        except TimeoutError as error:
            raise BackendError(
                f"{name} did not answer within {seconds:g} s", hint="`scontrol ping` shows whether slurmctld is up"
            ) from error
        finally:
            await end(process)
        return CompletedCommand(process.returncode or 0, output, said.decode(errors="replace").strip())

    async def ask(self, what: str, name: str, *arguments: str) -> list[str]:
        """Run a command that lists something and return its lines; if it fails, the message begins with `what`."""
        done = await self.run(name, *arguments)
        if done.status != 0:
            raise explain(what, done.complaint)
        return done.output.decode(errors="replace").split("\n")[:-1]

    async def cancel(self, *things: str) -> None:
        """Cancel jobs (`12`) and steps (`12.3`); it is no error if they have ended already."""
        if not things:
            return
        done = await self.run("scancel", *things, timeout=min(self.timeout, _CANCELLING))
        said = done.complaint.lower()
        if done.status != 0 and "invalid job" not in said and "already completing" not in said:
            raise explain(f"{', '.join(things)} cannot be cancelled", done.complaint)

    async def withdraw(self, name: str) -> None:
        """Cancel the jobs with a name; after a failure, keep the name in `left` for another try."""
        self.left.add(name)
        await self.cancel(f"--name={name}")
        self.left.discard(name)


async def end(process: asyncio.subprocess.Process) -> None:
    """Kill a process if it has not ended, and wait for it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    await process.wait()
    # asyncio closes the pipes of a killed process only after they have been read to their end.
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public way to its transport
