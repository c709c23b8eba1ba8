"""Which backend the options of a command line are for: secrets among them go to that one, and to no other."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection
from typing import Any

from hermes_core.contracts.errors import ConfigError, UserError


def read_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the value of `--backend-options`.

    Raises:
        ConfigError: It is no JSON object.
    """
    try:
        options = json.loads(arguments.backend_options)
    except ValueError as error:
        raise ConfigError(f"--backend-options: wanted a JSON object: {error}") from None
    if not isinstance(options, dict):
        raise ConfigError(f"--backend-options: wanted a JSON object, found {type(options).__name__}")
    return options


def options_of_named(arguments: argparse.Namespace, command: str) -> dict[str, dict[str, Any]]:
    """Return the options by the name of the backend that a command names; empty where it names none.

    Raises:
        ConfigError: There are options, and no backend.
    """
    options = read_options(arguments)
    if arguments.backend:
        return {arguments.backend: options}
    if options:
        raise ConfigError(
            "--backend-options are for the one backend that is named",
            hint=f"hermes-core {command} BACKEND --backend-options JSON",
        )
    return {}


def options_by_backend(arguments: argparse.Namespace, asked: Collection[str], why: str) -> dict[str, dict[str, Any]]:
    """Return the options with the name of the one backend that gets them; empty where nobody does, which is told.

    Where none is named that is `local`, and of sandboxes to `kill` the one that they are of. `asked` are the backends
    of which something is asked; `why` says why that is not the one that is named, or none.

    Raises:
        ConfigError: The options are no JSON object.
        UserError: The sandboxes are of several backends, and none is named.
    """
    options, name = read_options(arguments), arguments.backend
    if name is not None and name not in asked and (options or arguments.action != "ps"):
        sys.stderr.write(f"nothing is asked of backend {name!r}: {why}\n")
    elif options and not asked:
        sys.stderr.write(f"--backend-options are not used: {why}\n")
    elif options:
        return {name or (_only(asked, arguments.action) if arguments.action == "kill" else "local"): options}
    return {}


def _only(asked: Collection[str], words: str) -> str:
    if len(asked) == 1:
        return next(iter(asked))
    raise UserError(
        f"Expected the backend that --backend-options are for, got none and sandboxes of {', '.join(sorted(asked))}",
        hint=f"hermes-core sandboxes {words} --backend NAME --backend-options JSON",
    )
