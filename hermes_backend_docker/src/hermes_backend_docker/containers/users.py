"""The user of a container's commands: from the option, the task, or the image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from hermes_backend_docker.containers.hardening import follows_image
from hermes_backend_docker.images.images import Image
from hermes_backend_docker.options import DockerOptions
from hermes_core.contracts.errors import SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec

ACCOUNTS: Final = ("/etc/passwd", "/etc/group")
"""The account files of an image."""

_LARGEST: Final = 2**32 - 2
_DIGITS: Final = 10


@dataclass(frozen=True, slots=True)
class Account:
    """A user inside a container."""

    uid: int
    gid: int
    home: str


ROOT: Final = Account(0, 0, "/root")


def user_for(spec: SandboxSpec, options: DockerOptions, image: Image | None) -> str | None:
    """Return the name of the commands' user from the task or its image.

    None if the options decide. An image that is not known yet counts as root's.
    """
    if options.user is not None or (spec.user is None and not spec.as_image):
        return None
    return spec.user or (image.user if image is not None else "") or "root"


def is_root(user: str) -> bool:
    """Return whether a user is root by name or number."""
    name = user.partition(":")[0]
    return name == "root" or (name.isdecimal() and int(name) == 0)


def find_account(user: str, passwd: str, group: str) -> Account:
    """Return the account of `name[:group]`, names or numbers, as the engine itself would find it.

    Raises:
        SandboxRefusedError: The image has no such user or group, or another user has root's number.
    """
    name, _, group_name = user.partition(":")
    line = next(_lines(passwd, name), None)
    if line is None and not _is_number(name):
        raise SandboxRefusedError(
            f"the image has no user {name!r}",
            hint="use one from its /etc/passwd, or a uid, or add it in the Dockerfile",
        )
    uid = int(line[2]) if line else int(name)
    if uid > _LARGEST:
        raise SandboxRefusedError(f"user {name[:40]!r} of the image has an invalid number")
    if uid == 0:
        raise SandboxRefusedError(f"user {name!r} of the image is root", hint="use the name root")
    gid = int(line[3]) if line else 0
    home = line[5] if line and len(line) > 5 else ""
    return Account(uid, _gid(group_name, group) if group_name else gid, home or "/")


def _gid(name: str, group: str) -> int:
    line = next(_lines(group, name), None)
    if line is None and not _is_number(name):
        raise SandboxRefusedError(f"the image has no group {name!r}", hint="use one from its /etc/group, or a gid")
    return int(line[2]) if line else int(name)


def _lines(text: str, name: str) -> Iterator[list[str]]:
    """Yield the lines of an account, by name first, then by number, if their numbers are valid."""
    lines = [fields for fields in (line.split(":") for line in text.splitlines()) if len(fields) > 3]
    usable = [fields for fields in lines if _is_number(fields[2]) and (_is_number(fields[3]) or len(fields) == 4)]
    yield from (fields for fields in usable if fields[0] == name)
    yield from (fields for fields in usable if name.isdecimal() and int(fields[2]) == int(name))


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= _DIGITS


def fit(spec: SandboxSpec, options: DockerOptions, image: Image, account: Account | None) -> DockerOptions:
    """Return the options with the user and work folder of the task and its image."""
    changes: dict[str, Any] = {}
    if account is not None:
        # The image's HOME belongs to the image's own user.
        home = image.environment.get("HOME") if spec.as_image and spec.user is None else None
        env = {"HOME": home or account.home, **options.env}
        changes = {"user": f"{account.uid}:{account.gid}", "env": env}
    if follows_image(spec, options):
        changes["workspace"] = image.folder
    return options.model_copy(update=changes)
