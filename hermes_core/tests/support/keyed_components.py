"""A backend with secrets among its options: `local` behind keys that open nothing."""

from __future__ import annotations

from pydantic import BaseModel, SecretStr

from hermes_core import hookimpl
from hermes_core.sandbox.local import LocalBackend
from hermes_core.sandbox.local_options import LocalOptions
from hermes_core.specs import BackendSpec


@hookimpl
def hermes_backends():
    return [BackendSpec(name="keyed", summary="keyed", target="keyed_components:Keyed", isolation=("none",))]


class Door(BaseModel):
    name: str
    key: SecretStr


class Options(LocalOptions):
    token: SecretStr | None = None
    doors: tuple[Door, ...] = ()


class Keyed(LocalBackend):
    """Takes keys."""

    Options = Options
    declaration = hermes_backends()[0]

    def __init__(self, options):
        super().__init__(LocalOptions())
        self.options = options
