"""The commands of a slot: one after another, each once, however often it is asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from hermes_sandbox.agent.slot import Slot

_REMEMBERED = 64


class Turns:
    """What runs, what waits for its turn, and the results of those that may be asked for again."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._count = 0
        self._running: Turn | None = None
        self._queue: list[Turn] = []
        self._known: OrderedDict[str, Turn] = OrderedDict()

    def ask(self, request: dict[str, Any], body: bytes, answer: Any) -> Callable[[], None]:
        """Run a command, or wait for the one with the same name; returns what withdraws the question."""
        execution = request.get("execution")
        turn = self._known.get(execution) if execution is not None else None
        if turn is None:
            self._count += 1
            marker = f"{self._slot.marker}.{self._count}"
            turn = Turn(self, execution, self._slot.session.command(request, body, marker))
            if execution is not None:
                self._known[execution] = turn
                self._forget_oldest()
            self._queue.append(turn)
        turn.add(answer)
        self._start_next()
        return lambda: turn.withdraw(answer)

    def _forget_oldest(self) -> None:
        for name, turn in list(self._known.items())[: max(0, len(self._known) - _REMEMBERED)]:
            if turn.result is not None:
                del self._known[name]

    def _start_next(self) -> None:
        while self._running is None and self._queue:
            turn = self._running = self._queue.pop(0)
            turn.start()

    def go_on_after(self, turn: Turn) -> None:
        """Go on with the next one."""
        if self._running is turn:
            self._running = None
        self._start_next()

    def drop(self, turn: Turn) -> bool:
        """Take back what has not started; False if it has."""
        if turn not in self._queue:
            return False
        self._queue.remove(turn)
        self.forget(turn)
        return True

    def forget(self, turn: Turn) -> None:
        """Let a command that has not run be asked for again."""
        if turn.execution is not None:
            self._known.pop(turn.execution, None)

    def close(self) -> None:
        """Nothing is left to do: whoever asked has been answered, or is by the end of the processes."""
        self._queue = []
        self._known.clear()


class Turn:
    """One command and everybody who waits for its result."""

    def __init__(self, turns: Turns, execution: str | None, command: Any) -> None:
        self.execution = execution
        self.result: tuple[dict[str, Any], bytes] | None = None
        self._turns = turns
        self._command = command
        self._answers: list[Any] = []

    def add(self, answer: Any) -> None:
        """Answer also this question, at once if the result is known."""
        if self.result is not None:
            answer(*self.result)
        else:
            self._answers.append(answer)

    def start(self) -> None:
        """Begin; what cannot be started fails everybody who asked."""
        self._command.done = self._answer_all
        try:
            self._command.start()
        except OSError as error:
            answers, self._answers = self._answers, []
            self._turns.forget(self)
            for answer in answers:
                answer.fail(error)
            self._turns.go_on_after(self)

    def _answer_all(self, values: dict[str, Any], output: bytes) -> None:
        self.result = (values, output) if self.execution is not None else None
        answers, self._answers = self._answers, []
        for answer in answers:
            answer(values, output)
        self._turns.go_on_after(self)

    def withdraw(self, answer: Any) -> None:
        """Stop it, unless others wait for it too."""
        if len(self._answers) > 1 and answer in self._answers:
            self._answers.remove(answer)
            answer({"cancelled": True}, b"")
        elif self._turns.drop(self):
            self._answers = []
            answer({"cancelled": True}, b"")
        else:
            self._command.stop("cancel")


def execute(slot: Slot, request: dict[str, Any], body: bytes, answer: Any) -> Callable[[], None]:
    """Run a bash command in the session."""
    turns: Turns = slot.features.setdefault("turns", Turns(slot))
    return turns.ask(request, body, answer)


WAITS = {"exec": execute}
