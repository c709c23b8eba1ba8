"""The verifier `json_schema`: JSON that must satisfy a schema."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from hermes_core.contracts.rollout import AgentResult
from hermes_core.contracts.verifier import Score
from hermes_verifiers.texts.judged_text import SubjectOptions
from hermes_verifiers.texts.patterns import Exhausted, PatternSeconds, validate


class JsonSchemaVerifier:
    """Parses the final answer (whole, or its last fenced block) or a file, and validates it.

    `parsed` is the credit for JSON that does not satisfy the schema. References to other documents are not fetched. A
    text that takes more than `timeout` seconds of processor time scores 0, because the model wrote it.
    """

    class Options(SubjectOptions):
        """The schema, under the key `schema`."""

        json_schema: dict[str, Any] = Field(alias="schema")
        parsed: float = Field(default=0.0, ge=0, lt=1)
        timeout: PatternSeconds = 10.0

        @field_validator("json_schema")
        @classmethod
        def _is_a_schema(cls, value: dict[str, Any]) -> dict[str, Any]:
            from jsonschema import Draft202012Validator, SchemaError

            try:
                Draft202012Validator.check_schema(value)
            except SchemaError as error:
                raise ValueError(f"not a JSON schema: {error.message}") from error
            return value

    def __init__(self, options: Options) -> None:
        self._options = options

    async def score(self, result: AgentResult, context: Any) -> Score:
        """Parse and validate."""
        text, problem = await self._options.subject(result, context)
        errors: list[str] = []
        if not problem:
            try:
                errors, problem = await validate(text, self._options.json_schema, timeout=self._options.timeout)
            except Exhausted as exhausted:
                problem = str(exhausted)
        if problem:
            return Score(value=0.0, parts={"parses": 0.0, "valid": 0.0}, detail=problem)
        if errors:
            return Score(value=self._options.parsed, parts={"parses": 1.0, "valid": 0.0}, detail="; ".join(errors))
        return Score(value=1.0, parts={"parses": 1.0, "valid": 1.0})
