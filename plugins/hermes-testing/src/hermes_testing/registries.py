"""Registries for tests: they contain only the named plugins, not the installed ones."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

STANDARD = (
    "hermes_sandbox.plugin",
    "hermes_tools.plugin",
    "hermes_models.plugin",
    "hermes_runner.plugin",
)
"""The packages that a rollout needs; those that are installed are included."""


def isolated_registry(*modules: str, core: bool = True) -> Registry:
    """Build a registry of the named plugin modules, strictly, without looking at installed plugins.

    The plugins of the packages that a rollout needs are included unless `core` is false: a tool needs a
    sandbox, for example.
    """
    from hermes_core.discovery import PluginSettings, load_plugins

    wanted = [*_standard(), *modules] if core else list(modules)
    return load_plugins(PluginSettings(allow=(), extra=tuple(dict.fromkeys(wanted)), strict=True))


def _standard() -> list[str]:
    return [name for name in STANDARD if importlib.util.find_spec(name.partition(".")[0]) is not None]
