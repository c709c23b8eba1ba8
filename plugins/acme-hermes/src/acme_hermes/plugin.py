"""What this plugin declares. Nothing below is imported before a run uses it."""

from __future__ import annotations

from typing import Final

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import BackendSpec, ParserSpec, ToolSpec, VerifierSpec

NICED: Final = BackendSpec(
    name="acme_niced",
    summary="Processes of this machine at a low priority.",
    target="acme_hermes.niced:NicedBackend",
    limits=frozenset({"pids"}),
    requires=("bin:nice",),
)


@hookimpl
def hermes_tools() -> list[ToolSpec]:
    """Declare an asynchronous tool and a synchronous one."""
    path = {"type": "string", "description": "Path of the file in the sandbox."}
    query = {"type": "string", "description": "Keys and list indexes with dots between: users.0.name"}
    return [
        ToolSpec(
            name="acme_json_query",
            summary="Pick a value out of a JSON file.",
            target="acme_hermes.tools:JsonQuery",
            toolset="acme",
            description="Read a JSON file and return the value at a dotted path, as JSON.",
            parameters={
                "type": "object",
                "properties": {"path": path, "query": query},
                "required": ["path", "query"],
                "additionalProperties": False,
            },
            parallel_safe=True,
            side_effects="none",
        ),
        ToolSpec(
            name="acme_word_count",
            summary="Count the words of a text file.",
            target="acme_hermes.tools:WordCount",
            toolset="acme",
            description="Count lines, words and characters of a text file.",
            parameters={
                "type": "object",
                "properties": {"path": path},
                "required": ["path"],
                "additionalProperties": False,
            },
            parallel_safe=True,
            side_effects="none",
        ),
    ]


@hookimpl
def hermes_verifiers() -> list[VerifierSpec]:
    """Declare the verifier `acme_word_overlap`."""
    return [
        VerifierSpec(
            name="acme_word_overlap",
            summary="How well the words of a file match those of a reference.",
            target="acme_hermes.overlap:WordOverlap",
        )
    ]


@hookimpl
def hermes_parsers() -> list[ParserSpec]:
    """Declare the parser `acme_fence`."""
    return [
        ParserSpec(
            name="acme_fence",
            summary="Calls in fenced code blocks of the language 'tool'.",
            target="acme_hermes.fence:FenceParser",
        )
    ]


@hookimpl
def hermes_parser_for(model_id: str) -> str | None:
    """Choose the parser for Acme's own models."""
    return "acme_fence" if model_id.lower().startswith("acme/") else None


@hookimpl
def hermes_backends() -> list[BackendSpec]:
    """Declare the backend `acme_niced`."""
    return [NICED]
