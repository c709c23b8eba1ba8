"""The few requests to Nomad that this backend makes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from hermes_backend_nomad.address import Address
from hermes_backend_nomad.failures import (
    NomadAccessError,
    NomadAnswerError,
    NomadConnectionsError,
    NomadError,
    NomadSilentError,
    NomadUnreachableError,
)
from hermes_backend_nomad.options import REQUESTS

_SAID: Final = 500
_CLOSING: Final = 1.0
_FORBIDDEN: Final = frozenset({401, 403})
_IDLE: Final = 15.0
"""Seconds for which an idle connection for requests is kept."""
_POLL: Final = 1.0
"""Seconds for which Nomad delays a blocking query until there is a change."""
_LARGEST: Final = 1 << 24
"""Maximum bytes of a frame of `alloc exec`; Nomad sends a few KB."""


class NomadApi:
    """Nomad's HTTP API at one address, with one connection pool that is created on first use.

    Nomad's agent limits the connections of one client (`limits.http_max_conns_per_client`, 100) and breaks off any
    more. `REQUESTS` of them are for requests, which wait for each other; the rest are for programs.

    Args:
        address: The address, with token and TLS.
        timeout: Timeout of a request in seconds.
        max_connections: Maximum number of concurrent connections.
    """

    def __init__(self, address: Address, *, timeout: float, max_connections: int) -> None:
        self.address = address
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None
        self._most_programs = max_connections - REQUESTS
        self._opening = 0
        self._open: set[aiohttp.ClientWebSocketResponse] = set()
        self._requests = asyncio.Semaphore(REQUESTS)

    async def register(self, job: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create a job or replace its description; the answer has the id of the evaluation that places it."""
        return dict(await self._ask("POST", "/v1/jobs", body={"Job": job}))

    async def deregister(self, job_id: str, *, purge: bool) -> None:
        """Stop a job, with `purge` also remove it from Nomad; a missing job is not an error."""
        try:
            await self._ask("DELETE", f"/v1/job/{_part(job_id)}", query={"purge": "true"} if purge else {})
        except NomadAnswerError as error:
            if error.status != 404:
                raise

    async def job(self, job_id: str) -> Mapping[str, Any] | None:
        """Return a job's description, or None if the job does not exist."""
        try:
            return dict(await self._ask("GET", f"/v1/job/{_part(job_id)}"))
        except NomadAnswerError as error:
            if error.status != 404:
                raise
            return None

    async def jobs(self, prefix: str) -> Sequence[Mapping[str, Any]]:
        """Return the jobs whose id starts with the prefix."""
        return list(await self._ask("GET", "/v1/jobs", query={"prefix": prefix}))

    async def evaluations(self, job_id: str) -> Sequence[Mapping[str, Any]]:
        """Return the evaluations of a job, unordered."""
        return list(await self._ask("GET", f"/v1/job/{_part(job_id)}/evaluations"))

    async def allocations(self, job_id: str, *, after: int = 0) -> tuple[Sequence[Mapping[str, Any]], int]:
        """Return all allocations of a job, including old ones, unordered, and the index of the answer.

        With `after`, the index of an earlier answer, Nomad waits up to a second for a change.
        """
        query = {"index": str(after), "wait": f"{_POLL * 1000:.0f}ms"} if after else {}
        found, headers = await self._answer("GET", f"/v1/job/{_part(job_id)}/allocations", query=query)
        index = headers.get("X-Nomad-Index", "")
        return list(found), int(index) if index.isdecimal() else 0

    async def allocation(self, allocation_id: str) -> Mapping[str, Any]:
        """Return one allocation."""
        return dict(await self._ask("GET", f"/v1/allocation/{_part(allocation_id)}"))

    async def exec(self, allocation_id: str, task: str, command: Sequence[str]) -> aiohttp.ClientWebSocketResponse:
        """Start a program in an allocation and return the websocket that carries its streams.

        Raises:
            NomadConnectionsError: The limit of connections is reached.
            NomadAnswerError: Nomad refuses, for example with 404 for an unknown allocation.
        """
        self._open = {websocket for websocket in self._open if not websocket.closed}
        if (used := self._opening + len(self._open)) >= self._most_programs:
            raise NomadConnectionsError(
                f"expected at most {self._most_programs} programs at a time over Nomad at {self.address.url}, "
                f"got {used} that already have a connection",
                hint="use fewer containers with more slots (max_containers, slots_per_container), or raise the option "
                "max_connections and, in the configuration of Nomad's agent, limits.http_max_conns_per_client",
            )
        # Quoted here: URL libraries leave characters such as `&` and `+` unquoted, which breaks the command.
        values = {"task": task, "tty": "false", "command": json.dumps(list(command)), **self.address.query}
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in values.items())
        path = f"/v1/client/allocation/{_part(allocation_id)}/exec"
        what = f"exec in allocation {allocation_id}"
        self._opening += 1
        try:
            async with asyncio.timeout(self._timeout):
                websocket = await self._client().ws_connect(
                    f"{self.address.url}{path}?{query}",
                    timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSING),
                    heartbeat=20.0,
                    max_msg_size=_LARGEST,
                    server_hostname=self.address.server_name,
                    ssl=self.address.tls or True,
                )
                self._open.add(websocket)
                return websocket
        except aiohttp.WSServerHandshakeError as error:
            raise self._refusal(error.status, what, error.message) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._failure(error, what) from error
        finally:
            self._opening -= 1

    async def _ask(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> Any:
        answer, _ = await self._answer(method, path, query=query, body=body)
        return answer

    async def _answer(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> tuple[Any, Mapping[str, str]]:
        what = f"{method} {path}"
        try:
            async with (
                self._requests,
                asyncio.timeout(self._timeout + _POLL),
                self._client().request(
                    method,
                    self.address.url + path,
                    params={**self.address.query, **(query or {})},
                    json=body,
                    ssl=self.address.tls or True,
                    server_hostname=self.address.server_name,
                    allow_redirects=False,
                ) as response,
            ):
                text = await response.text(errors="replace")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._failure(error, what) from error
        if response.status != 200:
            raise self._refusal(response.status, what, text.strip())
        try:
            return json.loads(text), response.headers
        except ValueError as error:
            raise NomadAnswerError(
                f"expected Nomad at {self.address.url}, got another server: {what} gave {text[:80]!r}",
                status=response.status,
                hint="set the backend's option nomad_address, or NOMAD_ADDR",
            ) from error

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=dict(self.address.headers),
                # Limited here: a wait inside the connection pool would look like a timeout of Nomad.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE),
                timeout=aiohttp.ClientTimeout(total=None),
                trust_env=False,
            )
        return self._session

    def _refusal(self, status: int, what: str, said: str) -> NomadAnswerError:
        said = said[:_SAID]
        if status in _FORBIDDEN:
            found = "the ACL token does not allow it" if self.address.has_token else "it requires an ACL token"
            return NomadAccessError(
                f"Nomad at {self.address.url} refuses {what} ({status} {said}): {found}",
                status=status,
                hint="set NOMAD_TOKEN or the backend's option token to one that may list-jobs, read-job, submit-job "
                "and alloc-exec in the namespace, and with driver singularity also alloc-node-exec",
            )
        return NomadAnswerError(f"Nomad at {self.address.url} refuses {what}: {status} {said}", status=status)

    def _failure(self, error: Exception, what: str) -> NomadError:
        if isinstance(error, aiohttp.ClientSSLError):
            return NomadUnreachableError(
                f"the TLS handshake with Nomad at {self.address.url} failed: {error}",
                hint="set ca_cert (NOMAD_CACERT) to its authority, client_cert and client_key if it requires them, "
                "and tls_server_name (such as server.global.nomad) if the certificate has another name",
            )
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.InvalidURL):
            return NomadUnreachableError(
                f"Nomad is not reachable at {self.address.url}: {error}",
                hint="start it (`nomad agent -dev` to try it), or set nomad_address or NOMAD_ADDR",
            )
        if isinstance(error, TimeoutError):
            return NomadSilentError(
                f"Nomad at {self.address.url} did not answer {what} within {self._timeout:g} s",
                hint="check that the cluster has a leader (nomad server members), or raise request_timeout",
            )
        return NomadSilentError(f"the connection to Nomad at {self.address.url} broke during {what}: {error}")

    async def aclose(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _part(name: str) -> str:
    return quote(name, safe="")
