"""`hermes-core tool-server serve`: serve the external tools of installed plugins, with their secrets, over HTTP."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_tool_services.tool_server.server import ToolServer

_EPILOG = """\
environment:
  TOOL_SERVER_TOKEN             bearer token that clients must send; required unless only this machine can connect
  TOOL_SERVER_MAX_CONCURRENCY   calls at a time (16)
"""


class ToolServerCommand:
    """The subcommand; the service is imported only when it runs."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.description = "Serve the installed tools that act outside the sandbox."
        parser.epilog = _EPILOG
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        serve = commands.add_parser("serve", help="listen until interrupted", epilog=_EPILOG)
        serve.formatter_class = argparse.RawDescriptionHelpFormatter
        serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
        serve.add_argument("--port", type=int, default=9002, help="port; 0 takes a free port (default: %(default)s)")
        serve.add_argument("--max-concurrency", type=int, metavar="N", help="calls at a time")
        serve.add_argument(
            "--default-timeout",
            type=float,
            default=120.0,
            metavar="SECONDS",
            help="timeout of a call without one (120)",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Serve until SIGINT or SIGTERM."""
        import asyncio

        from hermes_tool_services.settings import positive
        from hermes_tool_services.tool_server.server import MAX_CONCURRENCY
        from hermes_tool_services.web import require_token

        token = os.environ.get("TOOL_SERVER_TOKEN", "").strip() or None
        require_token(arguments.host, token, "TOOL_SERVER_TOKEN")
        limit = arguments.max_concurrency
        if limit is None:
            limit = positive(os.environ, "TOOL_SERVER_MAX_CONCURRENCY", MAX_CONCURRENCY)
        asyncio.run(_serve(arguments, token, limit))
        return 0


async def _serve(arguments: argparse.Namespace, token: str | None, max_concurrency: int) -> None:
    from hermes_core.discovery import load_plugins
    from hermes_models import serve_application, serve_until_stopped
    from hermes_tool_services.tool_server.server import ToolServer
    from hermes_tool_services.tool_server.service import ToolServerService

    server = ToolServer(
        load_plugins(arguments.plugin_settings),
        max_concurrency=max_concurrency,
        default_timeout_s=arguments.default_timeout,
    )
    _tell(server)
    host, port = arguments.host, arguments.port
    try:
        application = ToolServerService(server, token=token).application()
        await serve_until_stopped(serve_application(application, host=host, port=port), host=host, port=port)
    finally:
        await server.aclose()


def _tell(server: ToolServer) -> None:
    names = ", ".join(spec.name for spec in server.specs)
    sys.stderr.write(f"tools: {names}\n" if names else "no usable external tool is installed\n")
    for name, why in server.unavailable.items():
        sys.stderr.write(f"not available: {name}: {why}\n")
