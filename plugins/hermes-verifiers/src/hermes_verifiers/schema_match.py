"""JSON that must satisfy a schema."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from pydantic import Field, field_validator

from hermes_core.contracts.rollout import AgentResult
from hermes_core.contracts.verifier import Score
from hermes_verifiers.subject import SubjectOptions

_FENCE: Final = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)


class JsonSchemaVerifier:
    """Parses the final answer (whole, or its last fenced block) or a file, and validates it.

    `parsed` is the credit for JSON that does not satisfy the schema. References to other documents are not fetched.
    """

    class Options(SubjectOptions):
        """The schema, under the key `schema`."""

        json_schema: dict[str, Any] = Field(alias="schema")
        parsed: float = Field(default=0.0, ge=0, lt=1)

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
        if not problem:
            try:
                return self._validated(_parsed(text))
            except (ValueError, RecursionError) as error:
                problem = f"no JSON: {error}"
        return Score(value=0.0, parts={"parses": 0.0, "valid": 0.0}, detail=problem)

    def _validated(self, value: Any) -> Score:
        from jsonschema import Draft202012Validator
        from referencing import Registry

        validator = Draft202012Validator(self._options.json_schema, registry=Registry())
        errors = [f"{error.json_path}: {error.message[:150]}" for error in validator.iter_errors(value)]
        if not errors:
            return Score(value=1.0, parts={"parses": 1.0, "valid": 1.0})
        detail = "; ".join(errors[:4])
        return Score(value=self._options.parsed, parts={"parses": 1.0, "valid": 0.0}, detail=detail)


def _parsed(text: str) -> Any:
    """Parse the text itself, else its last fenced block."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        blocks = _FENCE.findall(text)
        if not blocks:
            raise
        return json.loads(blocks[-1], parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
