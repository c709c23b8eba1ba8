"""An instant, stateless OpenAI-compatible server in a separate process, so that its CPU time is measured separately.

The turn is read from the request by counting assistant messages in its bytes; nothing is parsed. It speaks just enough
HTTP/1.1 for clients that keep connections alive, and is written on a bare asyncio protocol so as not to be the
bottleneck. `python -m benchmarks.rollouts.mock_server --turns 6 --latency-ms 0` prints `listening on URL` when ready.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MODEL_NAME = "mock"

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
# Compact and spaced JSON; text that looks like this inside a message has its quotes escaped and is not counted.
_ASSISTANT = (b'"role":"assistant"', b'"role": "assistant"')


class Script:
    """The two answers: a tool call until the last turn, then a final message."""

    def __init__(self, *, turns: int, latency: float, tool: str, arguments: str) -> None:
        self.latency = latency
        self.requests = 0
        self._calls = [_answer(_call_message(turn, tool, arguments), "tool_calls") for turn in range(turns - 1)]
        self._final = _answer({"role": "assistant", "content": "Done."}, "stop")
        self._models = _response({"object": "list", "data": [{"id": MODEL_NAME, "object": "model"}]})

    def answer(self, head: bytes, body: bytes) -> tuple[bytes, float]:
        """Return the whole HTTP answer and the seconds to hold it back."""
        if head.startswith(b"GET "):
            return self._models, 0.0
        self.requests += 1
        taken = sum(body.count(mark) for mark in _ASSISTANT)
        return (self._calls[taken] if taken < len(self._calls) else self._final), self.latency


class Connection(asyncio.Protocol):
    """One keep-alive connection; requests on it are answered one after the other."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._buffer = bytearray()
        self._needed = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        """Drop the transport."""
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Collect bytes until a request is complete."""
        self._buffer += data
        while self._buffer and len(self._buffer) >= self._needed:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._buffer[:end])
            length = _LENGTH.search(head)
            self._needed = end + 4 + (int(length[1]) if length else 0)
            if len(self._buffer) < self._needed:
                return
            body = bytes(self._buffer[end + 4 : self._needed])
            del self._buffer[: self._needed]
            self._needed = 0
            self._answer(*self._script.answer(head, body))

    def _answer(self, answer: bytes, seconds: float) -> None:
        if seconds:
            asyncio.get_running_loop().call_later(seconds, self._write, answer)
        else:
            self._write(answer)

    def _write(self, answer: bytes) -> None:
        if self._transport is not None:
            self._transport.write(answer)


def _call_message(turn: int, tool: str, arguments: str) -> dict[str, Any]:
    call = {"id": f"call_{turn}", "type": "function", "function": {"name": tool, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _answer(message: dict[str, Any], finish: str) -> bytes:
    return _response(
        {
            "id": "chatcmpl-0",
            "object": "chat.completion",
            "created": 0,
            "model": MODEL_NAME,
            "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
        }
    )


def _response(value: dict[str, Any]) -> bytes:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def serve(script: Script, *, host: str = "127.0.0.1", port: int = 0) -> None:
    """Serve until SIGINT or SIGTERM."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    server = await loop.create_server(lambda: Connection(script), host, port, backlog=4096)
    print(f"listening on http://{host}:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await stop.wait()
    server.close()


@contextmanager
def running(*, turns: int, latency_ms: float = 0.0, tool: str = "noop", arguments: str = "{}") -> Iterator[str]:
    """Run the server in its own process while the block runs; yields the base URL."""
    command = [sys.executable, "-m", "benchmarks.rollouts.mock_server", "--turns", str(turns)]
    command += ["--latency-ms", str(latency_ms), "--tool", tool, "--arguments", arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("listening on "):
                raise RuntimeError(f"the mock server did not start, it said {line!r}")
            yield line.split()[-1]
        finally:
            process.terminate()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--turns", type=int, default=6, help="model calls per rollout, the final answer included")
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--tool", default="noop", help="name of the tool that is called")
    parser.add_argument("--arguments", default="{}", help="the call's arguments, as JSON text")
    options = parser.parse_args()
    script = Script(
        turns=options.turns, latency=options.latency_ms / 1000, tool=options.tool, arguments=options.arguments
    )
    asyncio.run(serve(script, host=options.host, port=options.port))


if __name__ == "__main__":
    main()
