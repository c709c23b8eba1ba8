"""A backend with a secret among its options."""

from __future__ import annotations

from pydantic import BaseModel, SecretStr

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import BackendSpec
from hermes_sandbox.local import LocalBackend


class KeyedOptions(BaseModel):
    """Options with a token."""

    region: str = ""
    token: SecretStr | None = None


class Keyed(LocalBackend):
    """The local backend with these options."""

    Options = KeyedOptions


@hookimpl
def hermes_backends():
    return [BackendSpec(name="keyed", summary="One with a token.", target="keyed_member:Keyed")]
