"""What this plugin declares. Nothing below is imported before a run uses it."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import CommandSpec


@hookimpl
def hermes_cli_commands() -> Iterable[CommandSpec]:
    """Declare the subcommands `tool-executor` and `tool-server`."""
    from hermes_pool.services.declared import COMMANDS

    return COMMANDS
