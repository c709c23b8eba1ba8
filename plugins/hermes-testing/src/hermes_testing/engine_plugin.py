"""The plugin of the engine suite: a tool that names the process of a rollout, and a verifier.

Workers load it by name.
"""

from __future__ import annotations

from typing import Final

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import ToolSpec, VerifierSpec

MODULE: Final = __name__
TOOLSET: Final = "conformance"
WHERE: Final = "conformance_where"
ANSWER: Final = "conformance_answer"


@hookimpl
def hermes_tools() -> list[ToolSpec]:
    """Declare the tool."""
    return [
        ToolSpec(
            name=WHERE,
            summary="Names the process of the rollout.",
            target="hermes_testing.engine_parts:Where",
            toolset=TOOLSET,
            description="Name the process that runs this rollout.",
            parameters={"type": "object", "properties": {}, "additionalProperties": False},
            needs_sandbox=False,
            side_effects="none",
        )
    ]


@hookimpl
def hermes_verifiers() -> list[VerifierSpec]:
    """Declare the verifier."""
    return [
        VerifierSpec(
            name=ANSWER,
            summary="Judges an answer by its text.",
            target="hermes_testing.engine_parts:Answer",
            needs_sandbox=False,
        )
    ]
