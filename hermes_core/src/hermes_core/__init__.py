"""A plugin framework for agentic reinforcement-learning environments.

Names are imported on first use (PEP 562), so that `import hermes_core` costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_core.discovery import PluginSettings, Registry, load_plugins
    from hermes_core.hookspecs import hookimpl
    from hermes_sandbox import open_sandbox

__version__ = "0.1.0"

_HOMES = {
    "PluginSettings": "hermes_core.discovery",
    "Registry": "hermes_core.discovery",
    "hookimpl": "hermes_core.hookspecs",
    "load_plugins": "hermes_core.discovery",
    # An alias: sandboxes are a package of their own, which the kernel does not need.
    "open_sandbox": "hermes_sandbox",
}

__all__ = ["PluginSettings", "Registry", "__version__", "hookimpl", "load_plugins", "open_sandbox"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'hermes_core' has no attribute {name!r}")
    import importlib

    try:
        home = importlib.import_module(_HOMES[name])
    except ModuleNotFoundError as error:
        if error.name != "hermes_sandbox":
            raise
        raise ImportError(f"{name} is part of hermes-sandbox: pip install hermes-sandbox") from error
    value: object = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
