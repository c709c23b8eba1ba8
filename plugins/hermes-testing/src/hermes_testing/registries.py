"""Registries for tests: only what the test names, never what happens to be installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

CORE = "hermes_core.plugin"


def isolated_registry(*modules: str, core: bool = True) -> Registry:
    """Build a registry of the named plugin modules, strictly, without looking at installed plugins.

    The core's own components are there unless `core` is false: a tool needs a sandbox to run in.
    """
    from hermes_core.discovery import PluginSettings, load_plugins

    wanted = [CORE, *modules] if core else list(modules)
    return load_plugins(PluginSettings(allow=(), extra=tuple(dict.fromkeys(wanted)), strict=True))
