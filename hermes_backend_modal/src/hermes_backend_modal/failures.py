"""Convert errors of the service and its SDK to typed errors with hints."""

from __future__ import annotations

from typing import Final

from grpclib.exceptions import GRPCError, StreamTerminatedError
from modal import exception as modal

from hermes_core.contracts.errors import BackendError, SandboxLostError


class ModalError(BackendError):
    """The service refused a request or failed; base class of the errors below."""


class ModalAuthError(ModalError):
    """The token is missing, or the service refuses it."""

    retryable = False
    fatal = True


class ModalMissingError(ModalError):
    """An app, environment, secret, volume or image does not exist."""

    retryable = False


class ModalRequestError(ModalError):
    """The service or its SDK refuses the request; a retry would not help."""

    retryable = False


class ModalExhaustedError(ModalError):
    """A quota of the workspace, or the rate of requests, is reached."""


class ModalUnreachableError(ModalError):
    """The service does not answer, or the connection broke off."""


class ModalTimeoutError(ModalError):
    """The service did not answer a request in time."""


class ImageBuildError(ModalError):
    """An image cannot be built; the message ends with the end of its log."""

    retryable = False


class ModalSandboxEndedError(SandboxLostError):
    """A sandbox has ended: by its time limit, idle time or memory limit, or from outside."""


LOG_IN: Final = (
    "modal token new; or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or the backend's options token_id and token_secret"
)
_HINTS: Final[tuple[tuple[type[Exception], type[BackendError], str | None], ...]] = (
    (modal.AuthError, ModalAuthError, f"modal token info shows the token in use; {LOG_IN}"),
    (modal.PermissionDeniedError, ModalAuthError, "use a token of a workspace member with this permission"),
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
"""The SDK's exceptions; others are raised unchanged."""


def from_sdk(error: BaseException, what: str, hint: str | None = None) -> BackendError:
    """Return the error for an SDK exception; `what` describes the failed request, `hint` is for missing things."""
    said = str(error).strip() or type(error).__name__
    for kind, ours, advice in _HINTS:
        if isinstance(error, kind):
            return ours(f"{what}: Modal says: {said}", hint=advice or hint)
    return ModalError(f"{what}: {said}")


def ending_of(error: modal.Error | None, code: int, *, max_lifetime: int, idle_timeout: int) -> str:
    """Return why a sandbox has ended, from the SDK's exception (or None) and exit code."""
    if isinstance(error, modal.SandboxTimeoutError):
        return f"its lifetime of {max_lifetime} s was over (option max_lifetime)"
    if isinstance(error, modal.SandboxTerminatedError):
        return "it was ended from outside or by the service"
    why = f"it took more memory than its limit, was idle for {idle_timeout} s, or its first process ended"
    return f"with code {code}: {why}"
