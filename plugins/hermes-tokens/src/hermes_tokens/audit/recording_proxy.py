"""A reverse proxy in front of a model server that forwards bytes unchanged and logs each exchange.

It makes a run's exactness checkable by others: the log is made from the wire, independently of the run.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web
from yarl import URL

from hermes_core.contracts.errors import OutputError
from hermes_models import ServerAddress, serve_application
from hermes_tokens.audit.wire_log import Exchange, aborted_ids, request_id

# These headers belong to one connection, and there are two here (RFC 9110, 7.6.1); lengths and hosts are set again.
_OF_ONE_CONNECTION: Final = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade", "host",
    }
)  # fmt: skip
_LARGEST_REQUEST: Final = 256 * 2**20
_LARGE_BODY: Final = 2**20
_CONNECT_TIMEOUT: Final = 10.0
_KEEPALIVE: Final = 4.0


class RecordingProxy:
    """Forwards every request to `upstream` and appends a line to `log` for each request that sampled.

    A line is on disk before the client has the end of the answer. A client that disconnects ends the request upstream.
    """

    def __init__(self, upstream: str, log: Path) -> None:
        self._address = ServerAddress.parse_root(upstream, "the protocol of the run")
        self._log = log
        self._order = asyncio.Lock()
        self._writes: set[asyncio.Task[None]] = set()
        self._sampling: dict[str, Exchange] = {}
        self._session: aiohttp.ClientSession | None = None
        try:
            log.open("ab").close()
        except OSError as error:
            raise OutputError(
                f"expected a log file that can be appended to, got {log}: {error}", hint="--log FILE"
            ) from error

    def application(self) -> web.Application:
        """Return the application, which owns its connections to the server."""
        application = web.Application(client_max_size=_LARGEST_REQUEST)
        application.router.add_route("*", "/{path:.*}", self._forward)
        application.cleanup_ctx.append(self._client_session)
        return application

    async def _client_session(self, _application: web.Application) -> AsyncIterator[None]:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )
        yield
        await self._session.close()
        if self._writes:
            await asyncio.wait(self._writes)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self._mark_aborted(aborted_ids(request.path, body))
        exchange = Exchange(method=request.method, path=request.path, headers=request.headers, request=body)
        key = request_id(request.headers, {})
        self._sampling[key] = exchange
        try:
            return await self._exchange(request, body, exchange)
        except (asyncio.CancelledError, ConnectionError):
            # The client disconnected; aiohttp raises one or the other, depending on what it was doing.
            exchange.aborted = True
            if not exchange.logged:
                self._write(exchange)
            raise
        finally:
            if self._sampling.get(key) is exchange:
                del self._sampling[key]

    async def _exchange(self, request: web.Request, body: bytes, exchange: Exchange) -> web.StreamResponse:
        assert self._session is not None  # set when the application starts
        headers = [pair for pair in _end_to_end_headers(request.headers) if pair[0].lower() != "content-length"]
        if self._address.authorization is not None and "Authorization" not in request.headers:
            headers.append(("Authorization", self._address.authorization))
        data = io.BytesIO(body) if len(body) > _LARGE_BODY else body or None
        try:
            upstream = await self._session.request(
                request.method, self._target(request), data=data, headers=headers, allow_redirects=False
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            exchange.status = 502
            await self._ensure_logged(exchange)
            message = f"the recorded server {self._address.shown} cannot be reached: {type(error).__name__}"
            return web.json_response({"error": {"message": message, "code": 502}}, status=502)
        async with upstream:
            return await self._pass_on(request, upstream, exchange)

    async def _pass_on(
        self, request: web.Request, upstream: aiohttp.ClientResponse, exchange: Exchange
    ) -> web.StreamResponse:
        exchange.status, exchange.encoding = upstream.status, upstream.headers.get("Content-Encoding", "")
        response = web.StreamResponse(
            status=upstream.status, reason=upstream.reason, headers=_end_to_end_headers(upstream.headers)
        )
        await response.prepare(request)
        try:
            async for chunk in upstream.content.iter_any():
                exchange.answer += chunk
                if len(exchange.answer) == upstream.content_length:
                    exchange.complete = True
                    await self._ensure_logged(exchange)  # before the last bytes that the client waits for
                await response.write(chunk)
        except aiohttp.ClientPayloadError:
            # The server broke off in the middle; the proxy does the same, which is the only faithful answer to the
            # client.
            await self._ensure_logged(exchange)
            if request.transport is not None:
                request.transport.close()
            return response
        exchange.complete = True
        await self._ensure_logged(exchange)
        await response.write_eof()
        return response

    def _target(self, request: web.Request) -> URL:
        path, _, query = request.raw_path.partition("?")
        own = self._address.query.removeprefix("?")
        joined = "&".join(part for part in (query, own) if part)
        return URL(f"{self._address.shown}{path}{'?' if joined else ''}{joined}", encoded=True)

    def _mark_aborted(self, ids: Iterable[str]) -> None:
        for one in ids:
            if one and one in self._sampling:
                self._sampling[one].aborted = True

    async def _ensure_logged(self, exchange: Exchange) -> None:
        if not exchange.logged:
            await asyncio.shield(self._write(exchange))

    def _write(self, exchange: Exchange) -> asyncio.Task[None]:
        exchange.logged = True
        task = asyncio.create_task(self._append(exchange))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return task

    async def _append(self, exchange: Exchange) -> None:
        async with self._order:
            await asyncio.to_thread(_append, self._log, exchange)


@asynccontextmanager
async def recording(proxy: RecordingProxy, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Listen while the block runs and yield the root URL."""
    async with serve_application(proxy.application(), host=host, port=port) as root:
        yield root


def _append(log: Path, exchange: Exchange) -> None:
    lines = exchange.lines()
    if not lines:
        return
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    with log.open("a", encoding="utf-8") as file:
        file.write(text)


def _end_to_end_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    named = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    return [(name, value) for name, value in headers.items() if name.lower() not in _OF_ONE_CONNECTION | named]
