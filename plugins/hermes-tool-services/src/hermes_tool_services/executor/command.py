"""`hermes-core tool-executor serve`: run calls of many trajectories over HTTP, each in its own sandbox."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_tool_services.settings import ExecutorSettings

_EPILOG = """\
environment:
  TOOL_EXECUTOR_TOKEN      bearer token that clients must send; required unless only this machine can connect
  TOOL_EXECUTOR_…          NOMAD_ADDRESS, JOB_ID, SLOTS, MIN_CONTAINERS, MAX_CONTAINERS, PRIVILEGED,
                           ACQUIRE_TIMEOUT_S and PURGE_JOB_ON_SHUTDOWN select backend nomad; IMAGE, BATCH_WINDOW_MS,
                           MAX_BATCH_SIZE, ALLOW_NETWORK, REQUIRE_SANDBOX, REQUIRE_STATEFUL_SANDBOX,
                           TOOL_SERVER_URL, TOOL_SERVER_TOKEN
"""


class ToolExecutorCommand:
    """The subcommand; the service is imported only when it runs."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.description = "Serve tool calls of many trajectories, each in its own sandbox."
        parser.epilog = _EPILOG
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        serve = commands.add_parser("serve", help="listen until interrupted", epilog=_EPILOG)
        serve.formatter_class = argparse.RawDescriptionHelpFormatter
        serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
        serve.add_argument("--port", type=int, default=9001, help="port; 0 takes a free port (default: %(default)s)")
        names = ("--terminal-backend", "--backend")
        serve.add_argument(*names, dest="backend", metavar="NAME", help="backend of the sandboxes (local)")
        serve.add_argument("--backend-options", metavar="JSON", default="{}", help="the backend's options")
        serve.add_argument(
            "--sandbox", metavar="JSON", default="{}", help="fields of every sandbox: image, memory_mb, …"
        )
        serve.add_argument("--lease-dir", type=Path, metavar="DIR", help="directory of the leases")
        serve.add_argument("--no-network", action="store_true", help="give commands no network")
        serve.add_argument("--require-sandbox", action="store_true", help="do not start without isolation")
        serve.add_argument(
            "--default-timeout", type=float, metavar="SECONDS", help="timeout of a call without one (30)"
        )
        serve.add_argument(
            "--idle-timeout",
            type=float,
            metavar="SECONDS",
            help="release a trajectory after this time without calls (3600)",
        )
        serve.add_argument(
            "--tool-server-url",
            metavar="URL",
            help="tool server for external tools; inprocess: run them in this process",
        )
        serve.add_argument(
            "--purge", action="store_true", help="at the end also remove leftovers of killed processes on the backend"
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Serve until SIGINT or SIGTERM."""
        from hermes_tool_services.settings import executor_settings
        from hermes_tool_services.web import require_token

        config: dict[str, Any] = {}
        if arguments.no_network:
            config["allow_network"] = False
        if arguments.require_sandbox:
            config["require_sandbox"] = True
        given = {
            "tool_server_url": arguments.tool_server_url,
            "default_timeout_s": arguments.default_timeout,
            "idle_timeout_s": arguments.idle_timeout,
        }
        config |= {name: value for name, value in given.items() if value is not None}
        settings = executor_settings(
            os.environ,
            backend=arguments.backend,
            backend_options=arguments.backend_options,
            sandbox=arguments.sandbox,
            config=config,
        )
        require_token(arguments.host, settings.token, "TOOL_EXECUTOR_TOKEN")
        asyncio.run(_serve(settings, arguments))
        return 0


async def _serve(settings: ExecutorSettings, arguments: argparse.Namespace) -> None:
    from hermes_core.discovery import load_plugins
    from hermes_core.rollout import supply_lease_store
    from hermes_models import serve_application, serve_until_stopped
    from hermes_tool_services.executor.executor import ToolExecutor
    from hermes_tool_services.executor.service import ExecutorService

    registry = load_plugins(arguments.plugin_settings)
    name, directory = settings.backend.name, arguments.lease_dir
    backend = registry.create("backend", name, settings.backend.options)
    _warn(settings)
    options = None if directory is None else {"directory": directory}
    executor = ToolExecutor(backend, config=settings.config, spec=settings.spec, registry=registry)
    host, port = arguments.host, arguments.port
    try:
        supply_lease_store(backend, registry, name, options=options)
        async with executor:
            application = ExecutorService(executor, token=settings.token).application()
            await serve_until_stopped(serve_application(application, host=host, port=port), host=host, port=port)
    finally:
        await _end(backend, settings.config.close_timeout_s, purge=arguments.purge)


async def _end(backend: Any, limit: float, *, purge: bool) -> None:
    from hermes_core.contracts.errors import BackendError
    from hermes_tool_services.executor.sandbox_tools import sweep

    try:
        async with asyncio.timeout(limit):
            try:
                if purge:
                    await sweep(backend)
            finally:
                await backend.aclose()
    except TimeoutError as error:
        raise BackendError(
            f"the backend could not be closed within {limit:g} s", hint="hermes-core sandboxes gc removes the rest"
        ) from error


def _warn(settings: ExecutorSettings) -> None:
    if settings.token is None:
        sys.stderr.write(
            "no token: every process of this machine can call this service, including commands in sandboxes that "
            "share its network\n  → export TOOL_EXECUTOR_TOKEN=…\n"
        )
