"""Token ids: the append rule, the trajectory of a rollout, and the report on how exact it is.

What a client of another token-level server is written with is here, each name imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_tokens.generation import FinishReason, GenerateClient, Generated, GenerateRequest, TokenIds

__all__ = ["FinishReason", "GenerateClient", "GenerateRequest", "Generated", "TokenIds"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("hermes_tokens.generation"), name)
