"""Convert the engine's errors to typed errors with hints."""

from __future__ import annotations

import re
from typing import Final

import aiohttp
from aiodocker.exceptions import DockerError

from hermes_backend_docker.engine.address import Address
from hermes_core.contracts.errors import BackendError, SandboxLostError

_UNREACHED: Final = 900
"""aiodocker's own status for a failed connection."""
_NO_SPACE: Final = re.compile(r"no space left|disk quota exceeded", re.IGNORECASE)
_NO_PROGRAM: Final = re.compile(r'exec: "?([^":]+)"?: (?:executable file not found|stat .* no such file)')
_NO_RUNTIME: Final = re.compile(r"[Uu]nknown runtime specified|runtime .* not found|invalid runtime name")


class EngineError(BackendError):
    """The engine refused a request or failed; base class of the errors below."""


class EngineUnreachableError(EngineError):
    """No engine answers at the address."""


class EngineDeniedError(EngineError):
    """This user may not open the engine's socket."""

    retryable = False
    fatal = True


class EngineTimeoutError(EngineError):
    """The engine did not answer a request in time."""


class ImageMissingError(EngineError):
    """An image is missing and cannot be pulled."""

    retryable = False


class ProgramMissingError(EngineError):
    """The image lacks the first program of its container."""

    retryable = False


class NameConflictError(EngineError):
    """Another container has the name."""


class NoSpaceError(EngineError):
    """The engine's disk is full."""


class ContainerGoneError(SandboxLostError):
    """A container no longer exists."""


def from_docker(error: DockerError, what: str, address: Address) -> BackendError:
    """Return the error for an answer of the engine; `what` describes the failed request."""
    text = str(error.message).strip()
    if error.status == _UNREACHED:
        return unreachable_error(_cause(error) or error, address)
    message = f"{what}: the engine says: {text}"
    if _NO_SPACE.search(text):
        return NoSpaceError(message, hint="docker system df; docker system prune")
    lowered = text.lower()
    if "no such container" in lowered or "removal of container" in lowered or "marked for removal" in lowered:
        return ContainerGoneError(message)
    if "no such image" in lowered:
        return ImageMissingError(message, hint=f"docker pull {text.rpartition(': ')[2]}")
    if error.status == 409 and "is already in use" in text:
        return NameConflictError(message, hint="docker ps -a; docker rm -f NAME")
    kind = ProgramMissingError if _NO_PROGRAM.search(text) else EngineError
    return kind(message, hint=_advice(text))


def _advice(text: str) -> str | None:
    if found := _NO_PROGRAM.search(text):
        return f"use an image that has {found[1]}, or set the backend's option python to its path inside"
    if _NO_RUNTIME.search(text):
        return "docker info lists the runtimes; add one to /etc/docker/daemon.json"
    if "rlimit" in text:
        return "lower the backend's option ulimits; the engine itself may not have more"
    return None


def _cause(error: BaseException) -> BaseException | None:
    inner = error.__cause__ or error.__context__
    return getattr(inner, "os_error", None) or inner


def unreachable_error(error: BaseException, address: Address) -> BackendError:
    """Return the error for a failed connection."""
    message = f"no Docker engine answers at {address.shown}: {error}"
    if isinstance(error, PermissionError):
        return EngineDeniedError(
            f"this user may not talk to the Docker engine at {address.shown}: {error}",
            hint="sudo usermod -aG docker $USER and log in again, or set DOCKER_HOST to a rootless engine",
        )
    if address.socket is None:
        hint = "check the backend's option docker_host, or DOCKER_HOST, and that the engine listens there"
    else:
        hint = "start it (systemctl start docker, or dockerd), or set DOCKER_HOST or the backend's option docker_host"
    return EngineUnreachableError(message, hint=hint)


def is_connection_failure(error: BaseException) -> bool:
    """Return whether an error is about the connection to the engine."""
    return isinstance(error, OSError | aiohttp.ClientError)
