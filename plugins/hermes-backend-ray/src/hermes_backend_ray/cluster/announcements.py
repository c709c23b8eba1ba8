"""Keep Ray's notices of lost nodes and workers out of the caller's standard output."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

_PRINTER: Final = "print_to_stdstream"
_LOG: Final = logging.getLogger("hermes_backend_ray")


def log_announcements() -> Callable[[], None]:
    """Log what Ray would print; return a function that restores printing.

    `log_to_driver=False` does not cover these notices and no other option does. They would break the output of a
    program that prints JSON.
    """
    from ray._private import worker

    before = getattr(worker, _PRINTER, None)
    if before is None:
        return lambda: None
    setattr(worker, _PRINTER, _log)

    def restore() -> None:
        if getattr(worker, _PRINTER) is _log:
            setattr(worker, _PRINTER, before)

    return restore


def _log(data: Mapping[str, Any], ignore_prefix: bool = False) -> None:  # noqa: FBT001, FBT002 - Ray's own signature
    del ignore_prefix
    _LOG.info("Ray says: %s", " ".join(str(line) for line in data.get("lines", ())))
