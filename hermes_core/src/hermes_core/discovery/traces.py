"""Tracebacks for a plugin's author: without the frames of the loader and of the import system."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Final

from hermes_core.contracts.errors import BrokenComponentError, PluginError

_CORE: Final = Path(__file__).parent.parent
_OWN: Final = (str(_CORE / "discovery"), str(_CORE / "lazy.py"), "<frozen importlib")
"""Prefixes of the files whose frames only lead from the loader to a plugin's code."""


def plugin_error(what: str, plugin: str, error: BaseException) -> PluginError:
    """Return the error for a plugin's code that raised; `--debug` prints the traceback of its cause."""
    message = f"{what} of plugin {plugin} raised {type(error).__name__}: {error}"
    return BrokenComponentError(message, hint=f"--debug prints the traceback; see: hermes-core plugins show {plugin}")


def brief_trace(error: BaseException) -> str:
    """Format an exception with its causes; empty if only the loader's frames led to it."""
    chain = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = chain
    has_frames = isinstance(error, SyntaxError)
    while part is not None:
        frames = [frame for frame in part.stack if not frame.filename.startswith(_OWN)]
        frames = [f for f in frames if f.name != "import_module" or not f.filename.endswith("__init__.py")]
        part.stack = traceback.StackSummary.from_list(frames)
        has_frames = has_frames or bool(part.stack)
        part = part.__cause__ or part.__context__
    return "".join(chain.format()) if has_frames else ""
