"""Reads the values of flags, with one wording for what is wrong with them."""

from __future__ import annotations

import argparse
import json
from typing import Any

from hermes_core.cli.display_text import one_line
from hermes_core.contracts.errors import ConfigError
from hermes_core.tooling.arguments import unique_keys


def json_object(flag: str, text: str) -> dict[str, Any]:
    """Return the JSON object that a flag gives; an error repeats none of its values, which may be secret."""
    try:
        value = json.loads(text, object_pairs_hook=unique_keys)
        got = type(value).__name__
    except (ValueError, RecursionError) as error:
        value, got = None, f"text that cannot be read: {error}"
    if isinstance(value, dict):
        return value
    raise ConfigError(f"{flag}: expected a JSON object, got {got}", hint=f"""{flag} '{{"KEY": "VALUE"}}'""")


def positive_number(text: str) -> int:
    """Return a whole number of at least 1; for the `type` of an argument."""
    if text.isdecimal() and len(text) < 20 and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {one_line(text, 40)!r}")
