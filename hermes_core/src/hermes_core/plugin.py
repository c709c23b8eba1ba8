"""The core's own components, registered through the same entry-point group as a stranger's."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import ToolsetSpec


@hookimpl
def hermes_toolsets() -> Iterable[ToolsetSpec]:
    """Declare the predecessor's toolsets."""
    from hermes_core.tooling.toolset_table import TOOLSETS

    return TOOLSETS
