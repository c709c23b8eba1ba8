"""A sandbox served by an agent: the contract's methods, as requests to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar, Unpack, final

from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_core.contracts.sandbox import ExecResult, FileStat, Sandbox, Transfer
from hermes_sandbox.backend.backend_sandbox import BackendSandbox, SandboxParts
from hermes_sandbox.backend.changes import take_changes
from hermes_sandbox.egress.log import EgressLog
from hermes_sandbox.protocol import transfers
from hermes_sandbox.protocol.client import require_fits
from hermes_sandbox.protocol.output import decode_streams, join_ends
from hermes_sandbox.protocol.processes import AgentProcesses
from hermes_sandbox.protocol.slots import AgentSlot
from hermes_sandbox.protocol.turns import in_turns
from hermes_sandbox.protocol.validation import check_path, check_range, check_timeout, check_variables, encode_text

_logger = logging.getLogger(__name__)

T = TypeVar("T")
_READ_AT_ONCE: Final = 256 << 20
"""Bytes that one call without a length reads; a sparse file can be larger than the caller's memory."""
_MARGIN: Final = 15.0
"""Seconds after a command's timeout in which the agent must answer; ending a live command takes 11 at most."""
_RECOVERED: Final = (
    "The sandbox was lost during this call, and has been started again. Whether the call had an effect is not known. "
    "Files of the workspace, the home directory and /tmp are as they were, others may be gone. Processes have ended, "
    "and the shell is in its first directory, with its first variables."
)
_LOST: Final = "the sandbox is lost: "
_MOST_RECOVERIES: Final = 2
"""If a sandbox is lost more often, the machine has failed, which is not the model's concern."""


@final
class AgentSandbox(BackendSandbox[AgentSlot]):
    """A sandbox behind an agent. Made by `AgentBackend.open`."""

    def __init__(self, *, egress_log: EgressLog | None = None, **parts: Unpack[SandboxParts[AgentSlot]]) -> None:
        super().__init__(**parts)
        self._egress_log = egress_log
        self._recovering = asyncio.Lock()
        self._recoveries = 0
        self._is_beyond_recovery = False
        self._processes = AgentProcesses(lambda: self.slot)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The record for the rollout; with an allowlist it includes the requests to the proxy so far."""
        # A shared host is known only after the sandbox got a seat in it.
        known = self._with_limits({**self._provenance, **self._host.provenance})
        if self._server is not None and not self._server.exclusive:
            known["shared"] = True
        if self._server is not None and self._server.expired:
            known["expired"] = self._server.expired
        return known if self._egress_log is None else {**known, "egress": self._egress_log.to_json()}

    @property
    def egress_log(self) -> EgressLog | None:
        """The requests to the proxy and the decisions about them; None without an allowlist."""
        return self._egress_log

    @property
    def processes(self) -> AgentProcesses:
        """The background processes of the sandbox."""
        return self._processes

    async def exec(
        self,
        command: str,
        *,
        timeout: float | None = None,
        stdin: bytes | str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        merge_stderr: bool = False,
        execution_id: str | None = None,
    ) -> ExecResult:
        """Run a bash command in the session; commands of one session run one after another.

        A call with the `execution_id` of an earlier one (the last 64 are known) runs nothing and returns its result.

        Raises:
            ValueError: The command, its input, its variables or the timeout are not valid.
            SandboxLostError: The agent was lost.
        """
        text = encode_text(command, "a command")
        given = stdin.encode() if isinstance(stdin, str) else stdin
        body = text + (given or b"")
        require_fits(body, "a command and its input")
        seconds = check_timeout(self._spec.timeout if timeout is None else timeout)
        header = {
            "op": "exec",
            "command": len(text),
            "stdin": bool(given),
            "timeout": seconds,
            "limit": self._spec.output_limit,
            "cwd": None if cwd is None else check_path(cwd),
            "env": check_variables(env or {}),
            "merge_stderr": merge_stderr,
            "execution": execution_id,
        }
        async with self._turn:
            try:
                answer, output = await self.slot.request(header, body, deadline=seconds + _MARGIN)
            except OSError as error:
                raise BackendError(f"the command could not be started: {error}") from error
        return self._result(answer, output)

    def _result(self, answer: Mapping[str, Any], output: bytes) -> ExecResult:
        if answer["survivors"]:
            self.slot.fail(f"{answer['survivors']} processes of a stopped command cannot be killed")
            raise SandboxLostError("processes of a stopped command cannot be killed", hint="renew or close the sandbox")
        streams = []
        start = omitted = 0
        for head, tail, total in answer["streams"]:
            middle, missing = start + head, total - head - tail
            streams.append(join_ends(output[start:middle], output[middle : middle + tail], missing))
            start, omitted = middle + tail, omitted + missing
        return ExecResult(
            exit_code=answer["exit_code"],
            stdout=streams[0],
            stderr=b"".join(streams[1:]),
            output=decode_streams(*streams),
            timed_out=answer["timed_out"],
            truncated=omitted > 0,
            omitted_bytes=omitted,
            seconds=answer["seconds"],
        )

    async def read_file(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes of a file, or a range of them, checked against the hash taken in the sandbox.

        Raises:
            OSError: Among others EFBIG, for a large file without a `length`: all of it would be held in memory.
        """
        check_range(offset, length)
        header = {"op": "read", "path": check_path(path), "offset": offset, "length": length, "limit": _READ_AT_ONCE}
        return await _about(path, self.slot.download(header, _READ_AT_ONCE if length is None else length))

    async def write_file(self, path: str, data: bytes | str, *, mode: int | None = None) -> None:
        """Replace a file's content atomically, creating parent directories."""
        content = data.encode() if isinstance(data, str) else data
        await _about(path, self.slot.upload({"op": "write", "path": check_path(path), "mode": mode}, content))

    async def stat(self, path: str) -> FileStat:
        """Describe what a path points to."""
        answer, _ = await _about(path, self.slot.request({"op": "stat", "path": check_path(path)}))
        return FileStat(**{**answer, "path": path})

    async def list_dir(self, path: str = ".") -> list[FileStat]:
        """Describe the entries of a directory, sorted by name."""
        _, batches = await _about(path, self.slot.collect({"op": "list", "path": check_path(path)}))
        return await in_turns(lambda entry: FileStat(**entry), chain.from_iterable(batches))

    async def remove(self, path: str) -> None:
        """Delete a file, a symlink or a whole directory."""
        await _about(path, self.slot.request({"op": "remove", "path": check_path(path)}))

    async def upload(self, source: Path, path: str) -> Transfer:
        """Copy a file or a whole directory of this machine into the sandbox; `omitted` lists entries of other kinds.

        An existing file is replaced after the new one is complete, and gets its mode.
        """
        return await transfers.upload(self.slot, Path(source), check_path(path))

    async def download(self, path: str, target: Path, *, max_bytes: int | None = None) -> Transfer:
        """Copy a file or a whole directory out of the sandbox; a symlink at `target` is replaced, not followed."""
        return await transfers.download(self.slot, check_path(path), Path(target), max_bytes=max_bytes)

    async def archive(
        self, paths: Sequence[str], target: Path, *, max_bytes: int | None = None, max_entries: int | None = None
    ) -> Transfer:
        """Write files and directories of the sandbox to a .tar.gz of this machine.

        Symlinks stay symlinks. Members have the names in `paths`, without a leading `/` or `..`. A missing path
        is an omission, as is each entry beyond a limit; `max_bytes` counts content before compression.
        """
        wanted = [check_path(path) for path in paths]
        return await transfers.archive(self.slot, wanted, Path(target), max_bytes=max_bytes, max_entries=max_entries)

    @property
    def slot(self) -> AgentSlot:
        """The slot that serves it; another one after every renewal. Raises `SandboxLostError` when it is closed."""
        return self._require_server()

    @property
    def recoveries(self) -> int:
        """How often it was restarted after a loss."""
        return self._recoveries

    async def recover(self, recoveries: int) -> str | None:
        """Start a new agent if this one was lost while the files were kept; return what to tell the model.

        Returns None if that is not possible, if it ended by its lifetime, or if it is not lost. `recoveries` is
        the count before the lost call: of several callers only the first one restarts it.
        """
        async with self._recovering:
            if self._recoveries == recoveries and not await self._start_again():
                return None
        return _RECOVERED

    async def _start_again(self) -> bool:
        """Start a new agent for a lost one; tell whether that succeeded."""
        slot = self._server
        if slot is None or self._closing is not None or slot.expired or (loss := slot.lost) is None:
            return False
        if not self._host.is_recoverable or self._is_beyond_recovery or self._recoveries >= _MOST_RECOVERIES:
            return False
        self._is_beyond_recovery = True
        try:
            await self._renew(loss.removeprefix(_LOST))
        except (BackendError, OSError) as problem:
            _logger.info("sandbox %s is lost and cannot be restarted: %s", self._id, problem)
        finally:
            # Also if the caller was cancelled meanwhile.
            is_alive = self._server is not None and self._server.lost is None
            self._recoveries += is_alive
            self._is_beyond_recovery = not is_alive
        return is_alive

    async def take_changes(self, source: Sandbox, path: str, *, kept: Iterable[str] = ()) -> str:
        """Copy an absolute path from another sandbox of the same image; see `changes.take_changes`."""
        found = await take_changes(self, source, path, kept=kept)
        if path == "/":
            # Read by verifiers, which otherwise search no folder that a model could have written to.
            self._provenance["has_own_programs"] = True
        return found

    async def _end(self, server: AgentSlot) -> None:
        # A slot of a shared agent is closed by its host, which must know the result.
        if server.exclusive:
            await server.aclose()


async def _about(path: str, work: Awaitable[T]) -> T:
    try:
        return await work
    except OSError as error:
        # The caller's path; the constructor picks the subclass for the number.
        raise OSError(error.errno, error.strerror, path) from None
