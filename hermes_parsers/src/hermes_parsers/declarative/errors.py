"""The error for metadata that cannot be used."""

from __future__ import annotations

from typing import Any

from hermes_core.contracts.errors import ConfigError


class TemplateError(ConfigError, ValueError):
    """A response template is malformed or uses an unsupported feature.

    The message names the place and what to write there.
    """


def fault(place: str, what: str, found: Any, hint: str | None = None) -> TemplateError:
    """Build the error for a value of the wrong type."""
    return TemplateError(f"{place}: expected {what}, got {found!r:.120}", hint=hint)
