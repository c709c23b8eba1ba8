"""Functions of the C library, without the package `ctypes`, whose import would be a tenth of the agent's start."""

from __future__ import annotations

import os

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

try:
    import _ctypes

    _Simple: Any = _ctypes._SimpleCData  # noqa: SLF001 - what ctypes itself uses
    _Integer = type("_Integer", (_Simple,), {"_type_": "i"})
    _Character = type("_Character", (_Simple,), {"_type_": "c"})

    class _Function(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
        _restype_ = _Integer

    _LIBRARY = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # None is the program itself

    def load_function(name: str) -> Callable[..., int]:
        """Return a function that returns an int."""
        return _Function(_ctypes.dlsym(_LIBRARY, name))

    def buffer(data: bytes) -> tuple[Any, int]:
        """Return a copy of some bytes, and its address, which is valid while the copy lives."""
        kind: Any = type("_Buffer", (_ctypes.Array,), {"_type_": _Character, "_length_": len(data)})
        copy = kind.from_buffer_copy(data)
        return copy, _ctypes.addressof(copy)

    last_error = _ctypes.get_errno
except (ImportError, AttributeError):  # a Python of another make
    import ctypes

    def load_function(name: str) -> Callable[..., int]:
        """Return a function that returns an int."""
        return getattr(ctypes.CDLL(None, use_errno=True), name)  # type: ignore[no-any-return]  # a function

    def buffer(data: bytes) -> tuple[Any, int]:
        """Return a copy of some bytes, and its address, which is valid while the copy lives."""
        copy = ctypes.create_string_buffer(data)
        return copy, ctypes.addressof(copy)

    last_error = ctypes.get_errno


def prctl(option: int, first: int | bytes, second: int | bytes = 0) -> None:
    """Set an attribute of this process, see the manual page of this name; raises OSError."""
    if load_function("prctl")(option, first, second, 0, 0) != 0:
        number = last_error()
        raise OSError(number, os.strerror(number))
