"""Imports the agent's modules from memory, as they were sent, never from files of the sandbox."""

from __future__ import annotations

import marshal
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType
    from typing import Any
else:
    from _frozen_importlib import ModuleSpec


class Importer:
    """Finds and loads the sent modules, each as marshalled code or as text that is compiled when it is imported."""

    def __init__(self, sent: dict[str, bytes | str]) -> None:
        self._sent = sent
        self._packages = {name.rpartition(".")[0] for name in sent}

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module; None for one that is not the agent's."""
        if name not in self._sent:
            return None
        loader: Any = self  # ModuleSpec is typed to need `load_module` too, which no Python since 3.4 calls
        return ModuleSpec(name, loader, is_package=name in self._packages)

    def create_module(self, _spec: ModuleSpec) -> None:
        """Return None: Python creates the module in its usual way."""

    def exec_module(self, module: ModuleType) -> None:
        """Run a module, and drop its code or text."""
        name = module.__name__
        exec(read_code(name, self._sent[name]), module.__dict__)  # noqa: S102 - it comes from the caller
        del self._sent[name]


def read_code(name: str, sent: bytes | str) -> CodeType:
    """Return the code of a module as it was sent."""
    if isinstance(sent, str):
        return compile(sent, file_name(name), "exec", dont_inherit=True)
    code: CodeType = marshal.loads(sent)  # noqa: S302 - it comes from the caller
    return code


def file_name(module: str) -> str:
    """Return the file name of an agent's module in tracebacks."""
    return f"<hermes-agent {module.replace('hermes_sandbox.agent.', '', 1).replace('.', '/')}.py>"


def install_importer(sent: dict[str, bytes | str]) -> None:
    """Install the importer in front of all others."""
    sys.meta_path.insert(0, Importer(sent))
