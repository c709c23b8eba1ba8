"""Compare two names of parsers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_core.discovery import Registry


def is_same_parser(registry: Registry, first: str, second: str) -> bool:
    """Return whether the names are equal, or both are installed and lead to the same code of the same plugin."""
    if first == second:
        return True
    installed = registry.names("parser")
    if first.rpartition(":")[2] not in installed or second.rpartition(":")[2] not in installed:
        return False
    one, other = registry.component("parser", first), registry.component("parser", second)
    return one.plugin is other.plugin and getattr(one.spec, "target", "") == getattr(other.spec, "target", None)
