"""The worker process: imports and calls the code under test, and holds nothing that the code could damage.

Run as a program by `module_proxies`, with two descriptors and the folders to import from.
"""

from __future__ import annotations

import collections.abc  # noqa: F401 - code under test may use it without importing it
import importlib
import os
import sys

from hermes_verifiers.hidden_tests.object_codec import Codec, Line, base_of, builtin, exception, is_builtin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Work(Codec):
    """The worker's end of the connection: imports, calls and replies."""

    def __init__(self, line: Line) -> None:
        """Take the connection."""
        super().__init__()
        self._line = line

    def object_out(self, value: Any) -> Any:
        """Encode an object as a handle."""
        if is_builtin(value):
            return {"builtin": value.__name__}
        if isinstance(value, type) and issubclass(value, BaseException):
            return {"raises": [self.hold(value), value.__name__, base_of(value)]}
        return {"object": [self.hold(value), type(value).__name__]}

    def object_in(self, data: dict[str, Any]) -> Any:
        """Decode a handle, or make a function that calls one of the judge's."""
        if "yours" in data:
            return self.held[data["yours"]]
        if "builtin" in data:
            return builtin(data["builtin"])
        number = data["call"]

        def call(*args: Any, **options: Any) -> Any:
            given = [[self.out(arg) for arg in args], {name: self.out(arg) for name, arg in options.items()}]
            self._line.send({"call": number, "given": given})
            answer = self._line.receive()
            if "raised" in answer:
                raise exception(answer["raised"])(answer["message"])
            return self.back(answer["value"])

        return call

    def run(self) -> None:
        """Reply to requests until the judge has gone."""
        while True:
            try:
                request = self._line.receive()
            except EOFError:
                return
            try:
                answer = self._answer(request)
            except BaseException as error:  # noqa: BLE001 - whatever the code under test raises, the judge hears of it
                answer = self._failure(error)
            self._line.send(answer)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        args = [self.back(arg) for arg in request["args"]]
        if request["ask"] != "call":
            return {"value": self.out(getattr(self, "ask_" + request["ask"])(*args))}
        given = [self.back(arg) for arg in request["given"][0]]
        options = {name: self.back(arg) for name, arg in request["given"][1].items()}
        value = self.out(args[0](*given, **options))
        return {"value": value, "given": [self.out(arg) for arg in (*given, *options.values())]}

    def _failure(self, error: BaseException) -> dict[str, Any]:
        kind = type(error)
        number = 0 if is_builtin(kind) else self.hold(kind)
        try:
            text = error.args[0] if len(error.args) == 1 and isinstance(error.args[0], (str, int)) else str(error)
        except Exception:  # noqa: BLE001 - its own text may raise as well
            text = ""
        return {"raised": {"raises": [number, kind.__name__, base_of(kind)]}, "message": self.out(text)}

    def ask_import(self, name: str) -> Any:
        """Import a module; return it and its public names."""
        module = importlib.import_module(name)
        names = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        return module, list(names)

    def ask_get(self, value: Any, name: str) -> Any:
        """Return an attribute."""
        return getattr(value, name)

    def ask_set(self, value: Any, name: str, new: Any) -> None:
        """Set an attribute."""
        setattr(value, name, new)

    def ask_do(self, value: Any, name: str, *args: Any) -> Any:
        """Call a special method like an operator, on the class."""
        method = getattr(type(value), name, None)
        if method is None:
            raise TypeError(f"a {type(value).__name__} has no {name}")
        return method(value, *args)

    def ask_eq(self, value: Any, other: Any) -> bool:
        """Compare."""
        return bool(value == other)

    def ask_truth(self, value: Any) -> bool:
        """Return an object's truth value."""
        return bool(value)

    def ask_isinstance(self, kind: Any, value: Any) -> bool:
        """Tell whether an object is of a class."""
        return isinstance(value, kind)

    def ask_repr(self, value: Any) -> str:
        """Return an object's text."""
        return repr(value)

    def ask_str(self, value: Any) -> str:
        """Return an object's text."""
        return str(value)

    def ask_iter(self, value: Any) -> Any:
        """Return an iterator."""
        return iter(value)

    def ask_next(self, steps: Any) -> Any:
        """Return the next item in a tuple, an empty one at the end."""
        for item in steps:
            return (item,)
        return ()


def main() -> None:
    """Serve the judge that started this process."""
    reader, writer = int(sys.argv[1]), int(sys.argv[2])
    for number in (reader, writer):
        os.set_inheritable(number, False)
    sys.path += sys.argv[3:]
    sys.argv[1:] = []
    Work(Line(reader, writer)).run()
