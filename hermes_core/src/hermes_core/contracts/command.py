"""What a subcommand of `hermes-core` must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import argparse


class Command(Protocol):
    """A subcommand: a class without constructor arguments, or any object with these two functions."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own options; must not import what only `run` needs."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it and return the exit status; `arguments.plugin_settings` is what a registry is to be built from."""
        ...
