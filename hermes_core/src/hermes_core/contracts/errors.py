"""The one tree of errors.

Every error says who is to blame, by its type: the first level below `HermesError` is the attribution, and a rollout's
outcome records it. Rule: blame the party that must act. A command that exits 1 is not an error, and a tool call that
the model wrote badly is answered to the model instead of being raised.

A message says what was expected and what was found; the hint says what to type next.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar


class Blame(StrEnum):
    """The party that must act on a failure."""

    MODEL = "model"
    TASK = "task"
    VERIFIER = "verifier"
    BACKEND = "backend"
    FRAMEWORK = "framework"
    USER = "user"


class HermesError(Exception):
    """Base of all errors of the framework; `hint` is what to type or change next."""

    blame: ClassVar[Blame] = Blame.FRAMEWORK
    retryable: ClassVar[bool] = False
    fatal: ClassVar[bool] = False
    """Whether the whole run must stop, because every other rollout would fail the same way."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\n  → {hint}")
        self.message = message
        self.hint = hint


class UserError(HermesError):
    """The command line, the config or the environment must change."""

    blame = Blame.USER
    fatal = True


class ConfigError(UserError):
    """A config key or value is unknown or wrong."""


class OutputError(UserError):
    """The output folder cannot be written: permission, another run, or a full disk."""


class PluginError(UserError):
    """A plugin or component that was asked for cannot be used."""


class UnknownComponentError(PluginError):
    """No plugin declares this name; the message lists near names and the package that would bring it."""


class AmbiguousComponentError(PluginError):
    """Several plugins declare this name; the message names them and the config line that settles it."""


class BrokenComponentError(PluginError):
    """The plugin or the component's target failed to import, or does not satisfy its contract."""


class UnavailableComponentError(PluginError):
    """The component is installed but a requirement is missing: a package, a program or an environment variable."""


class SandboxLacksError(UnavailableComponentError):
    """The sandbox works, but its image lacks a program that this operation needs."""

    fatal = False


class TaskError(HermesError):
    """A task is malformed, or its files or setup commands fail."""

    blame = Blame.TASK


class VerifierError(HermesError):
    """A verifier raised, timed out, or returned something that is not a finite score in its bounds."""

    blame = Blame.VERIFIER


class VerifierTimeoutError(VerifierError):
    """A verifier exceeded its time limit, possibly because of what it found in the sandbox."""


class NoVerdictError(VerifierError):
    """A verifier ran without reaching a verdict, because of a bug or because of what it was given to read.

    Where an untouched sandbox of the task can be judged and the rollout's cannot, the rollout is repeated once. If
    that ends the same way, it gets the lowest score.
    """


class WorkspaceError(HermesError):
    """A verifier cannot work with what it found in the sandbox.

    The rollout gets the lowest score if an untouched sandbox of its task can be judged and its own still cannot.
    """

    blame = Blame.VERIFIER


class BackendError(HermesError):
    """A sandbox cannot be made, or it stopped answering."""

    blame = Blame.BACKEND
    retryable = True


class SandboxRefusedError(BackendError):
    """The backend cannot enforce what the run requires; the run does not start."""

    retryable = False
    fatal = True


class NoPythonError(BackendError):
    """No agent can be started because the image has no Python; a POSIX shell may serve the sandbox instead."""

    retryable = False


class SandboxLostError(BackendError):
    """The sandbox or its agent went away while in use."""


class JudgeLostError(BackendError):
    """The verifier's own sandbox (not the rollout's) cannot be made or used."""


class EngineLostError(BackendError):
    """The worker that ran a rollout died, or its answer was lost; `place` names the worker."""

    def __init__(self, message: str, *, hint: str | None = None, place: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, hint=hint)
        self.place: Mapping[str, Any] = dict(place or {})


class ModelError(HermesError):
    """The model or its server is to blame."""

    blame = Blame.MODEL


class ModelUnreachableError(ModelError):
    """Nothing answers at the address."""

    retryable = True


class ModelAuthError(ModelError):
    """The server refused the credentials (401, 403)."""

    fatal = True


class ModelRequestError(ModelError):
    """The server refused the request (other 4xx); sending it again would not help."""


class ModelRateLimitError(ModelError):
    """The server answers 429; `retry_after` is the wait it asks for in seconds, None if it names none."""

    retryable = True

    def __init__(self, message: str, *, retry_after: float | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class ModelServerError(ModelError):
    """The server failed (5xx), or closed the connection before its answer was complete."""

    retryable = True


class ModelTimeoutError(ModelError):
    """The server accepted the request and did not answer in time."""


class ContextOverflowError(ModelError):
    """The conversation no longer fits into the model's context."""


class ModelReplyError(ModelError):
    """The server answered 200 with something that is not a chat completion."""


class ProcessLimitError(HermesError):
    """The limit of background processes is reached; one of them must end first."""

    blame = Blame.MODEL


class ToolFailureError(HermesError):
    """A tool raised; recorded as a tool error of the rollout and answered to the model."""


class ContextUnusableError(ToolFailureError):
    """A rollout's context was used after the rollout, on the wrong thread or in the wrong phase."""
