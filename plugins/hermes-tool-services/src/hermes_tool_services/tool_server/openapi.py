"""The OpenAPI description of the tool server, generated from its payloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from hermes_core.specs import ToolSpec
from hermes_tool_services.wire import ToolResultPayload, ToolServerExecuteRequest

_REFUSALS: Final[Mapping[str, str]] = {
    "400": "The body is not JSON.",
    "401": "The token is missing.",
    "403": "The token is wrong.",
    "413": "The body is too large.",
    "415": "The body is not declared as JSON.",
    "422": "The body has an unknown, missing or mistyped field.",
}


def describe(tools: Iterable[ToolSpec], *, version: str, has_token: bool) -> dict[str, Any]:
    """Return the document, with a separate schema for the arguments of each tool."""
    schemas: dict[str, Any] = {}
    request = _collect(ToolServerExecuteRequest.model_json_schema(ref_template=_REF), schemas)
    result = _collect(ToolResultPayload.model_json_schema(ref_template=_REF), schemas)
    schemas |= {f"arguments_of_{tool.name}": dict(tool.parameters) for tool in tools}
    schemas["Error"] = _ERROR
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "hermes tool server", "version": version},
        "paths": {
            "/": {"get": _operation("Describe the service.", {"type": "object"}, is_open=True)},
            "/health": {"get": _operation("Report that the service works.", {"type": "object"}, is_open=True)},
            "/tools": {"get": _operation("List the tools as OpenAI schemas.", {"type": "object"})},
            "/execute": {"post": _operation("Run a tool.", result, body=request)},
        },
        "components": {"schemas": schemas},
    }
    if has_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


_REF: Final = "#/components/schemas/{model}"
_ERROR: Final = {
    "type": "object",
    "required": ["success", "error"],
    "properties": {
        "success": {"const": False},
        "error": {
            "type": "object",
            "required": ["type", "message", "hint", "retryable"],
            "properties": {
                "type": {"type": "string"},
                "message": {"type": "string"},
                "hint": {"type": ["string", "null"]},
                "retryable": {"type": "boolean"},
            },
        },
    },
}


def _collect(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    schemas.update(schema.pop("$defs", {}))
    schemas[schema["title"]] = schema
    return {"$ref": _REF.format(model=schema["title"])}


def _operation(
    summary: str, result: Mapping[str, Any], *, body: Mapping[str, Any] | None = None, is_open: bool = False
) -> dict[str, Any]:
    responses: dict[str, Any] = {"200": {"description": "Well.", "content": {"application/json": {"schema": result}}}}
    refused = {"application/json": {"schema": {"$ref": _REF.format(model="Error")}}}
    wanted = _REFUSALS if body is not None else {} if is_open else {key: _REFUSALS[key] for key in ("401", "403")}
    responses |= {status: {"description": text, "content": refused} for status, text in wanted.items()}
    operation: dict[str, Any] = {"summary": summary, "responses": responses}
    if is_open:
        operation["security"] = []
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation
