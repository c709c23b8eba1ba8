"""The error for metadata that cannot be used."""

from __future__ import annotations

from typing import Any

from hermes_core.contracts.errors import ConfigError


class TemplateError(ConfigError, ValueError):
    """A response template is malformed or asks for what is not supported; names the place, and what to write there."""


def fault(place: str, what: str, found: Any, hint: str | None = None) -> TemplateError:
    """Make the error for a value of the wrong kind."""
    return TemplateError(f"{place}: wanted {what}, found {found!r:.120}", hint=hint)
