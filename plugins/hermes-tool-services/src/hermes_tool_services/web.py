"""Shared by the two HTTP services: the token check, reading of bodies, and error answers."""

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
from hermes_core.redaction import validation_message
from hermes_pool import SlotUnavailableError
from hermes_tool_services.executor.artifacts import ArtifactRefusedError

P = TypeVar("P", bound=BaseModel)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LARGEST_BODY: Final = 16 * 2**20
_OPEN: Final = frozenset({"/", "/health"})
"""Paths without a token; they only show that the service runs."""
_LOG: Final = logging.getLogger(__name__)


class RefusedRequestError(Exception):
    """A refused request; `status` is the HTTP status."""

    def __init__(self, status: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.hint = hint


def application(token: str | None) -> web.Application:
    """Return an application without routes that checks the token and answers every error.

    Without a token it only answers requests to loopback names.
    """
    return web.Application(client_max_size=LARGEST_BODY, middlewares=[_answering, _guarding(token)])


def require_token(host: str, token: str | None, variable: str) -> None:
    """Raise `ConfigError` unless there is a token or only this machine can connect."""
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"expected a bearer token to listen on {host}, which other machines can reach, got none",
            hint=f"export {variable}=…, or --host 127.0.0.1",
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to an address."""
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
        RefusedRequestError: The body is too large (413), not JSON (400, 415) or not valid (422).
    """
    # This also blocks posts by a web page in a browser of this machine, which cannot set this type.
    if request.content_type != "application/json":
        raise RefusedRequestError(415, f"expected Content-Type: application/json, got {request.content_type}")
    try:
        data = json.loads(await request.read())
    except web.HTTPRequestEntityTooLarge as error:
        raise RefusedRequestError(413, f"expected a body of at most {LARGEST_BODY} bytes, got more") from error
    except (ValueError, RecursionError) as error:
        raise RefusedRequestError(400, f"the body is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise RefusedRequestError(400, f"expected a JSON object as the body, got {type(data).__name__}")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise _invalid(error, kind) from error


def _invalid(error: ValidationError, kind: type[BaseModel]) -> RefusedRequestError:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    texts = [f"{'.'.join(map(str, problem['loc']))}: {validation_message(problem)}" for problem in problems[:5]]
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
    """Return an error as `{"error": {type, message, hint, retryable}}`, with the `stats` of a full pool."""
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
        # The traceback goes to the log only, because it may contain secrets.
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
    """Refuse a foreign host name: a web page's owner may have pointed it at this machine (DNS rebinding)."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if not is_loopback(name.lower()):
        raise RefusedRequestError(
            403,
            f"expected a request to 127.0.0.1, [::1] or localhost, as there is no token, got {host!r}",
            hint="set a token to reach the service by another name",
        )


def _authorize(header: str | None, token: str) -> None:
    scheme, _, given = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not given.strip():
        raise RefusedRequestError(401, "expected a token as 'Authorization: Bearer TOKEN', got none")
    if not hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), token.encode()):
        raise RefusedRequestError(403, "the token is wrong")
