"""A plugin framework for agentic reinforcement-learning environments.

Names are imported on first use (PEP 562), so that `import hermes_core` costs next to nothing.
"""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_core.discovery import PluginSettings, Registry, load_plugins
    from hermes_core.hookspecs import hookimpl

__version__ = "0.1.0"

__all__ = ["PluginSettings", "Registry", "__version__", "hookimpl", "load_plugins"]

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__, {".discovery": "PluginSettings Registry load_plugins", ".hookspecs": "hookimpl"}
    )
