"""The command `hermes-core`, and helpers for the output of its subcommands."""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_core.cli.dispatcher import main
    from hermes_core.cli.display_text import one_line, plural
    from hermes_core.cli.flag_values import json_object, positive_number
    from hermes_core.cli.signals import end_signals

__all__ = ["end_signals", "json_object", "main", "one_line", "plural", "positive_number"]

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".dispatcher": "main",
            ".display_text": "one_line plural",
            ".flag_values": "json_object positive_number",
            ".signals": "end_signals",
        },
    )
