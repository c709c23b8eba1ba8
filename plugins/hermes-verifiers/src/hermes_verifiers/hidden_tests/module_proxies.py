"""The judge's end of the connection between hidden tests and the code under test.

It finds the model's modules and returns proxies for them. A proxy never equals a plain value, whatever the object's
`__eq__` says, and an exception arrives as a class of the judge: no code of the model runs in this process.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import os
import signal
import subprocess
import sys
import types
from _thread import RLock
from pathlib import Path

from hermes_verifiers.hidden_tests.object_codec import Codec, Line, base_of, builtin, exception, is_builtin

# As in `suite_runner`, which says why. All else is imported here: later, hidden files of these names would be found.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    " from hermes_verifiers.hidden_tests.code_worker import main; sys.path.pop(0); main()"
)


class ApartError(Exception):
    """The code under test cannot do what a test requested."""


class Stand:
    """The judge's proxy for an object in the worker."""

    def __init__(self, apart: Apart, number: int, name: str) -> None:
        """Store the connection and the handle."""
        self.__dict__.update(_apart=apart, _number=number, _name=name)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the object."""
        if name.startswith("__") and name not in {"__name__", "__doc__", "__wrapped__"}:
            raise AttributeError(name)
        return self._apart.ask("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the object."""
        self._apart.ask("set", self, name, value)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the object in the worker; changes to lists and dictionaries are copied back."""
        return self._apart.call(self, args, options)

    def __eq__(self, other: object) -> bool:
        """Compare in the worker with another proxied object; it equals nothing else."""
        return isinstance(other, Stand) and bool(self._apart.ask("eq", self, other))

    def __hash__(self) -> int:
        """Return the object's hash."""
        return hash(self._apart.ask("do", self, "__hash__"))

    def __bool__(self) -> bool:
        """Return the object's truth value."""
        return bool(self._apart.ask("truth", self))

    def __instancecheck__(self, value: object) -> bool:
        """Tell whether an object is an instance of this class."""
        return bool(self._apart.ask("isinstance", self, value))

    def __repr__(self) -> str:
        """Return its own text."""
        return str(self._apart.ask("repr", self))

    def __str__(self) -> str:
        """Return its own text."""
        return str(self._apart.ask("str", self))

    def __iter__(self) -> Any:
        """Iterate in the worker, one item at a time."""
        steps = self._apart.ask("iter", self)
        while True:
            item = self._apart.ask("next", steps)
            if not item:
                return
            yield item[0]


def _forwarder(name: str) -> Callable[..., Any]:
    def forward(self: Stand, *args: Any) -> Any:
        return self._apart.ask("do", self, name, *args)

    return forward


def _between_stands(name: str) -> Callable[[Stand, object], Any]:
    def operate(self: Stand, other: object) -> Any:
        return self._apart.ask("do", self, name, other) if isinstance(other, Stand) else NotImplemented

    return operate


# No `in` and no ordering: their results for a plain value would come from the model's code, and so would `!=`.
for _name in ("len", "getitem", "setitem", "delitem", "enter", "exit", "next", "int", "float", "index"):
    setattr(Stand, f"__{_name}__", _forwarder(f"__{_name}__"))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "and", "or", "xor"):
    setattr(Stand, f"__{_name}__", _between_stands(f"__{_name}__"))


class StandModule(types.ModuleType):
    """The module that the judge imports in place of the model's."""

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the model's module."""
        if name.startswith("__") or "_stand" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["_stand"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the model's module, except those that importing sets."""
        if name.startswith("__") or name == "_stand" or isinstance(value, types.ModuleType):
            super().__setattr__(name, value)
        else:
            setattr(self.__dict__["_stand"], name, value)


class Apart(Codec):
    """The judge's end of the connection: imports the model's modules and calls them."""

    def __init__(self, program: str, import_paths: Sequence[str]) -> None:
        """Store the settings; the worker starts on first use."""
        super().__init__()
        self._program = program
        self._paths = list(import_paths)
        self._turn = RLock()
        self._line: Line | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._raised: dict[int, type[BaseException]] = {}

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Find the modules in the import paths; the standard library has precedence."""
        del path, target
        top = fullname.partition(".")[0]
        parent = sys.modules.get(fullname.rpartition(".")[0])
        if "." in fullname and not isinstance(parent, StandModule):
            return None
        if not any(_holds(folder, top) for folder in self._paths):
            return None
        loader: Any = self  # a type checker expects a class of `importlib.abc`
        return importlib.machinery.ModuleSpec(fullname, loader, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        """Create the proxy module."""
        return StandModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Import the module in the worker; any exception there becomes an ImportError here."""
        try:
            stand, names = self.ask("import", module.__name__)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the model's module raises
            raise ImportError(f"{type(error).__name__}: {error}", name=module.__name__) from None
        module.__dict__.update(_stand=stand, __all__=[str(name) for name in names])

    def object_out(self, value: Any) -> Any:
        """Encode proxies as their handles, and functions of a test as callbacks."""
        if isinstance(value, Stand):
            return {"yours": value.__dict__["_number"]}
        if isinstance(value, type) and value in self._raised.values():
            return {"yours": next(number for number, kind in self._raised.items() if kind is value)}
        if is_builtin(value):
            return {"builtin": value.__name__}
        if callable(value):
            return {"call": self.hold(value)}
        raise ApartError(f"cannot pass a {type(value).__name__} to the code under test; set imports to 'inside'")

    def object_in(self, data: dict[str, Any]) -> Any:
        """Return a proxy for an object, or a class of the judge for an exception class."""
        if "yours" in data:
            return self.held[data["yours"]]
        if "raises" in data:
            number, name, base = data["raises"]
            return self._class(int(number), str(name), str(base))
        if "builtin" in data:
            return builtin(str(data["builtin"]))
        number, name = data["object"]
        return Stand(self, int(number), str(name))

    def _class(self, number: int, name: str, base: str) -> type[BaseException]:
        if number == 0:
            return exception(base)
        return self._raised.setdefault(number, type(name, (exception(base),), {}))

    def ask(self, what: str, *args: Any) -> Any:
        """Send a request to the worker; return the reply, or raise the worker's exception."""
        return self.back(self._answer({"ask": what, "args": [self.out(arg) for arg in args]})["value"])

    def call(self, stand: Stand, args: Sequence[Any], options: dict[str, Any]) -> Any:
        """Call an object; its changes to lists, dictionaries and sets among the arguments are copied back."""
        request = {"ask": "call", "args": [self.out(stand)]}
        request["given"] = [[self.out(arg) for arg in args], {name: self.out(value) for name, value in options.items()}]
        answer = self._answer(request)
        for value, data in zip([*args, *options.values()], answer["given"]):  # noqa: B905 - Python 3.8 has no `strict`
            _update(value, self.back(data))
        return self.back(answer["value"])

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._turn:
            try:
                line = self._open_line()
                line.send(request)
                while True:
                    answer = line.receive()
                    if "call" not in answer:
                        break
                    line.send(self._call(answer))
            except (EOFError, OSError, ValueError) as error:
                raise ApartError("the process of the code under test has ended") from error
        return self._read_answer(answer)

    def _read_answer(self, answer: dict[str, Any]) -> dict[str, Any]:
        try:
            if "raised" not in answer:
                return {"value": answer["value"], "given": list(answer.get("given", ()))}
            kind, text = self.back(answer["raised"]), self.back(answer.get("message", ""))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ApartError("the process of the code under test sent an invalid reply") from error
        raise kind(text)

    def _call(self, frame: dict[str, Any]) -> dict[str, Any]:
        try:
            args, options = frame["given"]
            function = self.held[frame["call"]]
            value = function(*map(self.back, args), **{name: self.back(arg) for name, arg in options.items()})
            return {"value": self.out(value)}
        except Exception as error:  # noqa: BLE001 - what a test's function raises goes to the code that called it
            return {"raised": base_of(type(error)), "message": str(error)}

    def _open_line(self) -> Line:
        if self._line is None:
            here, theirs = os.pipe()
            given, ours = os.pipe()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-B", "-c", _PROGRAM, self._program, str(given), str(theirs), *self._paths],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=(given, theirs),
                start_new_session=True,
            )
            os.close(given)
            os.close(theirs)
            self._line = Line(here, ours)
        return self._line

    def close(self) -> None:
        """End the worker."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _holds(folder: str, name: str) -> bool:
    endings = (".py", *importlib.machinery.EXTENSION_SUFFIXES)
    return Path(folder, name).is_dir() or any(Path(folder, name + ending).is_file() for ending in endings)


def _update(value: Any, new: Any) -> None:
    if type(value) is not type(new):
        return
    if type(value) in {list, bytearray}:
        value[:] = new
    elif type(value) in {dict, set}:
        value.clear()
        value.update(new)
