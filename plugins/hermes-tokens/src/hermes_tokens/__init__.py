"""Token ids: the append rule, the trajectory of a rollout, and the report on how exact it is.

What a client of another token-level server is written with is here, and what a trainer is handed; each name is
imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hermes_tokens.generation import FinishReason, GenerateClient, Generated, GenerateRequest, TokenIds
    from hermes_tokens.training_group import TrainingGroup, TrainingItem

__all__ = [
    "FinishReason",
    "GenerateClient",
    "GenerateRequest",
    "Generated",
    "TokenIds",
    "TrainingGroup",
    "TrainingItem",
]

_OF_TRAINING: Final = frozenset({"TrainingGroup", "TrainingItem"})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "hermes_tokens.training_group" if name in _OF_TRAINING else "hermes_tokens.generation"
    return getattr(import_module(module), name)
