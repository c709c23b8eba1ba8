"""The core's own subcommands, with one line of help each; a plugin cannot declare one of these names."""

from __future__ import annotations

from typing import Final

CORE_COMMANDS: Final = {"plugins": "list, show and diagnose plugins"}
TOLERANT: Final = "broken-plugins"
"""Capability of a command that has to run where a plugin cannot be loaded, even one that was asked for."""
