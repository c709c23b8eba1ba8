"""A backend, an engine and a sink with secrets among their options, which have no effect."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from hermes_core import hookimpl
from hermes_core.contracts.errors import BackendError
from hermes_core.specs import BackendSpec, EngineSpec, SinkSpec
from hermes_runner.run.local_engine import LocalEngine
from hermes_sandbox.local import LocalBackend, LocalOptions


@hookimpl
def hermes_backends():
    return [BackendSpec(name="keyed", summary="keyed", target="keyed_components:Keyed", isolation=("none",))]


@hookimpl
def hermes_engines():
    return [EngineSpec(name="keyed", summary="keyed", target="keyed_components:keyed_engine")]


@hookimpl
def hermes_sinks():
    return [SinkSpec(name="keyed", summary="keyed", target="keyed_components:KeyedSink")]


class Door(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    key: SecretStr


class KeyedOptions(LocalOptions):
    token: SecretStr | None = None
    doors: tuple[Door, ...] = ()
    by_name: dict[str, SecretStr] = Field(default_factory=dict)
    plain_password: str = ""
    address: str = ""
    env: dict[str, str] = Field(default_factory=dict)
    fewest: int = 0
    talks: bool = False
    """Whether its errors quote the token."""

    @model_validator(mode="after")
    def _enough(self):
        if self.fewest > len(self.doors):
            raise ValueError(f"{self.fewest} doors at least")
        return self


class Keyed(LocalBackend):
    """The backend `local` with further options, some of them secret."""

    Options = KeyedOptions
    declaration = hermes_backends()[0]
    options: KeyedOptions

    def __init__(self, options):
        super().__init__(LocalOptions())
        self.options = options

    async def create(self, spec, sandbox_id):
        if self.options.talks:
            raise BackendError(f"nobody is let in with {self.options.token.get_secret_value()}", hint="try a.env")
        return await super().create(spec, sandbox_id)

    async def reclaim(self, handle):
        if self.options.talks:
            raise BackendError(f"nobody is let in with {self.options.token.get_secret_value()}")
        await super().reclaim(handle)


class EngineOptions(BaseModel):
    pass_key: SecretStr | None = None
    runtime_env: dict[str, Any] = Field(default_factory=dict)


def keyed_engine(options):
    """Return the engine `local`, whose options have a secret."""
    del options
    return LocalEngine()


keyed_engine.Options = EngineOptions  # type: ignore[attr-defined] # what the registry looks for at a target


class SinkOptions(BaseModel):
    key: SecretStr
    doors: tuple[Door, ...] = ()
    opens: bool = True


class KeyedSink:
    """Raises errors that quote its key, instead of writing."""

    Options = SinkOptions

    def __init__(self, options):
        self.options = options

    def open(self, folder):
        del folder
        if not self.options.opens:
            raise ExceptionGroup("two doors", [PermissionError(13, f"{self.options.key.get_secret_value()} is no key")])

    def write(self, outcome):
        del outcome
        raise OSError(28, "nothing was written", f"/a/{self.options.key.get_secret_value()}")

    def close(self):
        """Do nothing."""
