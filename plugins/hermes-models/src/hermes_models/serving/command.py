"""`hermes-core serve-model`: an embedded model behind an OpenAI-compatible HTTP server."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from hermes_core.contracts.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_core.contracts.model import ModelClient
    from hermes_core.contracts.task import Task


class ServeModelCommand:
    """The command `serve-model`."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.description = "Serve an embedded model as an OpenAI-compatible HTTP server, until interrupted."
        parser.add_argument("model", choices=("oracle", "nop"), help="which model; it is also its name in requests")
        parser.add_argument("--tasks", metavar="FILE", help="the task file whose solutions `oracle` follows")
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
        parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
        parser.add_argument(
            "--mistake-rate",
            type=float,
            default=0.25,
            metavar="RATE",
            help="chance of a mistake (default: %(default)s)",
        )
        parser.add_argument("--seed", type=int, default=0, help="seed of the mistakes")
        parser.add_argument("--api-key-env", metavar="VAR", help="environment variable with the key clients must send")

    def run(self, arguments: argparse.Namespace) -> int:
        """Serve until SIGINT or SIGTERM."""
        import asyncio

        from hermes_models.factory import create_model

        api_key = _api_key(arguments.api_key_env)
        model = create_model(
            arguments.model,
            tasks=_tasks(arguments),
            mistake_rate=arguments.mistake_rate,
            seed=arguments.seed,
        )
        asyncio.run(_serve(model, arguments.model, arguments.host, arguments.port, api_key))
        return 0


def _api_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f"expected an API key in ${variable}, got none", hint=f"export {variable}=…")
    return key


def _tasks(arguments: argparse.Namespace) -> Sequence[Task]:
    if arguments.model != "oracle":
        return ()
    if arguments.tasks is None:
        raise ConfigError("expected a task file for the oracle, got none", hint="--tasks FILE")
    from pathlib import Path

    from hermes_core.discovery import load_plugins, load_tasks

    loaded = load_tasks(Path(arguments.tasks), load_plugins(getattr(arguments, "plugin_settings", None)))
    for problem in loaded.problems:
        sys.stderr.write(f"task skipped: {problem}\n")
    return loaded.tasks


async def _serve(model: ModelClient, name: str, host: str, port: int, api_key: str | None) -> None:
    from hermes_models.serving.server import ChatServer, serving
    from hermes_models.serving.until_stopped import serve_until_stopped

    server = ChatServer(model, model_name=name, api_key=api_key)
    try:
        await serve_until_stopped(serving(server, host=host, port=port), host=host, port=port)
    finally:
        await model.aclose()
