"""`hermes-core record`: a proxy in front of a model server that logs every exchange, to check a run later."""

from __future__ import annotations

import argparse


class RecordCommand:
    """The command `record`."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.description = (
            "Forward requests to a model server (vLLM, SGLang, Atropos or OpenAI chat) unchanged, and append a line of "
            "JSON per completion: prompt ids, sampling parameters, sampled ids, logprobs, finish reason, status. Until "
            "interrupted."
        )
        parser.add_argument("--upstream", required=True, metavar="URL", help="the base URL of the model server")
        parser.add_argument("--log", required=True, metavar="FILE", help="the JSON Lines file to append to")
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
        parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free port")

    def run(self, arguments: argparse.Namespace) -> int:
        """Forward until SIGINT or SIGTERM."""
        import asyncio

        asyncio.run(_record(arguments.upstream, arguments.log, arguments.host, arguments.port))
        return 0


async def _record(upstream: str, log: str, host: str, port: int) -> None:
    from pathlib import Path

    from hermes_models import serve_until_stopped
    from hermes_tokens.audit.recording_proxy import RecordingProxy, recording

    await serve_until_stopped(
        recording(RecordingProxy(upstream, Path(log)), host=host, port=port), host=host, port=port
    )
