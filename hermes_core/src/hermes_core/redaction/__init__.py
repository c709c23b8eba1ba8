"""Redaction: which values of a configuration are secret, and how they are kept out of files and messages."""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_core.redaction.scrubber import SecretScrubber
    from hermes_core.redaction.secrets import (
        WITHHELD,
        comparable_values,
        find_secrets,
        find_withheld,
        quote_value,
        redact,
        redact_address,
        redact_at,
        redact_text,
        strip_secrets,
        validation_message,
        yaml_problem,
    )

__all__ = [
    "WITHHELD", "SecretScrubber", "comparable_values", "find_secrets", "find_withheld", "quote_value", "redact",
    "redact_address", "redact_at", "redact_text", "strip_secrets", "validation_message", "yaml_problem",
]  # fmt: skip

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".scrubber": "SecretScrubber",
            ".secrets": (
                "WITHHELD comparable_values find_secrets find_withheld quote_value "
                "redact redact_address redact_at redact_text strip_secrets validation_message yaml_problem"
            ),
        },
    )
