"""Check host keys against OpenSSH's known_hosts file; errors name the line."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import hmac
import os
from dataclasses import dataclass
from pathlib import Path

from paramiko import PKey

from hermes_backend_ssh.options import HostKeyPolicy
from hermes_core.contracts.errors import SandboxRefusedError


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    marker: str
    hosts: str
    kind: str
    key: str

    def names(self, host: str) -> bool:
        """Return whether the line applies to a host; a pattern with `!` excludes it."""
        found = False
        for pattern in self.hosts.split(","):
            if pattern.startswith("!") and fnmatch.fnmatchcase(host, pattern[1:]):
                return False
            found = found or _matches(host, pattern)
        return found


def fingerprint(key: PKey) -> str:
    """Return a key's fingerprint as ssh-keygen prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")


def host_name(host: str, port: int) -> str:
    """Return the name under which known_hosts lists a machine."""
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def known_kinds(file: Path, host: str, port: int) -> list[str]:
    """Return the known key types of a machine, to request these first, because a machine has several."""
    return [line.kind for line in _about(file, host_name(host, port)) if not line.marker]


def check_host_key(file: Path, host: str, port: int, key: PKey, policy: HostKeyPolicy) -> None:
    """Raise `SandboxRefusedError` unless the file has this key; `accept-new` adds a machine's first key."""
    name = host_name(host, port)
    lines = _about(file, name)
    text = key.get_base64()
    for line in lines:
        if line.marker == "@revoked" and line.key == text:
            raise SandboxRefusedError(f"the host key of {name} is revoked, by {file}:{line.number}")
    plain = [line for line in lines if not line.marker]
    if any(line.key == text for line in plain):
        return
    if plain:
        raise _key_change(file, host, port, key, plain)
    if policy == "accept-new":
        _add(file, name, key)
        return
    raise SandboxRefusedError(
        f"the host key of {name} is unknown: {file} has none, the machine showed {key.get_name()} {fingerprint(key)}",
        hint=f"compare the fingerprint, then `ssh-keyscan -p {port} {host} >> {file}`, or host_key_policy: accept-new",
    )


def _key_change(file: Path, host: str, port: int, key: PKey, lines: list[_Line]) -> SandboxRefusedError:
    same = [line for line in lines if line.kind == key.get_name()] or lines
    places = ", ".join(f"{file}:{line.number} ({line.kind})" for line in same)
    name = host_name(host, port)
    return SandboxRefusedError(
        f"the host key of {name} HAS CHANGED, the connection may be intercepted: expected the key of {places}, "
        f"got {key.get_name()} {fingerprint(key)}",
        hint=f"only if you know why it changed: `ssh-keygen -f {file} -R '{name}'`, then add the new key",
    )


def _matches(host: str, pattern: str) -> bool:
    if pattern.startswith("|1|"):
        _, _, salt, digest = pattern.split("|")
        found = hmac.new(base64.b64decode(salt), host.encode(), hashlib.sha1).digest()
        return hmac.compare_digest(found, base64.b64decode(digest))
    # Brackets are part of a name here ("[host]:port"), not a character class.
    return fnmatch.fnmatchcase(host, pattern.lower().replace("[", "[[]"))


def _about(file: Path, name: str) -> list[_Line]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SandboxRefusedError(f"the known host keys cannot be read: {error}") from error
    return [
        line for number, raw in enumerate(text.splitlines(), 1) if (line := _parse(number, raw)) and line.names(name)
    ]


def _parse(number: int, text: str) -> _Line | None:
    fields = text.split()
    if not fields or fields[0].startswith("#"):
        return None
    marker = fields.pop(0) if fields[0].startswith("@") else ""
    return _Line(number, marker, *fields[:3]) if len(fields) >= 3 else None


def _add(file: Path, name: str, key: PKey) -> None:
    line = f"{name} {key.get_name()} {key.get_base64()}\n".encode()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(fd).st_size
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            os.write(fd, b"\n" + line if torn else line)
        finally:
            os.close(fd)
    except OSError as error:
        raise SandboxRefusedError(f"the new host key of {name} cannot be written: {error}") from error
