"""The argument parser of every subcommand: an error is a line or two, not the whole usage."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from hermes_core.nearest import nearest_names

_REWORDED: Final = (
    ("^argument ", ""),
    ("invalid int value: ", "expected a whole number, got "),
    ("invalid float value: ", "expected a number, got "),
    (r"invalid choice: (.+) \(choose from (.+)\)", r"expected one of \2, got \1"),
    ("ignored explicit argument ", "expected no value, got "),
    ("expected one argument$", "expected a value, got none"),
    ("^the following arguments are required: (.+)", r"expected \1, got nothing"),
)
"""What argparse writes, and how all other errors say it."""


class CommandParser(argparse.ArgumentParser):
    """Reports an error with a suggestion and the command for help; exit status 2.

    Parsers of nested subcommands are of this class too, so that each knows its own arguments. Options cannot be
    abbreviated: a short form would break as soon as another option begins with it.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **options})

    def parse_known_args(  # type: ignore[override]  # the overloads of the base are one function when it runs
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse the arguments; an unknown one is an error."""
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(self._unknown(rest))
        return known, rest

    def parse_some(self, args: Sequence[str]) -> tuple[Any, list[str]]:
        """Parse the arguments that are known, and return the others too."""
        return super().parse_known_args(args)

    def error(self, message: str) -> NoReturn:
        """Print the message and the command for help, and exit."""
        for theirs, ours in _REWORDED:
            message = re.sub(theirs, ours, message, count=1)
        # Options as JSON may hold a secret.
        message = re.sub(r"\{\s*[\"'].*\}?", "{…}", message, flags=re.DOTALL)
        self.exit(2, f"{self.prog}: {message}\n  → {self.prog} --help\n")

    def _unknown(self, rest: list[str]) -> str:
        option = next((word.partition("=")[0] for word in rest if word.startswith("-") and word != "--"), None)
        if option is None:
            return f"unexpected argument {rest[0]}"
        near = nearest_names(option, self._option_string_actions)
        return f"unknown argument {option}; did you mean {near[0]}?" if near else f"unknown argument {option}"
