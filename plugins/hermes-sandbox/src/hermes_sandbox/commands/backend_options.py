"""Assigns the options of a command line to one backend. They can contain secrets, so no other backend gets them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from typing import Any

from hermes_core.cli import json_object
from hermes_core.contracts.errors import ConfigError, UserError


def read_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the value of `--backend-options`; raises `ConfigError` if it is not a JSON object."""
    return json_object("--backend-options", arguments.backend_options)


def options_of_named(arguments: argparse.Namespace, command: str) -> dict[str, dict[str, Any]]:
    """Return the options, by the name of the backend that a command names. Empty if it names none.

    Raises:
        ConfigError: There are options but no backend.
    """
    options = read_options(arguments)
    if arguments.backend:
        return {arguments.backend: options}
    if options:
        raise ConfigError(
            "expected a backend for --backend-options, got none",
            hint=f"hermes-core {command} BACKEND --backend-options JSON",
        )
    return {}


def options_by_backend(arguments: argparse.Namespace, asked: Collection[str], why: str) -> dict[str, dict[str, Any]]:
    """Return the options, by each name of the one backend that gets them. If none does, say so on standard error.

    Without a named backend, `local` gets the options, or for `kill` the backend of the sandboxes. `asked` are the
    backends that the command asks; `why` is the reason if the named one is not among them, or if there are none.

    Raises:
        ConfigError: The options are not a JSON object.
        UserError: The sandboxes belong to several backends, and none is named.
    """
    options, name = read_options(arguments), arguments.backend
    named = [one for one in asked if name is not None and is_backend(one, name)]
    if name is not None and not named and (options or arguments.action != "ps"):
        sys.stderr.write(f"backend {name!r} is not asked: {why}\n")
    elif options and not asked:
        sys.stderr.write(f"--backend-options are not used: {why}\n")
    elif options:
        return dict.fromkeys(
            named or [_only(asked, arguments.action) if arguments.action == "kill" else "local"], options
        )
    return {}


def is_backend(name: str, wanted: str) -> bool:
    """Tell whether two names mean one backend; leases have the bare name, a command may name the plugin in front."""
    return name.rpartition(":")[2] == wanted.rpartition(":")[2]


def _only(asked: Collection[str], words: str) -> str:
    if len(asked) == 1:
        return next(iter(asked))
    raise UserError(
        f"expected one backend for --backend-options, got sandboxes of {', '.join(sorted(asked))}",
        hint=f"hermes-core sandboxes {words} --backend NAME --backend-options JSON",
    )
