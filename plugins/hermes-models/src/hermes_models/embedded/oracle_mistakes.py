"""Seeded mistakes of the oracle: wrong calls of a weak model, which real tools answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hermes_core.contracts.model import encode
from hermes_core.contracts.task import Step
from hermes_models.embedded.embedded import DONE, Turn

GAVE_UP: Final = "I could not find a way to do this."

_WrongCall = Callable[[Step, random.Random], Turn]

_MOST_MISTAKES: Final = 3
_CHANCE_OF_RECOVERY: Final = 0.5
_CORRECTION: Final = "That call was wrong; here is the right one."
_MISSPELT: Final = ("run_{}", "{}_tool", "{}2", "functions.{}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The script of one rollout; `mistakes` names its mistakes, for tests and for readers."""

    turns: tuple[Turn, ...]
    answer: str
    mistakes: tuple[str, ...] = ()


def draw_script(steps: Sequence[Step], answer: str | None, *, rate: float, rng: random.Random) -> Script:
    """Draw one rollout's script: `rate` is the chance of a mistake, then of another one, at most three.

    The following turn corrects a mistake or leaves it. Whether it costs reward is up to the verifier.
    """
    turns: list[Turn] = []
    mistakes: list[str] = []
    final = DONE if answer is None else answer
    kinds = (*_WRONG_CALLS, "skipped", "gave_up", *(("wrong_answer",) if answer is not None else ()))
    wrong_steps = _draw_steps(len(steps), rate, rng)
    for index, step in enumerate(steps):
        kind = rng.choice(kinds) if index in wrong_steps else None
        if kind is not None:
            mistakes.append(kind)
        if kind == "gave_up":
            return Script(turns=tuple(turns), answer=_wrong_answer(answer), mistakes=tuple(mistakes))
        if kind == "wrong_answer":
            final = _wrong_answer(answer)
        if kind in {None, "wrong_answer"}:
            turns.append(Turn.of(step))
        elif kind != "skipped":
            turns += _wrong_turns(_WRONG_CALLS[kind], step, rng)
    if not steps and answer is not None and rng.random() < rate:
        return Script(turns=(), answer=_wrong_answer(answer), mistakes=("wrong_answer",))
    return Script(turns=tuple(turns), answer=final, mistakes=tuple(mistakes))


def _wrong_turns(wrong: _WrongCall, step: Step, rng: random.Random) -> list[Turn]:
    """Return the wrong call, followed by the right one in half of the cases."""
    turn = wrong(step, rng)
    return [turn, Turn.of(step, _CORRECTION)] if rng.random() < _CHANCE_OF_RECOVERY else [turn]


def _draw_steps(count: int, rate: float, rng: random.Random) -> set[int]:
    drawn: set[int] = set()
    while len(drawn) < min(count, _MOST_MISTAKES) and rng.random() < rate:
        drawn.add(rng.choice([index for index in range(count) if index not in drawn]))
    return drawn


def _truncated_argument(step: Step, rng: random.Random) -> Turn:
    """Truncate the longest text argument, like a model that stops in the middle of a command."""
    texts = {name: value for name, value in step.arguments.items() if isinstance(value, str) and len(value) > 1}
    if not texts:
        return _bad_argument(step, rng)
    name = max(texts, key=lambda key: len(texts[key]))
    cut = texts[name][: rng.randrange(1, len(texts[name]))]
    return Turn.of(Step(tool=step.tool, arguments={**step.arguments, name: cut}))


def _wrong_command(step: Step, rng: random.Random) -> Turn:
    """Call the right tool with another command: one that only lists things."""
    if "command" in step.arguments:
        command = rng.choice(("ls -la", "pwd", "cat README.md", "git status", "false"))
        return Turn.of(Step(tool=step.tool, arguments={**step.arguments, "command": command}))
    if isinstance(step.arguments.get("path"), str):
        return Turn.of(Step(tool=step.tool, arguments={**step.arguments, "path": f"{step.arguments['path']}.orig"}))
    return _truncated_argument(step, rng)


def _unknown_tool(step: Step, rng: random.Random) -> Turn:
    return Turn(tool=rng.choice(_MISSPELT).format(step.tool), arguments=encode(step.arguments).decode())


def _invalid_json(step: Step, rng: random.Random) -> Turn:
    text = encode(step.arguments).decode()
    broken = rng.choice((text[:-1], text + "}", text.replace('":', '" ', 1), f"```json\n{text}"))
    return Turn(tool=step.tool, arguments=broken if broken != text else text[:-1])


def _bad_argument(step: Step, rng: random.Random) -> Turn:
    """Misspell one argument's name, omit one, or give it the wrong type."""
    arguments: dict[str, Any] = dict(step.arguments)
    if not arguments:
        return Turn.of(Step(tool=step.tool, arguments={"unexpected": True}))
    name = rng.choice(sorted(arguments))
    how = rng.choice(("misspelt", "forgotten", "mistyped"))
    value = arguments.pop(name)
    if how == "misspelt":
        arguments[f"{name}_value"] = value
    elif how == "mistyped":
        arguments[name] = {"value": value}
    return Turn.of(Step(tool=step.tool, arguments=arguments))


_WRONG_CALLS: Final[dict[str, _WrongCall]] = {
    "truncated": _truncated_argument,
    "wrong_command": _wrong_command,
    "unknown_tool": _unknown_tool,
    "invalid_json": _invalid_json,
    "bad_argument": _bad_argument,
}


def _wrong_answer(answer: str | None) -> str:
    """Return a wrong answer: the next number for a number, otherwise a sentence that gives up."""
    try:
        return str(int(answer or "") + 1)
    except ValueError:
        return GAVE_UP
