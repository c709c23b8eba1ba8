"""What the two HTTP services share: the token, bodies that are read or refused, and errors that are answers."""

from __future__ import annotations

import dataclasses
import hmac
import ipaddress
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from hermes_core.contracts.errors import BackendError, ConfigError, HermesError
from hermes_core.nearest import nearest_names
from hermes_pool import SlotUnavailableError
from hermes_tool_services.executor.artifacts import ArtifactRefusedError

P = TypeVar("P", bound=BaseModel)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LARGEST_BODY: Final = 16 * 2**20
_OPEN: Final = frozenset({"/", "/health"})
"""Paths that need no token: they say that something is here, and nothing else."""
_LOG: Final = logging.getLogger(__name__)


class RefusedRequestError(Exception):
    """A request that goes no further; `status` is HTTP's."""

    def __init__(self, status: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.hint = hint


def application(token: str | None) -> web.Application:
    """Return an application without routes that asks for the token, and answers every error.

    Without a token it answers only to the names of this machine alone.
    """
    return web.Application(client_max_size=LARGEST_BODY, middlewares=[_answering, _guarding(token)])


def require_token(host: str, token: str | None, variable: str) -> None:
    """Raise `ConfigError` unless there is a token, or only this machine can connect."""
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"a bearer token is wanted to listen on {host}, which other machines reach; found none",
            hint=f"export {variable}=…, or --host 127.0.0.1",
        )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can connect to an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def answer(value: Mapping[str, Any] | BaseModel, status: int = 200) -> web.Response:
    """Return a JSON answer."""
    data = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    return web.Response(status=status, text=json.dumps(data), content_type="application/json")


async def read_payload(request: web.Request, kind: type[P]) -> P:
    """Return a request's body.

    Raises:
        RefusedRequestError: It is too large (413), no JSON (400, 415) or not what is wanted (422).
    """
    # Also what keeps a web page in a browser of this machine from posting here: it may not choose this type.
    if request.content_type != "application/json":
        raise RefusedRequestError(415, f"Content-Type: application/json was wanted, found {request.content_type}")
    try:
        data = json.loads(await request.read())
    except web.HTTPRequestEntityTooLarge as error:
        raise RefusedRequestError(413, f"a body may have {LARGEST_BODY} bytes, this one has more") from error
    except (ValueError, RecursionError) as error:
        raise RefusedRequestError(400, f"the body is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise RefusedRequestError(400, f"the body must be a JSON object, found {type(data).__name__}")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise _invalid(error, kind) from error


def _invalid(error: ValidationError, kind: type[BaseModel]) -> RefusedRequestError:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    texts = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems[:5]]
    known = list(kind.model_fields)
    unknown = [str(problem["loc"][-1]) for problem in problems if problem["type"] == "extra_forbidden"]
    near = [name for field in unknown for name in nearest_names(field, known)]
    hint = f"did you mean {near[0]!r}?" if near else f"fields: {', '.join(known)}"
    return RefusedRequestError(422, "; ".join(texts), hint=hint)


def error_answer(
    status: int,
    message: str,
    *,
    kind: str = "request",
    hint: str | None = None,
    retryable: bool = False,
    stats: Mapping[str, Any] | None = None,
) -> web.Response:
    """Return what every error looks like: `{"error": {type, message, hint, retryable}}`, and a full pool's `stats`."""
    error: dict[str, Any] = {"type": kind, "message": message, "hint": hint, "retryable": retryable}
    if stats is not None:
        error["stats"] = stats
    response = answer({"success": False, "error": error}, status)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


@web.middleware
async def _answering(request: web.Request, handler: Handler) -> web.StreamResponse:  # noqa: PLR0911 - one for each kind
    try:
        return await handler(request)
    except RefusedRequestError as refused:
        return error_answer(refused.status, str(refused), hint=refused.hint)
    except ArtifactRefusedError as refused:
        return error_answer(refused.status, refused.message, kind="ArtifactRefusedError")
    except BackendError as error:
        stats = dataclasses.asdict(error.stats) if isinstance(error, SlotUnavailableError) else None
        return error_answer(
            503, error.message, kind=type(error).__name__, hint=error.hint, retryable=error.retryable, stats=stats
        )
    except HermesError as error:
        return error_answer(500, error.message, kind=type(error).__name__, hint=error.hint)
    except web.HTTPException as error:
        return error_answer(error.status, f"{error.reason}: {request.method} {request.path}")
    except Exception as error:  # noqa: BLE001 - the boundary to the network
        # A traceback is for the log, and may hold what is no caller's business.
        _LOG.exception("%s %s failed", request.method, request.path)
        return error_answer(500, f"the service failed: {type(error).__name__}", kind="internal")


def _guarding(token: str | None) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in _OPEN:
            if token is None:
                _require_own_name(request.headers.get("Host", ""))
            else:
                _authorize(request.headers.get("Authorization"), token)
        return await handler(request)

    return guard


def _require_own_name(host: str) -> None:
    """Refuse a name that is not this machine's: it is a web page's, whose owner has pointed it here."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if not is_loopback(name.lower()):
        raise RefusedRequestError(
            403,
            f"without a token only requests to 127.0.0.1, [::1] or localhost are answered, found {host!r}",
            hint="give the service a token to reach it by another name",
        )


def _authorize(header: str | None, token: str) -> None:
    scheme, _, given = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not given.strip():
        raise RefusedRequestError(401, "a token was wanted as 'Authorization: Bearer TOKEN', found none")
    if not hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), token.encode()):
        raise RefusedRequestError(403, "the token is not the service's")
