"""Errors of Nomad, named by what the user must fix."""

from __future__ import annotations

from hermes_core.contracts.errors import BackendError, SandboxRefusedError


class NomadError(BackendError):
    """A request to Nomad failed."""


class NomadUnreachableError(NomadError):
    """No server answers at the address; nothing was sent."""


class NomadSilentError(NomadError):
    """The connection broke or no answer came in time; the request may have been executed."""


class NomadAnswerError(NomadError):
    """Nomad refused a request; `status` is the HTTP status."""

    def __init__(self, message: str, *, status: int = 0, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class NomadConnectionsError(NomadError):
    """The limit of connections to Nomad is reached."""


class NomadAccessError(NomadAnswerError):
    """The ACL token is missing, unknown, expired, or not allowed to do this (401, 403)."""

    retryable = False
    fatal = True


class PlacementError(NomadError):
    """No node has room for a container, or no node is suitable."""


class ImageError(NomadError):
    """The image of a container is not available; other sandboxes with it would fail too."""

    retryable = False


class DriverConfigError(SandboxRefusedError):
    """Nomad's driver refuses the container's config; every other container would fail too."""


class ContainerStartError(NomadError):
    """A container did not start, or ended early."""
