"""Sandboxes of the service that several rollouts share, each with its own user and directory."""

from __future__ import annotations

from hermes_backend_modal.host import ModalHost
from hermes_sandbox.backends import RecycledHost


class SharedModal(RecycledHost, ModalHost):
    """A sandbox for many slots; it is retired before the service ends it."""
