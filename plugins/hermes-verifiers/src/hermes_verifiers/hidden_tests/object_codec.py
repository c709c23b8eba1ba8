"""Encode objects for the connection between hidden tests and the code under test, which runs in a separate process.

The source is sent to the sandbox, like `module_proxies` and `code_worker`, so it uses only the standard library.
Numbers, texts and containers are sent by value, everything else as a handle.
"""

from __future__ import annotations

import builtins
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PLAIN = (bool, int, float, str, type(None))


class Codec:
    """Converts values to JSON and back; each end defines how to encode objects that are not plain values."""

    def __init__(self) -> None:
        """Start without objects."""
        self.held: dict[int, Any] = {}

    def hold(self, value: Any) -> int:
        """Store an object for the other end and return its number."""
        self.held[id(value)] = value
        return id(value)

    def object_out(self, value: Any) -> Any:
        """Encode an object that is not a plain value."""
        raise NotImplementedError

    def object_in(self, data: dict[str, Any]) -> Any:
        """Decode what the other end's `object_out` wrote."""
        raise NotImplementedError

    def out(self, value: Any) -> Any:
        """Encode."""
        kind = type(value)
        if kind in _PLAIN and not (kind is int and abs(value) >> 63):
            return value
        writer = _WRITERS.get(kind)
        return self.object_out(value) if writer is None else {kind.__name__: writer(self, value)}

    def back(self, data: Any) -> Any:
        """Decode."""
        if not isinstance(data, dict):
            return data
        ((kind, body),) = data.items()
        reader = _READERS.get(kind)
        return self.object_in(data) if reader is None else reader(self, body)


def _items_out(codec: Codec, value: Any) -> list[Any]:
    return [codec.out(item) for item in value]


def _pairs_out(codec: Codec, value: Any) -> list[Any]:
    return [[codec.out(key), codec.out(item)] for key, item in value.items()]


_WRITERS: dict[type, Callable[[Codec, Any], Any]] = {
    **dict.fromkeys((list, tuple, set, frozenset), _items_out),
    dict: _pairs_out,
    bytes: lambda _, value: value.hex(),
    bytearray: lambda _, value: value.hex(),
    # Python limits the number of decimal digits of an integer.
    int: lambda _, value: hex(value),
    complex: lambda _, value: [value.real, value.imag],
}
_READERS: dict[str, Callable[[Codec, Any], Any]] = {
    "list": lambda codec, body: [codec.back(item) for item in body],
    "tuple": lambda codec, body: tuple(codec.back(item) for item in body),
    "set": lambda codec, body: {codec.back(item) for item in body},
    "frozenset": lambda codec, body: frozenset(codec.back(item) for item in body),
    "dict": lambda codec, body: {codec.back(key): codec.back(item) for key, item in body},
    "bytes": lambda _, body: bytes.fromhex(body),
    "bytearray": lambda _, body: bytearray.fromhex(body),
    "int": lambda _, body: int(body, 16),
    "complex": lambda _, body: complex(*body),
}


class Line:
    """A connection over two descriptors, with one JSON document per line."""

    def __init__(self, reader: int, writer: int) -> None:
        """Take the descriptors."""
        self._reader = os.fdopen(reader, "rb")
        self._writer = writer

    def send(self, frame: dict[str, Any]) -> None:
        """Write a frame."""
        data = json.dumps(frame).encode() + b"\n"
        while data:
            data = data[os.write(self._writer, data) :]

    def receive(self) -> dict[str, Any]:
        """Read a frame; raises `EOFError` when the other end has gone."""
        data = self._reader.readline()
        if not data.endswith(b"\n"):
            raise EOFError
        frame = json.loads(data)
        if isinstance(frame, dict):
            return frame
        raise EOFError


def builtin(name: str) -> type:
    """Return a class that both sides know, by its name."""
    found = getattr(builtins, name, None)
    if isinstance(found, type):
        return found
    raise ValueError(name)


def is_builtin(value: object) -> bool:
    """Tell whether it is such a class."""
    return isinstance(value, type) and getattr(builtins, value.__name__, None) is value


def exception(name: str) -> type[BaseException]:
    """Return the built-in class of an exception, `Exception` for one that must not reach the judge."""
    found = getattr(builtins, name, None)
    # Unicode errors cannot be created from a text.
    if isinstance(found, type) and issubclass(found, (Exception, SystemExit)) and not issubclass(found, UnicodeError):
        return found
    return Exception


def base_of(kind: type[BaseException]) -> str:
    """Return the name of the nearest class that both sides know."""
    return next(base.__name__ for base in kind.__mro__ if is_builtin(base))
