"""What goes wrong with Nomad, in the words of whoever must mend it."""

from __future__ import annotations

from hermes_core.contracts.errors import BackendError, SandboxRefusedError


class NomadError(BackendError):
    """Nomad did not do what it was asked."""


class NomadUnreachableError(NomadError):
    """Nobody answers at the address; nothing was sent."""


class NomadSilentError(NomadError):
    """The connection broke or no answer came in time: what was asked may have been done."""


class NomadAnswerError(NomadError):
    """Nomad refused a request; `status` is that of HTTP."""

    def __init__(self, message: str, *, status: int = 0, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class NomadConnectionsError(NomadError):
    """There are as many connections to Nomad as one client may have."""


class NomadAccessError(NomadAnswerError):
    """The ACL token is missing, unknown, expired, or not allowed to do this (401, 403)."""

    retryable = False
    fatal = True


class PlacementError(NomadError):
    """No node has room for a container, or none is fit for it."""


class ImageError(NomadError):
    """The image of a container cannot be had; another sandbox of it would fare no better."""

    retryable = False


class DriverConfigError(SandboxRefusedError):
    """Nomad's driver does not take the description of the container; no other would fare better."""


class ContainerStartError(NomadError):
    """A container did not come to run, or did not stay."""
