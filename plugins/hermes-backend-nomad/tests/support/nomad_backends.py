"""Backends on the stand-in, as the tests make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes_backend_nomad.backend import NomadBackend
from hermes_backend_nomad.options import NomadOptions


class Backends:
    """Makes backends on the stand-in, and closes them."""

    def __init__(self, address: str, leases: Path) -> None:
        self.address = address
        self.leases = leases
        self.made: list[NomadBackend] = []

    def __call__(self, **options: Any) -> NomadBackend:
        given = {"nomad_address": self.address, "sandbox_image": "hermes:1", **options}
        backend = NomadBackend(NomadOptions(**given))
        backend.lease_dir = self.leases
        self.made.append(backend)
        return backend
