"""The tool server over HTTP, with hermes-agent's routes."""

from __future__ import annotations

from typing import Final, final

from aiohttp import web

from hermes_core import __version__
from hermes_tool_services import wire
from hermes_tool_services.tool_server import openapi
from hermes_tool_services.tool_server.server import ToolServer
from hermes_tool_services.web import answer, application, read_payload

NAME: Final = "hermes tool server"


@final
class ToolServerService:
    """Serves one tool server, which it does not own."""

    def __init__(self, server: ToolServer, *, token: str | None = None) -> None:
        self._server = server
        self._token = token

    def application(self) -> web.Application:
        """Return the application."""
        app = application(self._token)
        app.add_routes(
            [
                web.get("/", self._about),
                web.get("/health", self._health),
                web.get("/tools", self._tools),
                web.get("/openapi.json", self._openapi),
                web.post("/execute", self._execute),
            ]
        )
        return app

    async def _about(self, _request: web.Request) -> web.Response:
        return answer({"service": NAME, "status": "running"})

    async def _health(self, _request: web.Request) -> web.Response:
        return answer({"status": "healthy"})

    async def _tools(self, _request: web.Request) -> web.Response:
        return answer({"tools": [spec.openai_schema() for spec in self._server.specs]})

    async def _openapi(self, _request: web.Request) -> web.Response:
        return answer(openapi.describe(self._server.specs, version=__version__, has_token=self._token is not None))

    async def _execute(self, request: web.Request) -> web.Response:
        asked = await read_payload(request, wire.ToolServerExecuteRequest)
        about = {name: value for name in _ABOUT if (value := getattr(asked, name)) is not None}
        result = await self._server.execute(asked.tool.call(), asked.trajectory_id or "", asked.timeout_s, **about)
        return answer(wire.ToolResultPayload.of(result))


_ABOUT: Final = ("slot_id", "container_addr", "task_id")
