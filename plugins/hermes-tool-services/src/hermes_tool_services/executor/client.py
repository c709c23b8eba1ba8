"""A typed client of the tool executor's service."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar, final

import aiohttp
from pydantic import BaseModel, TypeAdapter, ValidationError

from hermes_core.contracts.errors import BackendError, ConfigError, SandboxLostError, SandboxRefusedError
from hermes_core.redaction import redact_address, validation_message
from hermes_pool import HostStartTimeoutError, PoolStats, SlotUnavailableError
from hermes_tool_services import wire
from hermes_tool_services.executor.artifacts import ArtifactRefusedError
from hermes_tool_services.policy import DEFAULT_TIMEOUT, MARGIN, timeout_of
from hermes_tools.agent_tools import ToolCall, ToolResult

P = TypeVar("P", bound=BaseModel)
_PATIENCE: Final = 120.0
_RELEASE: Final = 120.0
_STATS: Final = TypeAdapter(PoolStats)
_KNOWN: Final[Mapping[str, type[BackendError]]] = {
    kind.__name__: kind for kind in (BackendError, HostStartTimeoutError, SandboxLostError, SandboxRefusedError)
}
_JSON: Final = {"Content-Type": "application/json"}


class ExecutorRefusedError(BackendError):
    """The service refused the request; a retry would not help."""

    retryable = False


class _BrokenOffError(BackendError):
    """The connection ended before the answer."""


@final
class ToolExecutorClient:
    """A client of a tool executor's service; create it on the event loop that uses it.

    Args:
        url: The service's address.
        token: Its bearer token, if it has one.
        patience: Seconds that a call may wait for a sandbox, in addition to its own timeout.
        default_timeout_s: The service's timeout for a call without one.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        patience: float = _PATIENCE,
        default_timeout_s: float = DEFAULT_TIMEOUT,
    ) -> None:
        self._url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._patience = patience
        self._default = default_timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def execute(
        self, trajectory_id: str, call: ToolCall, timeout_s: float | None = None, *, execution_id: str | None = None
    ) -> ToolResult:
        """Make one call; when cancelled, the service ends it.

        After a broken connection the request is sent once more with the same `execution_id`: a call that already ran is
        answered, not run again.

        Raises:
            BackendError: The service cannot be reached or has no sandbox.
        """
        seconds = timeout_of(timeout_s, call.arguments.get("timeout"), self._default)
        tool = wire.ToolCallPayload(
            name=call.name, arguments=dict(call.arguments), raw_text=call.raw_text, uniq_id=call.uniq_id
        )
        request = wire.ToolExecutorExecuteRequest(
            trajectory_id=trajectory_id, tool=tool, timeout_s=timeout_s, execution_id=execution_id or uuid.uuid4().hex
        )
        limit = seconds + MARGIN + self._patience
        try:
            found = await self._ask("POST", "/execute", request, limit)
        except _BrokenOffError:
            found = await self._ask("POST", "/execute", request, limit)
        return _parse(found, wire.ToolResultPayload).result()

    async def release_trajectory(self, trajectory_id: str, reset_workspace: bool = False) -> None:  # noqa: FBT001, FBT002 - hermes-agent's signature
        """End a trajectory's commands and close its sandbox."""
        request = wire.ToolExecutorReleaseRequest(trajectory_id=trajectory_id, reset_workspace=reset_workspace)
        await self._ask("POST", "/release", request, _RELEASE)

    async def read_artifact(self, request: wire.ArtifactReadRequestPayload) -> wire.ArtifactReadResponsePayload:
        """Read a file of a trajectory's workspace; raises `ArtifactRefusedError`."""
        found = await self._ask("POST", "/artifacts/read", request, self._patience)
        return _parse(found, wire.ArtifactReadResponsePayload)

    async def list_artifacts(self, request: wire.ArtifactListRequestPayload) -> wire.ArtifactListResponsePayload:
        """List a directory of a trajectory's workspace; raises `ArtifactRefusedError`."""
        found = await self._ask("POST", "/artifacts/list", request, self._patience)
        return _parse(found, wire.ArtifactListResponsePayload)

    async def archive_artifacts(
        self, request: wire.ArtifactArchiveRequestPayload
    ) -> wire.ArtifactArchiveResponsePayload:
        """Pack a file or a directory of a trajectory's workspace; raises `ArtifactRefusedError`."""
        found = await self._ask("POST", "/artifacts/archive", request, self._patience)
        return _parse(found, wire.ArtifactArchiveResponsePayload)

    async def status(self) -> Mapping[str, Any]:
        """Return the service's statistics."""
        return await self._ask("GET", "/status", None, self._patience)

    async def aclose(self) -> None:
        """Close the connections; trajectories stay open until they are released."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _ask(self, method: str, path: str, body: BaseModel | None, timeout: float) -> Mapping[str, Any]:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0)  # a waiting call must not block another request
            self._session = aiohttp.ClientSession(headers=self._headers, connector=connector)
        # Sent piece by piece: aiohttp warns when it writes a large body at once.
        # Not pydantic's own JSON: it fails on a lone surrogate, and writes an infinite number as null.
        data = None if body is None else io.BytesIO(json.dumps(body.model_dump(exclude_none=True)).encode())
        limit = aiohttp.ClientTimeout(total=timeout)
        try:
            async with self._session.request(
                method, self._url + path, data=data, timeout=limit, headers=_JSON
            ) as response:
                found = await response.json(content_type=None)
        except aiohttp.ServerDisconnectedError as error:
            raise _BrokenOffError(
                f"the tool executor at {redact_address(self._url)} broke off: {method} {path}"
            ) from error
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise _unreachable(self._url, f"{method} {path}", error) from error
        if not isinstance(found, dict):
            raise _unreachable(
                self._url, f"{method} {path}", TypeError(f"expected a JSON object, got {type(found).__name__}")
            )
        if response.status != 200:
            raise _refusal(response.status, found, f"{redact_address(self._url)}{path}")
        return found


def _parse(found: Mapping[str, Any], kind: type[P]) -> P:
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, one['loc']))}: {validation_message(one)}" for one in error.errors()[:2])
        raise ExecutorRefusedError(
            f"expected {kind.__name__} from the tool executor, got another answer: {'; '.join(problems)}",
            hint="install the same version of hermes-tool-services on both sides",
        ) from error


def _unreachable(url: str, what: str, error: Exception) -> BackendError:
    return BackendError(
        f"expected a tool executor at {redact_address(url)}, {what}: {type(error).__name__}: {str(error)[:200]}",
        hint="hermes-core tool-executor serve",
    )


def _refusal(status: int, found: Mapping[str, Any], where: str) -> Exception:
    error = found.get("error")
    about: Mapping[str, Any] = error if isinstance(error, Mapping) else {}
    message, hint = str(about.get("message") or f"status {status}"), about.get("hint")
    if about.get("type") == "ArtifactRefusedError":
        return ArtifactRefusedError(status, message)
    if status in {401, 403}:
        return ConfigError(f"{where}: {message}", hint="set the service's token")
    if status == 503:
        return _backend_error(about, message, hint)
    return ExecutorRefusedError(f"{where}: {message}", hint=hint)


def _backend_error(about: Mapping[str, Any], message: str, hint: str | None) -> BackendError:
    kind = str(about.get("type"))
    if kind == "SlotUnavailableError":
        try:
            return SlotUnavailableError(message, _STATS.validate_python(about.get("stats")), hint=hint)
        except ValidationError:
            return BackendError(message, hint=hint)
    if kind in _KNOWN:
        return _KNOWN[kind](message, hint=hint)
    return (BackendError if about.get("retryable") else ExecutorRefusedError)(f"{kind}: {message}", hint=hint)
