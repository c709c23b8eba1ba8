"""The tool executor over HTTP, with hermes-agent's routes."""

from __future__ import annotations

from typing import Any, Final, final

from aiohttp import web

from hermes_tool_services import wire
from hermes_tool_services.executor.executor import ToolExecutor
from hermes_tool_services.web import answer, application, read_payload

NAME: Final = "hermes tool executor"


@final
class ExecutorService:
    """Serves one executor, which it does not own."""

    def __init__(self, executor: ToolExecutor, *, token: str | None = None) -> None:
        self._executor = executor
        self._token = token

    def application(self) -> web.Application:
        """Return the application."""
        app = application(self._token)
        app.add_routes(
            [
                web.get("/", self._about),
                web.get("/health", self._health),
                web.get("/status", self._status),
                web.get("/tools", self._tools),
                web.post("/execute", self._execute),
                web.post("/release", self._release),
                web.post("/artifacts/read", self._read),
                web.post("/artifacts/list", self._list),
                web.post("/artifacts/archive", self._archive),
            ]
        )
        return app

    async def _about(self, _request: web.Request) -> web.Response:
        return answer({"service": NAME, "status": "running"})

    async def _health(self, _request: web.Request) -> web.Response:
        return answer({"status": "healthy"})

    async def _status(self, _request: web.Request) -> web.Response:
        return answer(self._executor.status())

    async def _tools(self, _request: web.Request) -> web.Response:
        return answer({"tools": [_openai_schema(schema) for schema in self._executor.schemas()]})

    async def _execute(self, request: web.Request) -> web.Response:
        asked = await read_payload(request, wire.ToolExecutorExecuteRequest)
        result = await self._executor.execute(
            asked.trajectory_id, asked.tool.call(), asked.timeout_s, execution_id=asked.execution_id
        )
        return answer(wire.ToolResultPayload.of(result))

    async def _release(self, request: web.Request) -> web.Response:
        asked = await read_payload(request, wire.ToolExecutorReleaseRequest)
        await self._executor.release_trajectory(asked.trajectory_id, asked.reset_workspace)
        return answer({"status": "released", "trajectory_id": asked.trajectory_id})

    async def _read(self, request: web.Request) -> web.Response:
        asked = await read_payload(request, wire.ArtifactReadRequestPayload)
        return answer(await self._executor.read_artifact(asked))

    async def _list(self, request: web.Request) -> web.Response:
        asked = await read_payload(request, wire.ArtifactListRequestPayload)
        return answer(await self._executor.list_artifacts(asked))

    async def _archive(self, request: web.Request) -> web.Response:
        asked = await read_payload(request, wire.ArtifactArchiveRequestPayload)
        return answer(await self._executor.archive_artifacts(asked))


def _openai_schema(schema: Any) -> dict[str, Any]:
    function = {"name": schema.name, "description": schema.description, "parameters": schema.json_schema()}
    return {"type": "function", "function": function}
