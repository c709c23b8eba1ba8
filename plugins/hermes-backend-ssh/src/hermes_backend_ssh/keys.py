"""Find private keys, and explain why one cannot be used."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

from paramiko import Agent, PKey
from paramiko.pkey import UnknownKeyType
from paramiko.ssh_exception import PasswordRequiredException, SSHException

from hermes_backend_ssh.options import Login
from hermes_core.contracts.errors import SandboxRefusedError

_USUAL = ("id_ed25519", "id_ecdsa", "id_rsa")


def candidate_keys(login: Login) -> Generator[tuple[str, PKey | None], None, None]:
    """Yield the keys to try, each with its description; the key is None if one in the usual place cannot be used.

    Raises:
        SandboxRefusedError: The configured key cannot be used.
    """
    if login.key is not None:
        yield f"key {login.key}", _load(login.key, login)
        return
    if login.password is not None:
        return
    if login.agent and os.environ.get("SSH_AUTH_SOCK"):
        with contextlib.closing(Agent()) as agent:  # the agent must stay open while its keys are tried
            for key in agent.get_keys():
                yield f"agent's key {key.get_name()} {key.comment or ''}".rstrip(), key
    for path in (Path.home() / ".ssh" / name for name in _USUAL):
        if path.is_file():
            try:
                yield f"key {path}", _load(path, login)
            except SandboxRefusedError as error:
                yield error.message, None


def _load(path: Path, login: Login) -> PKey:
    passphrase = login.passphrase.get_secret_value() if login.passphrase is not None else None
    try:
        key = _parse(path, passphrase)
        _require_private(path)
    except FileNotFoundError as error:
        raise SandboxRefusedError(
            f"the private key {path} for {login.name} does not exist", hint=f"`ssh-keygen -t ed25519 -f {path}`"
        ) from error
    except OSError as error:
        raise SandboxRefusedError(f"the private key {path} cannot be read: {error}") from error
    except PasswordRequiredException as error:
        hint = "set the option passphrase, or load the key into ssh-agent (`ssh-add`) and remove the option key"
        raise SandboxRefusedError(
            f"the private key {path} is encrypted and no passphrase was given", hint=hint
        ) from error
    except (SSHException, UnknownKeyType, ValueError) as error:
        what = (
            "the passphrase is wrong, or the file is damaged"
            if passphrase
            else "it is not a private key, or it is damaged"
        )
        raise SandboxRefusedError(f"the private key {path} cannot be used: {what}", hint=_hint(path)) from error
    return key


def _require_private(path: Path) -> None:
    """Refuse a key that other users may read, write or execute, as OpenSSH does."""
    found = path.stat()
    if found.st_uid == os.getuid() and found.st_mode & 0o077:
        raise SandboxRefusedError(
            f"the private key {path} is accessible to other users (mode {found.st_mode & 0o777:04o})",
            hint=f"`chmod 600 {path}`; create a new key if others may have copied it",
        )


def _hint(path: Path) -> str:
    if path.suffix == ".pub":
        return f"name the private key: {path.with_suffix('')}"
    return f"`ssh-keygen -y -f {path}` must print its public half"


def _parse(path: Path, passphrase: str | None) -> PKey:
    # Not PKey.from_path: with a passphrase, paramiko 5.1 hands text to a function that takes bytes.
    from paramiko import ECDSAKey, Ed25519Key, RSAKey

    problem: SSHException | None = None
    for kind in (Ed25519Key, ECDSAKey, RSAKey):
        try:
            return kind.from_private_key_file(str(path), passphrase)
        except PasswordRequiredException:
            raise
        except SSHException as error:
            problem = error
    raise problem or SSHException("no key")
