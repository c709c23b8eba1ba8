"""Containers that several sandboxes share, each with a user and a directory of its own."""

from __future__ import annotations

from hermes_backend_docker.host import ContainerHost
from hermes_sandbox.backends import RecycledHost


class SharedContainer(RecycledHost, ContainerHost):
    """A container for many slots."""
