"""Tools that run in another process: at a tool server, or in the sandboxes of a tool executor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import aiohttp

from hermes_core.contracts.errors import BackendError, ConfigError
from hermes_core.redaction import redact_address
from hermes_tools.agent_tools import Tool, ToolCall, ToolResult, ToolSchema, clamp_timeout

_TIMEOUT: Final = 120.0
_MARGIN: Final = 5.0
_PATIENCE: Final = 600.0
"""Seconds that a call to an executor may wait for a sandbox; the executor's own limit is shorter."""
_ERRORS: Final = (aiohttp.ClientError, OSError, TimeoutError, ValueError)


class ToolServerClient:
    """A client of one tool server; create it on the event loop that uses it."""

    what: ClassVar[str] = "tool server"
    field: ClassVar[str] = "tool_server"

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._session: aiohttp.ClientSession | None = None

    async def tools(self) -> list[RemoteTool]:
        """List the server's tools; raise `ConfigError` if it does not answer as a tool server."""
        try:
            answer = await self._ask("GET", "/tools", None, _TIMEOUT)
            listed = answer.get("tools", []) if isinstance(answer, Mapping) else answer
            return [RemoteTool(self, _schema(entry)) for entry in listed]
        except (*_ERRORS, KeyError, TypeError, AttributeError) as error:
            where = redact_address(self._url)
            raise ConfigError(
                f"{self.field}_url: expected a {self.what} at {where}, got for GET /tools: {_brief(error)}",
                hint=f"start it, set {self.field}_token, or remove {self.field}_url",
            ) from error

    async def execute(self, call: ToolCall, trajectory_id: str, timeout: float = _TIMEOUT, **about: str) -> ToolResult:
        """Run a tool on the server; failures are in the result, and no request is repeated.

        `about` is further context for the tool: slot_id, container_addr, task_id.
        """
        tool = {"name": call.name, "arguments": dict(call.arguments), "uniq_id": call.uniq_id}
        body = {"trajectory_id": trajectory_id, "tool": tool, "timeout_s": timeout, **about}
        try:
            return _result(await self._ask("POST", "/execute", body, timeout + _MARGIN))
        except (*_ERRORS, KeyError, TypeError, AttributeError) as error:
            return ToolResult(success=False, error=f"the tool server could not run {call.name}: {_brief(error)}")

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _ask(self, method: str, path: str, body: Any, timeout: float) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers)
        limit = aiohttp.ClientTimeout(total=timeout)
        async with self._session.request(method, self._url + path, json=body, timeout=limit) as response:
            text = await response.text()
            if response.status != 200:
                raise ValueError(f"status {response.status}: {text[:200]}")
            return json.loads(text)


class TrajectoryToolClient(ToolServerClient):
    """A client of a tool executor, which runs tools in a sandbox per trajectory.

    `timeout` is the timeout in seconds of a call without one. A failure of the executor itself raises `BackendError`,
    because it is not the model's fault.
    """

    what: ClassVar[str] = "tool executor"
    field: ClassVar[str] = "tool_executor"

    def __init__(self, url: str, token: str | None = None, *, timeout: float = _TIMEOUT) -> None:
        super().__init__(url, token)
        self._timeout = timeout

    async def execute(
        self, call: ToolCall, trajectory_id: str, timeout: float | None = None, **about: str
    ) -> ToolResult:
        """Run a tool in a trajectory's sandbox; the first call opens it."""
        seconds = clamp_timeout(call.arguments.get("timeout") if timeout is None else timeout) or self._timeout
        tool = {"name": call.name, "arguments": dict(call.arguments), "uniq_id": call.uniq_id}
        body = {"trajectory_id": trajectory_id, "tool": tool, "timeout_s": seconds, **about}
        answer = await self._had("/execute", body, seconds + _PATIENCE)
        return _result(answer)

    async def release(self, trajectory_id: str) -> None:
        """Close a trajectory's sandbox."""
        await self._had("/release", {"trajectory_id": trajectory_id, "reset_workspace": True}, _PATIENCE)

    async def _had(self, path: str, body: Mapping[str, Any], limit: float) -> Any:
        try:
            return await self._ask("POST", path, body, limit)
        except _ERRORS as error:
            raise BackendError(f"the tool executor could not do POST {path}: {_brief(error)}") from error


class RemoteTool(Tool):
    """A tool of a tool server or tool executor."""

    def __init__(self, client: ToolServerClient, schema: ToolSchema) -> None:
        self._client = client
        self._schema = schema

    @property
    def schema(self) -> ToolSchema:
        """Return the server's own description."""
        return self._schema

    async def execute(self, trajectory_id: str = "", **arguments: Any) -> ToolResult:
        """Run the tool on the server."""
        return await self._client.execute(ToolCall(self._schema.name, arguments), trajectory_id)


def _schema(entry: Mapping[str, Any]) -> ToolSchema:
    function = entry.get("function", entry)
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    return ToolSchema(function["name"], function.get("description") or "", parameters, external=True)


def _result(answer: Mapping[str, Any]) -> ToolResult:
    return ToolResult(
        success=bool(answer["success"]),
        output=str(answer.get("output") or ""),
        error=answer.get("error"),
        metadata=answer.get("metadata") or {},
    )


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
