"""Command queue of a slot: serial, and idempotent by execution id."""

from __future__ import annotations

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING
from hermes_sandbox.agent.slot import Slot

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_REMEMBERED = 64


class CommandQueue:
    """The running command, the waiting ones, and the results of those that a caller can request again."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._count = 0
        self._running: QueuedCommand | None = None
        self._queue: list[QueuedCommand] = []
        self._known: dict[str, QueuedCommand] = {}

    def ask(self, request: dict[str, Any], body: bytes, answer: Any) -> Callable[[], None]:
        """Queue a command, or wait for the one with the same execution id. Return a function that cancels this."""
        execution = request.get("execution")
        command = self._known.get(execution) if execution is not None else None
        if command is None:
            self._count += 1
            marker = f"{self._slot.marker}.{self._count}"
            command = QueuedCommand(self, execution, self._slot.session.command(request, body, marker))
            if execution is not None:
                self._known[execution] = command
                self._forget_oldest()
            self._queue.append(command)
        command.add(answer)
        self._start_next()
        return lambda: command.withdraw(answer)

    def _forget_oldest(self) -> None:
        for name, command in list(self._known.items())[: max(0, len(self._known) - _REMEMBERED)]:
            if command.result is not None:
                del self._known[name]

    def _start_next(self) -> None:
        while self._running is None and self._queue:
            command = self._running = self._queue.pop(0)
            command.start()

    def go_on_after(self, command: QueuedCommand) -> None:
        """Start the next command after this one has ended."""
        if self._running is command:
            self._running = None
        self._start_next()

    def drop(self, command: QueuedCommand) -> bool:
        """Remove a command that has not started. Return False if it has."""
        if command not in self._queue:
            return False
        self._queue.remove(command)
        self.forget(command)
        return True

    def forget(self, command: QueuedCommand) -> None:
        """Forget a command that has not run, so that it can be requested again."""
        if command.execution is not None:
            self._known.pop(command.execution, None)

    def close(self) -> None:
        """Drop all commands. Each caller has been answered, or is answered when the processes end."""
        self._queue = []
        self._known.clear()


class QueuedCommand:
    """A command and the callers that wait for its result."""

    def __init__(self, queue: CommandQueue, execution: str | None, command: Any) -> None:
        self.execution = execution
        self.result: tuple[dict[str, Any], bytes] | None = None
        self._queue = queue
        self._command = command
        self._answers: list[Any] = []

    def add(self, answer: Any) -> None:
        """Add a caller, which is answered at once if the result is known."""
        if self.result is not None:
            answer(*self.result)
        else:
            self._answers.append(answer)

    def start(self) -> None:
        """Start the command. If it cannot be started, all its callers get the error."""
        self._command.done = self._answer_all
        try:
            self._command.start()
        except OSError as error:
            answers, self._answers = self._answers, []
            self._queue.forget(self)
            for answer in answers:
                answer.fail(error)
            self._queue.go_on_after(self)

    def _answer_all(self, values: dict[str, Any], output: bytes) -> None:
        self.result = (values, output) if self.execution is not None else None
        answers, self._answers = self._answers, []
        for answer in answers:
            answer(values, output)
        self._queue.go_on_after(self)

    def withdraw(self, answer: Any) -> None:
        """Cancel one caller's request, and stop the command unless other callers wait for it."""
        if len(self._answers) > 1 and answer in self._answers:
            self._answers.remove(answer)
            answer({"cancelled": True}, b"")
        elif self._queue.drop(self):
            self._answers = []
            answer({"cancelled": True}, b"")
        else:
            self._command.stop("cancel")


def execute(slot: Slot, request: dict[str, Any], body: bytes, answer: Any) -> Callable[[], None]:
    """Run a bash command in the session."""
    queue: CommandQueue = slot.features.setdefault("command_queue", CommandQueue(slot))
    return queue.ask(request, body, answer)


WAITS = {"exec": execute}
