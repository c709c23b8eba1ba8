"""What the service's and its SDK's complaints mean, and what to do about each."""

from __future__ import annotations

from typing import Final

from grpclib.exceptions import GRPCError, StreamTerminatedError
from modal import exception as modal

from hermes_core.contracts.errors import BackendError, SandboxLostError


class ModalError(BackendError):
    """The service refused or failed; the base of what follows."""


class ModalAuthError(ModalError):
    """There is no token, or the service does not take it."""

    retryable = False
    fatal = True


class ModalMissingError(ModalError):
    """An app, environment, secret, volume or image of that name is not there."""

    retryable = False


class ModalRequestError(ModalError):
    """The service or its SDK refuses what was asked for; asking again would not help."""

    retryable = False


class ModalExhaustedError(ModalError):
    """A quota of the workspace, or the rate of requests, is reached."""


class ModalUnreachableError(ModalError):
    """Nobody answers at the service's address, or the connection broke off."""


class ModalTimeoutError(ModalError):
    """The service took a request and did not answer in time."""


class ImageBuildError(ModalError):
    """An image cannot be built; the message ends with the end of its log."""

    retryable = False


class ModalSandboxEndedError(SandboxLostError):
    """A sandbox has ended: its time was up, it was idle, it took too much memory, or somebody ended it."""


LOG_IN: Final = (
    "modal token new; or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or the backend's options token_id and token_secret"
)
_HINTS: Final[tuple[tuple[type[Exception], type[BackendError], str | None], ...]] = (
    (modal.AuthError, ModalAuthError, f"modal token info shows which token is used; {LOG_IN}"),
    (modal.PermissionDeniedError, ModalAuthError, "use a token of a member of the workspace that may do this"),
    (
        modal.ResourceExhaustedError,
        ModalExhaustedError,
        (
            "run fewer sandboxes at once (options max_sandboxes, concurrent_starts), or raise the workspace's "
            "limits at https://modal.com/settings/usage"
        ),
    ),
    (modal.VersionError, ModalRequestError, "pip install -U 'modal>=1.6.4,<1.7'"),
    (modal.NotFoundError, ModalMissingError, None),
    (modal.InvalidError, ModalRequestError, None),
    (modal.AlreadyExistsError, ModalRequestError, None),
    (modal.UnimplementedError, ModalRequestError, "pip install -U 'modal>=1.6.4,<1.7'"),
    (modal.SandboxTimeoutError, ModalSandboxEndedError, "raise the backend's option max_lifetime"),
    (modal.SandboxTerminatedError, ModalSandboxEndedError, None),
    (modal.ConnectionError, ModalUnreachableError, "check the network, MODAL_SERVER_URL and https://status.modal.com"),
    (modal.ServiceError, ModalUnreachableError, "check the network, MODAL_SERVER_URL and https://status.modal.com"),
    (modal.TimeoutError, ModalTimeoutError, "see https://status.modal.com"),
    (modal.ClientClosed, ModalUnreachableError, "the backend was closed"),
    (GRPCError, ModalError, "see https://status.modal.com"),
    (StreamTerminatedError, ModalUnreachableError, "see https://status.modal.com"),
    (modal.Error, ModalError, "see https://status.modal.com"),
    (OSError, ModalUnreachableError, "check the network, MODAL_SERVER_URL and https://status.modal.com"),
)
SDK_ERRORS: Final = (modal.Error, GRPCError, StreamTerminatedError, OSError)
"""What the SDK raises; anything else goes on."""


def from_sdk(error: BaseException, what: str, hint: str | None = None) -> BackendError:
    """Return the error for what the SDK has raised; `what` says what was wanted, `hint` is for things not found."""
    said = str(error).strip() or type(error).__name__
    for kind, ours, advice in _HINTS:
        if isinstance(error, kind):
            return ours(f"{what}: Modal says: {said}", hint=advice or hint)
    return ModalError(f"{what}: {said}")


def ending_of(error: modal.Error | None, code: int, *, max_lifetime: int, idle_timeout: int) -> str:
    """Return why a sandbox has ended, by what the SDK raises for it, None if nothing, and the code it gives it."""
    if isinstance(error, modal.SandboxTimeoutError):
        return f"its time of {max_lifetime} s was up (option max_lifetime)"
    if isinstance(error, modal.SandboxTerminatedError):
        return "it was ended by somebody else, or by the service"
    why = f"it took more memory than its limit, was idle for {idle_timeout} s, or its first process ended"
    return f"with code {code}: {why}"
