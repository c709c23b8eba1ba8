"""The plugin module: declarations only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import VerifierSpec

_DECLARED: Final = (
    ("exit_code", "commands.exit_code:ExitCodeVerifier", "Commands exit with the expected code; weighted checks."),
    (
        "file_content",
        "texts.file_content:FileContentVerifier",
        "Files have the expected content; weighted checks per path.",
    ),
    (
        "pytest",
        "hidden_tests.verifier:HiddenTestsVerifier",
        "Hidden pytest or unittest tests, run in the sandbox after the rollout.",
    ),
    (
        "script",
        "commands.script:ScriptVerifier",
        "A hidden script, scored by its exit code, its report or a result file.",
    ),
    ("exact_match", "texts.matching:ExactMatchVerifier", "The final answer or a file equals the expected text."),
    ("regex_match", "texts.matching:RegexMatchVerifier", "The final answer or a file matches patterns."),
    (
        "numeric_match",
        "texts.matching:NumericMatchVerifier",
        "The final answer or a file contains a number within a tolerance.",
    ),
    (
        "json_schema",
        "texts.json_schema:JsonSchemaVerifier",
        "The final answer or a file is JSON that satisfies a schema.",
    ),
    ("weighted", "composition:WeightedVerifier", "The weighted mean of other verifiers."),
    ("gated", "composition:GatedVerifier", "0 unless every gate scores full, then the weighted mean."),
)


@hookimpl
def hermes_verifiers() -> Iterable[VerifierSpec]:
    """Declare the verifiers."""
    return [
        VerifierSpec(name=name, summary=summary, target=f"hermes_verifiers.{target}")
        for name, target, summary in _DECLARED
    ]
