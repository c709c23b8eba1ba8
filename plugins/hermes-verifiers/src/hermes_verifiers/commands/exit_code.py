"""Commands that must end with an expected exit code."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from hermes_core.contracts.rollout import AgentResult
from hermes_core.contracts.verifier import Score
from hermes_verifiers.commands.private_directory import Room, open_room
from hermes_verifiers.options import (
    ProtectedOptions,
    Seconds,
    StrictOptions,
    Weight,
    failed_parts,
    unique_names,
    weighted_mean,
)


class Check(StrictOptions):
    """One command. `name` labels its part of the score; by default the command is the label."""

    command: str
    expected: int = 0
    weight: Weight = 1.0
    name: str | None = None
    timeout: Seconds | None = None


class ExitCodeVerifier:
    """Runs commands in the workspace, each in a clean environment.

    The score is the weighted share that ended with the expected code. A command that exceeds its timeout counts as
    failed. `command` is short for a single check.
    """

    class Options(ProtectedOptions):
        """Either `command` or `checks`."""

        command: str | None = None
        expected: int = 0
        checks: list[Check] = Field(default_factory=list)
        timeout: Seconds = 60.0

        @model_validator(mode="after")
        def _one_form(self) -> Self:
            if (self.command is None) == (not self.checks):
                raise ValueError("expected either 'command' or a non-empty list 'checks'")
            return self

    def __init__(self, options: Options) -> None:
        self._protected = options.protected
        self._timeout = options.timeout
        self._checks = options.checks or [Check(command=options.command or "", expected=options.expected)]

    def protected_paths(self) -> list[str]:
        """Name the paths that the model must not change."""
        return self._protected

    async def score(self, result: AgentResult, context: Any) -> Score:
        """Run the commands one after another."""
        del result
        names = unique_names(check.name or check.command for check in self._checks)
        async with open_room(context.sandbox) as room:
            values = [await self._run(room, check) for check in self._checks]
        parts = dict(zip(names, values, strict=True))
        value = weighted_mean(zip((check.weight for check in self._checks), values, strict=True))
        return Score(value=value, parts=parts, detail=failed_parts(parts))

    async def _run(self, room: Room, check: Check) -> float:
        ended = await room.run(check.command, timeout=check.timeout or self._timeout)
        return 1.0 if ended.exit_code == check.expected and not ended.timed_out else 0.0
