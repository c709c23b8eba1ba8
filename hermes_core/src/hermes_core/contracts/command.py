"""The contract of a subcommand of `hermes-core`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import argparse


class Command(Protocol):
    """A subcommand: a class without constructor arguments, or any object with these two functions."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments. Import here nothing that only `run` needs."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the command and return its exit status.

        Build a registry from `arguments.plugin_settings`. `arguments.loaded_plugins` is the one that the command was
        found with, to hand to `load_plugins` as `loaded`; it is a tolerant one, from which plugins may be missing.
        """
