"""The options of backend `ssh`."""

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
    """One machine and its credentials. Secrets are never displayed, logged or written to a lease."""

    model_config = ConfigDict(extra="forbid")

    host: _Word
    port: int = Field(default=22, ge=1, le=65535)
    user: _Word = Field(default_factory=getpass.getuser)
    key: Path | None = None
    """Private key; without it and a password, the keys of ssh-agent and ~/.ssh/id_* are tried."""
    passphrase: SecretStr | None = None
    """Passphrase of the private key."""
    password: SecretStr | None = None
    agent: bool = True
    """Whether to try the keys of a running ssh-agent (SSH_AUTH_SOCK) if no key is given."""

    @field_validator("key")
    @classmethod
    def _expand(cls, value: Path | None) -> Path | None:
        return None if value is None else value.expanduser()

    @property
    def name(self) -> str:
        """The machine's name for messages."""
        return f"{self.user}@{self.host}" + ("" if self.port == 22 else f":{self.port}")


class SshOptions(Login, MachineOptions):
    """Options of backend `ssh`."""

    jump: tuple[Login, ...] = ()
    """Jump hosts, in order; each needs a known host key and its own credentials."""
    known_hosts: Path = Field(default=Path("~/.ssh/known_hosts"), validate_default=True)
    """File with the machines' host keys, in OpenSSH's format."""
    host_key_policy: HostKeyPolicy = "strict"
    """`accept-new` adds the key of a new machine to `known_hosts`; a changed key is always refused."""
    connect_timeout: float = Field(default=15.0, gt=0)
    """Timeout in seconds for each of: connecting, key exchange, login."""
    keepalive: int = Field(default=15, ge=0)
    """Seconds between keep-alive packets; a connection is closed if three stay unacknowledged. 0: none."""
    connections: int | None = Field(default=None, ge=1)
    """Maximum number of connections for sandboxes, beyond which sandboxes are refused; None: unlimited."""

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, values: Any) -> Any:
        # hermes-agent's environment variables; the config wins.
        names = {"host": "TERMINAL_SSH_HOST", "user": "TERMINAL_SSH_USER", "port": "TERMINAL_SSH_PORT"}
        names["key"] = "TERMINAL_SSH_KEY"
        found = {field: os.environ[name] for field, name in names.items() if os.environ.get(name)}
        return {**found, **values} if isinstance(values, dict) and "host" not in values else values

    @field_validator("known_hosts")
    @classmethod
    def _expand_known_hosts(cls, value: Path) -> Path:
        return value.expanduser()
