"""One rollout's handle on its sandbox and on every installed tool."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from hermes_core.contracts.errors import BackendError, ContextUnusableError
from hermes_core.contracts.sandbox import FileStat, Sandbox
from hermes_core.contracts.verifier import Score
from hermes_core.rollout.plugin_calls import transfers
from hermes_core.rollout.plugin_calls.tool_runtime import ToolRuntime
from hermes_core.specs import ToolSpec

VerifyWith = Callable[[str, Mapping[str, Any]], Awaitable[Score]]


class RolloutContext:
    """The asynchronous `ToolContext` (see `hermes_core.contracts.tool`); one per rollout, used on the runtime's loop.

    After the rollout has ended every method raises, so that an abandoned worker thread cannot touch what is gone.
    """

    def __init__(self, runtime: ToolRuntime, *, rollout_id: str, sandbox: Sandbox | None) -> None:
        self.rollout_id = rollout_id
        self.task_id = rollout_id  # hermes-agent's two names for the same key
        self.trajectory_id = rollout_id
        self.state: dict[str, Any] = {}
        self.session_key = ""
        self.verify_with: VerifyWith | None = None
        self._runtime = runtime
        self._sandbox = sandbox
        self._closed = False

    @property
    def sandbox(self) -> Sandbox:
        """The rollout's sandbox."""
        if self._closed:
            raise ContextUnusableError(f"rollout {self.rollout_id} has ended; its context can no longer be used")
        if self._sandbox is None:
            raise BackendError(
                f"rollout {self.rollout_id} has no sandbox", hint="neither its tools nor its verifier declares one"
            )
        return self._sandbox

    @property
    def processes(self) -> Any:
        """The rollout's background processes; new ones get the context's `session_key`."""
        return self.service("processes")

    def service(self, name: str) -> Any:
        """Return this rollout's view of a service that tools keep for the whole runtime."""
        return self._runtime.service(name).for_rollout(self)

    @property
    def sandbox_or_none(self) -> Sandbox | None:
        """The rollout's sandbox, or None if no tool and no verifier declares one."""
        return self._sandbox

    async def terminal(self, command: str, timeout: float = 180) -> dict[str, Any]:
        """Run a command in the rollout's session, without the limits the model's own tool has."""
        result = await self.sandbox.exec(command, timeout=timeout, merge_stderr=True)
        answer: dict[str, Any] = {"exit_code": result.exit_code, "output": result.output, "error": None}
        if result.timed_out:
            answer["error"] = f"Command timed out after {timeout:g} seconds"
        return answer

    async def read_file(self, path: str) -> dict[str, Any]:
        """Call the tool `read_file`."""
        return await self._call("read_file", {"path": path})

    async def write_file(self, path: str, content: str) -> dict[str, Any]:
        """Call the tool `write_file`."""
        return await self._call("write_file", {"path": path, "content": content})

    async def search(self, query: str, path: str = ".") -> dict[str, Any]:
        """Call the tool `search_files` on file contents."""
        return await self._call("search_files", {"pattern": query, "path": path})

    async def web_search(self, query: str) -> dict[str, Any]:
        """Call the tool `web_search`."""
        return await self._call("web_search", {"query": query})

    async def web_extract(self, urls: list[str]) -> dict[str, Any]:
        """Call the tool `web_extract`."""
        return await self._call("web_extract", {"urls": urls})

    async def browser_navigate(self, url: str) -> dict[str, Any]:
        """Call the tool `browser_navigate`."""
        return await self._call("browser_navigate", {"url": url})

    async def browser_snapshot(self) -> dict[str, Any]:
        """Call the tool `browser_snapshot`."""
        return await self._call("browser_snapshot", {})

    def tool_spec(self, tool_name: str) -> ToolSpec:
        """Return the declaration of any installed tool."""
        return self._runtime.tool(tool_name).spec

    async def call_tool(self, tool_name: str, arguments: dict[str, Any]) -> str:
        """Call any installed tool, also one the model was not offered; raises what the tool raises."""
        if self._closed:
            raise ContextUnusableError(f"rollout {self.rollout_id} has ended; its context can no longer be used")
        bound = self._runtime.tool(tool_name)
        prepared = self._runtime.arguments.prepare(bound.spec, json.dumps(arguments))
        return (await bound.invoke(prepared, self)).content

    async def _call(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        raw = await self.call_tool(tool_name, arguments)
        try:
            answer = json.loads(raw)
        except ValueError:
            return {"error": raw}
        return answer if isinstance(answer, dict) else {"error": raw}

    async def upload_file(self, local_path: str, remote_path: str) -> dict[str, Any]:
        """Copy a file into the sandbox, byte for byte, with its permission bits."""
        return await transfers.upload_file(self.sandbox, local_path, remote_path)

    async def upload_dir(self, local_dir: str, remote_dir: str) -> list[dict[str, Any]]:
        """Copy a directory tree into the sandbox; one answer per file or symlink, which stays one."""
        return await transfers.upload_dir(self.sandbox, local_dir, remote_dir)

    async def download_file(self, remote_path: str, local_path: str) -> dict[str, Any]:
        """Copy a file out of the sandbox, byte for byte."""
        return await transfers.download_file(self.sandbox, remote_path, local_path)

    async def download_dir(self, remote_dir: str, local_dir: str) -> list[dict[str, Any]]:
        """Copy a directory tree out of the sandbox; one answer per file or symlink, which stays one."""
        return await transfers.download_dir(self.sandbox, remote_dir, local_dir)

    async def read_bytes(self, path: str) -> bytes:
        """Return a file's bytes."""
        return await self.sandbox.read_file(path)

    async def read_text(self, path: str) -> str:
        """Return a file's text, UTF-8 with replacement."""
        return (await self.sandbox.read_file(path)).decode("utf-8", "replace")

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Replace a file's content."""
        await self.sandbox.write_file(path, data)

    async def exists(self, path: str) -> bool:
        """Tell whether a path exists."""
        try:
            await self.sandbox.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def stat(self, path: str) -> FileStat:
        """Describe a path."""
        return await self.sandbox.stat(path)

    async def list_dir(self, path: str = ".") -> list[FileStat]:
        """Describe the entries of a directory."""
        return await self.sandbox.list_dir(path)

    async def verify(self, name: str, options: Mapping[str, Any] | None = None) -> Score:
        """Score with another verifier by name; only while the rollout is being verified."""
        if self.verify_with is None:
            raise ContextUnusableError("verify() can only be called during verification")
        return await self.verify_with(name, options or {})

    async def cleanup(self) -> None:
        """Release the sandbox; the engine calls this if no other code has. Safe to call twice."""
        if self._closed:
            return
        self.close()
        if self._sandbox is not None:
            await self._runtime.release(self.rollout_id, self._sandbox.id)
            await self._sandbox.aclose()

    def close(self) -> None:
        """Refuse all further calls."""
        self._closed = True
