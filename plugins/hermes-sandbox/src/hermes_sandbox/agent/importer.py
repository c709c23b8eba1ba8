"""Imports the agent's modules from what was sent; nothing in the sandbox is looked at for them."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any


class Importer:
    """Finds and loads the modules that were sent, each as code or as text that is compiled when it is imported."""

    def __init__(self, sent: dict[str, CodeType | str]) -> None:
        self._sent = sent
        self._packages = {name.rpartition(".")[0] for name in sent}

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        """Return how to load a module; None for one that is not the agent's."""
        if name not in self._sent:
            return None
        loader: Any = self  # ModuleSpec is declared to want `load_module` as well, which no Python from 3.4 on calls
        return ModuleSpec(name, loader, is_package=name in self._packages)

    def create_module(self, _spec: ModuleSpec) -> None:
        """Have Python make the module as it makes any other."""

    def exec_module(self, module: ModuleType) -> None:
        """Run a module, and drop what it was made from."""
        name = module.__name__
        code = self._sent.pop(name)
        if isinstance(code, str):
            code = compile(code, file_name(name), "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102 - it comes from the caller


def file_name(module: str) -> str:
    """Return what tracebacks call the file of a module of the agent."""
    return f"<hermes-agent {module.replace('hermes_sandbox.agent.', '', 1).replace('.', '/')}.py>"


def install_importer(sent: dict[str, CodeType | str]) -> None:
    """Have the agent's modules imported from what was sent, before anyone else is asked for them."""
    sys.meta_path.insert(0, Importer(sent))
