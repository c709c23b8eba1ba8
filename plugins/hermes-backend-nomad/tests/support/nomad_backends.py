"""Backends on the stand-in, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes_backend_nomad.backend import NomadBackend
from hermes_backend_nomad.options import NomadOptions


class Backends:
    """Creates backends on the stand-in and closes them."""

    def __init__(self, address: str, leases: Path) -> None:
        self.address = address
        self.leases = leases
        self.made: list[NomadBackend] = []

    def __call__(self, **options: Any) -> NomadBackend:
        # The stand-in is a Python program and may be slow on a busy machine.
        patient = {"request_timeout": 60.0, "acquire_timeout_s": 120.0}
        given = {"nomad_address": self.address, "sandbox_image": "hermes:1", **patient, **options}
        backend = NomadBackend(NomadOptions(**given))
        backend.lease_dir = self.leases
        self.made.append(backend)
        return backend
