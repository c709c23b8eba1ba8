"""What a run's config says about the machine."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints, field_validator, model_validator

from hermes_sandbox.remote import MachineOptions

HostKeyPolicy = Literal["strict", "accept-new"]
_Word = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, pattern=r"^[^\x00-\x20]+$")]


class Login(BaseModel):
    """One machine and how to be let in. Secrets are never shown, logged or written to a lease."""

    model_config = ConfigDict(extra="forbid")

    host: _Word
    port: int = Field(default=22, ge=1, le=65535)
    user: _Word = Field(default_factory=getpass.getuser)
    key: Path | None = None
    """Private key; the keys of the agent and ~/.ssh/id_* if neither it nor a password is given."""
    passphrase: SecretStr | None = None
    """Of the private key."""
    password: SecretStr | None = None
    agent: bool = True
    """Whether the keys of a running ssh-agent (SSH_AUTH_SOCK) are tried when no key is named."""

    @field_validator("key")
    @classmethod
    def _expand(cls, value: Path | None) -> Path | None:
        return None if value is None else value.expanduser()

    @property
    def name(self) -> str:
        """The machine as people write it."""
        return f"{self.user}@{self.host}" + ("" if self.port == 22 else f":{self.port}")


class SshOptions(Login, MachineOptions):
    """Options of backend `ssh`."""

    jump: tuple[Login, ...] = ()
    """Machines to go through, the first one first; each of them needs a known host key and a login of its own."""
    known_hosts: Path = Field(default=Path("~/.ssh/known_hosts"), validate_default=True)
    """Keys of the machines, in OpenSSH's format."""
    host_key_policy: HostKeyPolicy = "strict"
    """`accept-new` writes a key to `known_hosts` when the machine was never seen; a changed key is always refused."""
    connect_timeout: float = Field(default=15.0, gt=0)
    """Seconds for each of: connecting, agreeing on keys, logging in."""
    keepalive: int = Field(default=15, ge=0)
    """Seconds between signs of life; a connection that acknowledges nothing for three of them is given up. 0: none."""
    connections: int | None = Field(default=None, ge=1)
    """At most so many connections for sandboxes at a time, further sandboxes are refused; None: as many as needed."""

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, values: Any) -> Any:
        # The names that hermes-agent gave them; what the config says goes before.
        names = {"host": "TERMINAL_SSH_HOST", "user": "TERMINAL_SSH_USER", "port": "TERMINAL_SSH_PORT"}
        names["key"] = "TERMINAL_SSH_KEY"
        found = {field: os.environ[name] for field, name in names.items() if os.environ.get(name)}
        return {**found, **values} if isinstance(values, dict) and "host" not in values else values

    @field_validator("known_hosts")
    @classmethod
    def _expand_known_hosts(cls, value: Path) -> Path:
        return value.expanduser()
