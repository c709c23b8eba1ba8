"""A model that plays fixed steps: a task's solution or one of its cheats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from hermes_core.contracts.model import ModelReply, ModelRequest
from hermes_core.contracts.task import Step
from hermes_models.embedded import DONE, EmbeddedModel, Turn, assistant_turns, play


class ScriptedModel(EmbeddedModel):
    """Plays the steps one call a turn, then the answer.

    The position is read from the conversation, so one object serves any number of rollouts at a time. `earlier_turns`
    is the number of assistant messages the task itself begins with.
    """

    name: ClassVar[str] = "scripted"

    def __init__(self, steps: Sequence[Step], answer: str | None = None, *, earlier_turns: int = 0) -> None:
        self._turns = [Turn.of(step) for step in steps]
        self._answer = DONE if answer is None else answer
        self._earlier_turns = earlier_turns

    async def chat(self, request: ModelRequest) -> ModelReply:
        """Play the next step."""
        position = assistant_turns(request.conversation.messages) - self._earlier_turns
        return play(self._turns, self._answer, position=position, conversation=request.conversation)
