"""A sandbox of an image without Python: commands and files, through a POSIX shell."""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn, Unpack, final

from hermes_core.contracts.errors import SandboxLacksError, SandboxRefusedError
from hermes_core.contracts.sandbox import ExecResult, FileStat, Processes, Sandbox, SandboxSpec, Transfer
from hermes_sandbox.backend.backend_sandbox import BackendSandbox, SandboxParts
from hermes_sandbox.posix_shell.client import Captured, Ran, ShellClient
from hermes_sandbox.posix_shell.files import PlainFiles
from hermes_sandbox.posix_shell.scripts import session_script
from hermes_sandbox.protocol.client import require_fits
from hermes_sandbox.protocol.output import decode_streams, join_ends
from hermes_sandbox.protocol.validation import check_path, check_range, check_timeout, check_variables, encode_text

_HINT: Final = "install python3 in the image"
_FILE_SECONDS: Final = 60.0
_FILE_LIMIT: Final = 8 << 20
"""Bytes of one answer about files; a listing is one answer."""
_KNOWN: Final = 64
"""Executions whose results are remembered."""


def refuse_without_agent(spec: SandboxSpec, why: str) -> None:
    """Raise `SandboxRefusedError` for requirements that need an agent; `why` says why there is none."""
    wanted = (
        "session 'live'" if spec.session == "live" else "network 'allowlist'" if spec.network == "allowlist" else ""
    )
    if wanted:
        raise SandboxRefusedError(f"{wanted} needs Python in the sandbox: {why}", hint=_HINT)


@final
class ShellSandbox(BackendSandbox[ShellClient]):
    """A sandbox behind a shell. Made by `AgentBackend.open`.

    The session keeps its directory and its exported variables. Commands are those of the image's own `sh`.
    """

    def __init__(self, *, first_state: bytes, **parts: Unpack[SandboxParts[ShellClient]]) -> None:
        super().__init__(**parts)
        self._first_state = first_state
        self._executions: dict[str, asyncio.Future[ExecResult]] = {}
        self._files = PlainFiles(self._run_about_files, self.workspace)

    @property
    def processes(self) -> Processes:
        """Refused: they need an agent."""
        self._lack("background processes and terminals")

    def _lack(self, what: str) -> NoReturn:
        raise SandboxLacksError(f"{what} need Python in the sandbox, and this one is served by sh", hint=_HINT)

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
        """Run a command of the image's sh; commands of one session run one after another.

        Raises:
            ValueError: The command, its input, its variables or the timeout are not valid.
            SandboxLostError: The shell was lost.
        """
        text = encode_text(command, "a command")
        given = (stdin.encode() if isinstance(stdin, str) else stdin) or b""
        require_fits(text + given, "a command and its input")
        seconds = check_timeout(self._spec.timeout if timeout is None else timeout)
        script = session_script(
            text,
            folder=f"{self._require_server().folder}/u",
            workspace=self.workspace,
            first=self._first_state,
            cwd=None if cwd is None else posixpath.join(self.workspace, check_path(cwd)),
            variables=check_variables(env or {}),
            merge_stderr=merge_stderr,
        )
        if execution_id is None:
            return await self._exec(script, given, seconds, merge_stderr=merge_stderr)
        return await self._exec_once(
            execution_id, lambda: self._exec(script, given, seconds, merge_stderr=merge_stderr)
        )

    async def _exec_once(self, execution_id: str, work: Callable[[], Awaitable[ExecResult]]) -> ExecResult:
        known = self._executions.get(execution_id)
        if known is not None:
            return await asyncio.shield(known)
        result: asyncio.Future[ExecResult] = asyncio.get_running_loop().create_future()
        self._executions[execution_id] = result
        result.add_done_callback(lambda future: future.cancelled() or future.exception())
        while len(self._executions) > _KNOWN:
            del self._executions[next(iter(self._executions))]
        try:
            result.set_result(await work())
        except BaseException as error:
            self._executions.pop(execution_id, None)
            if isinstance(error, asyncio.CancelledError):
                result.cancel()
            else:
                result.set_exception(error)
            raise
        return result.result()

    async def _exec(self, script: bytes, stdin: bytes, seconds: float, *, merge_stderr: bool) -> ExecResult:
        async with self._turn:
            started = time.perf_counter()
            shell = self._require_server()
            ran, stopped = await shell.run(script, stdin, limit=self._spec.output_limit, deadline=seconds)
        stdout, stderr = _join(ran.out), _join(ran.err)
        if merge_stderr:
            # Only a command that could not begin writes there, such as su.
            stdout, stderr = stderr + stdout, b""
        omitted = ran.out.omitted + ran.err.omitted
        return ExecResult(
            exit_code=124 if stopped else ran.code,
            stdout=stdout,
            stderr=stderr,
            output=decode_streams(stdout, stderr),
            timed_out=stopped,
            truncated=omitted > 0,
            omitted_bytes=omitted,
            seconds=time.perf_counter() - started,
        )

    async def _run_about_files(self, script: bytes, stdin: bytes) -> Ran:
        ran, stopped = await self._require_server().run(script, stdin, limit=_FILE_LIMIT, deadline=_FILE_SECONDS)
        if stopped:
            raise TimeoutError(f"no answer about a file within {_FILE_SECONDS:g} s")
        return ran

    async def read_file(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes of a file, or a range of them."""
        check_range(offset, length)
        return await self._files.read(check_path(path), offset, length)

    async def write_file(self, path: str, data: bytes | str, *, mode: int | None = None) -> None:
        """Replace a file's content atomically, creating parent directories."""
        await self._files.write(check_path(path), data.encode() if isinstance(data, str) else data, mode)

    async def stat(self, path: str) -> FileStat:
        """Describe what a path points to; times are whole seconds."""
        return await self._files.stat(check_path(path))

    async def list_dir(self, path: str = ".") -> list[FileStat]:
        """Describe the entries of a directory, sorted by name."""
        return await self._files.list_dir(check_path(path))

    async def remove(self, path: str) -> None:
        """Delete a file, a symlink or a whole directory."""
        await self._files.remove(check_path(path))

    async def upload(self, source: Path, path: str) -> Transfer:
        """Refused: see `write_file`."""
        del source, path
        self._lack("uploads of files and directories")

    async def download(self, path: str, target: Path, *, max_bytes: int | None = None) -> Transfer:
        """Refused: see `read_file`."""
        del path, target, max_bytes
        self._lack("downloads of files and directories")

    async def archive(
        self, paths: Sequence[str], target: Path, *, max_bytes: int | None = None, max_entries: int | None = None
    ) -> Transfer:
        """Refused: see `read_file`."""
        del paths, target, max_bytes, max_entries
        self._lack("archives")

    async def take_changes(self, source: Sandbox, path: str, *, kept: Iterable[str] = ()) -> str:
        """Refused: it would need uploads."""
        del source, path, kept
        self._lack("changes of another sandbox, which is judged in this one,")

    async def _restart(self, server: ShellClient) -> None:
        self._executions = {}
        await super()._restart(server)

    async def freeze(self) -> None:
        """Refused: only an agent can protect a workspace from the commands' user."""
        raise SandboxRefusedError(
            "a workspace without Python in its sandbox cannot be made read-only",
            hint=f"{_HINT}, or verify in a fresh sandbox",
        )

    async def _close(self) -> None:
        if self._server is not None:
            # Waiting for a kill's answer from a shell that gives none would hold the turn for a minute.
            self._server.fail("it was closed")
        await super()._close()


def _join(found: Captured) -> bytes:
    return join_ends(found.head, found.tail, found.omitted)
