"""Compute digests of a process's code, because versions do not change while a plugin or the framework is edited."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from hermes_core import __version__
from hermes_core.discovery import CORE_DISTRIBUTION, PluginRecord, PluginState
from hermes_core.specs import ComponentSpec

_SHOWN: Final = 12
"""How many hexadecimal digits of a digest are used; enough to tell different code apart."""


def loaded_code(plugins: Iterable[PluginRecord]) -> dict[str, str]:
    """Return the version of the core and of every loaded plugin, by id, with a digest of its Python files.

    A plugin's files are those of the packages that contain its entry point and its targets, wherever they are
    installed; an editable install counts by the present content of its folder. Two processes with equal results can
    exchange a run's rollouts. Reads some megabytes: call it once, and in a thread.
    """
    digests: dict[str, str] = {}
    found = {CORE_DISTRIBUTION: f"{__version__} (code {_digest_of({'hermes_core'}, digests)})"}
    for record in plugins:
        if record.state is PluginState.LOADED:
            own = [] if record.found.path is None else [_digest([("", Path(record.found.path))])]
            code = _combine([*own, _digest_of(set(_modules(record)), digests)])
            found[record.id] = f"{record.found.version} (code {code})".lstrip()
    return found


def _modules(record: PluginRecord) -> Iterator[str]:
    """Return a plugin's modules, except those of a single file outside of any package."""
    names = [spec.target for _, spec in record.declared if isinstance(spec, ComponentSpec)]
    if record.found.path is None:
        names.append(record.found.value)
    modules = (name.partition(":")[0].strip() for name in names)
    return (module for module in modules if record.found.path is None or module != record.found.name)


def _digest_of(modules: Iterable[str], known: dict[str, str]) -> str:
    """Return a digest of the packages that contain the modules; each package is read once."""
    packages = {name: origin for module in modules for name, origin in _package(module)}
    for name, origin in packages.items():
        if name not in known:
            known[name] = _digest(_files(name, origin))
    return _combine(known[name] for name in sorted(packages))


def _package(module: str) -> Iterator[tuple[str, Path]]:
    """Find the outermost package of a module that belongs to one distribution alone, below shared namespaces."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):  # missing, or without a known origin
            return
        if spec is not None and spec.has_location and spec.origin is not None:
            yield name, Path(spec.origin)
            return


def _files(name: str, origin: Path) -> Iterator[tuple[str, Path]]:
    if origin.name != "__init__.py":
        yield name, origin
        return
    for path in sorted(origin.parent.rglob("*.py")):
        yield f"{name}/{path.relative_to(origin.parent).as_posix()}", path


def _digest(files: Iterable[tuple[str, Path]]) -> str:
    """Return a digest of files and of their names, which are the same on every machine."""
    parts = (f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for name, path in files if path.is_file())
    return _combine(parts)


def _combine(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:_SHOWN]
