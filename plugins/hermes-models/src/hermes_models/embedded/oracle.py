"""The embedded model `oracle`: follows each task's own solution, with a seeded rate of mistakes."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hermes_core.contracts.errors import ConfigError, ModelRequestError
from hermes_core.contracts.model import Message, ModelReply, ModelRequest, encode
from hermes_core.contracts.task import Task
from hermes_models.embedded.embedded import EmbeddedModel, assistant_turns, reply_at
from hermes_models.embedded.oracle_mistakes import Script, draw_script

NO_SOLUTION = "No solution is known for this task."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A task and the first messages of its conversation, without system messages."""

    task: Task
    opening: tuple[bytes, ...]


class OracleModel(EmbeddedModel):
    """Finds the task by the start of the conversation and follows its solution through real tool calls.

    The mistakes of a rollout depend only on `seed`, the request's seed (the rollout id if it is 0) and the task; the
    position is read from the conversation. So the same run always gives the same calls, in one process and over HTTP.
    """

    name: ClassVar[str] = "oracle"

    def __init__(self, tasks: Iterable[Task], *, mistake_rate: float = 0.25, seed: int = 0) -> None:
        if not 0.0 <= mistake_rate <= 1.0:
            raise ConfigError(f"expected a mistake rate between 0 and 1, got {mistake_rate}")
        self._mistake_rate = mistake_rate
        self._seed = seed
        self._by_opening: defaultdict[bytes, list[_Known]] = defaultdict(list)
        for task in tasks:
            known = _Known(task=task, opening=_said_keys(task.messages))
            self._by_opening[known.opening[0] if known.opening else b""].append(known)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The name and everything that determines the behaviour."""
        return {**super().provenance, "mistake_rate": self._mistake_rate, "seed": self._seed}

    async def chat(self, request: ModelRequest) -> ModelReply:
        """Make the next call of this rollout's script."""
        messages = request.conversation.messages
        task = self._find(messages)
        if task.solution is None:
            return ModelReply(content=NO_SOLUTION)
        script = self.script(task, str(request.seed) if request.seed else request.rollout_id)
        position = assistant_turns(messages) - assistant_turns(task.messages)
        return reply_at(script.turns, script.answer, position=position, conversation=request.conversation)

    def script(self, task: Task, rollout: str) -> Script:
        """Return the script of a rollout; equal arguments give equal scripts on any machine."""
        rng = random.Random(f"{self._seed}/{rollout}/{task.id}")  # noqa: S311 - repeatable on purpose
        return draw_script(task.solution or (), task.answer, rate=self._mistake_rate, rng=rng)

    def _find(self, messages: Sequence[Message]) -> Task:
        """Return the task with the longest opening that the conversation begins with."""
        first = next((message for message in messages if _is_said(message)), None)
        candidates = [] if first is None else self._by_opening.get(_key(first), [])
        if first is None or first.get("role") == "assistant":
            # After system messages alone, the model speaks first.
            candidates = candidates + self._by_opening.get(b"", [])
        if len(candidates) == 1 and len(candidates[0].opening) == 1:
            return candidates[0].task
        said = _said_keys(messages)
        matching = [known for known in candidates if said[: len(known.opening)] == known.opening]
        if not matching:
            raise ModelRequestError(
                "expected a conversation that starts like one of the oracle's tasks, got another one",
                hint="give the oracle the same task file as the run: --tasks FILE",
            )
        longest = max(len(known.opening) for known in matching)
        return _only([known.task for known in matching if len(known.opening) == longest])


def _only(tasks: Sequence[Task]) -> Task:
    """Return the matching task; tasks with equal prompts are accepted if they share one script."""
    first = tasks[0]
    if any((task.solution, task.answer) != (first.solution, first.answer) for task in tasks):
        names = ", ".join(task.id for task in tasks[:5])
        raise ModelRequestError(
            f"expected tasks with different prompts, got {len(tasks)} with the same one: {names}",
            hint="make the prompts differ, or give these tasks the same solution",
        )
    return first


def _is_said(message: Message) -> bool:
    return message.get("role") not in {"system", "developer"}


def _key(message: Message) -> bytes:
    return encode([message.get("role"), message.get("content")])


def _said_keys(messages: Iterable[Message]) -> tuple[bytes, ...]:
    return tuple(_key(message) for message in messages if _is_said(message))
