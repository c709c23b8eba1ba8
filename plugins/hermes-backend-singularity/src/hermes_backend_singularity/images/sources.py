"""Parse an image's name, and determine what its content depends on."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import socket
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from hermes_backend_singularity.runtime.failures import ImageError

Kind = Literal["ready", "definition", "archive", "daemon", "registry"]
_REGISTRIES: Final = ("docker", "oras", "library", "shub")
_ARCHIVES: Final = ("docker-archive", "oci-archive", "oci")
_SIF: Final = b"SIF_MAGIC"
_SIF_AT: Final = 32
_SQUASHFS: Final = b"hsqs"
_REFERENCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?::\d+)?(?:/[A-Za-z0-9._-]+)*(?::[\w.-]+)?(?:@sha256:\w+)?")


@dataclass(frozen=True, slots=True)
class Source:
    """Where an image comes from.

    An image of kind `ready` needs no building; for the others, `text` is the source for `apptainer build`. `path` is
    the file or directory, if there is one.
    """

    kind: Kind
    text: str
    path: Path | None = None

    def digest(self, docker_host: str | None = None) -> str:
        """Return a digest that changes with the image's content, as far as this machine can see it. Blocks.

        A registry is not asked, so an image of a tag stays as it was built, unless the option `pull` is `always`.
        """
        if self.kind == "archive" and self.path is not None:
            return _digest_of_archive(self.path)
        if self.kind == "definition" and self.path is not None:
            return _digest_of_definition(self.path)
        if self.kind == "daemon":
            return _daemon_id(self.text.partition(":")[2], docker_host)
        return ""


def understand(name: str) -> Source:
    """Return the source that an image's name stands for.

    Raises:
        ImageError: The name is not an image's, or the image does not exist.
    """
    scheme, separator, rest = name.partition(":")
    if separator and scheme in _REGISTRIES and rest.startswith("//"):
        return Source("registry", name)
    if separator and scheme == "docker-daemon":
        return Source("daemon", f"{scheme}:{rest.removeprefix('//')}")
    if separator and scheme in _ARCHIVES:
        # Tags may follow the path of oci: and oci-archive:.
        path = Path(rest.removeprefix("//")).expanduser()
        place = path if path.exists() else Path(str(path).rpartition(":")[0] or path)
        _require(place, name)
        return Source("archive", f"{scheme}:{path.absolute()}", place)
    if name.startswith(("/", "~", ".")) or name.endswith((".sif", ".def")) or Path(name).is_dir():
        return _of_path(Path(name).expanduser().absolute(), name)
    if _REFERENCE.fullmatch(name):
        # A plain name means a registry's image, as in every other backend.
        return Source("registry", f"docker://{name}")
    raise ImageError(
        f"{name!r} is not an image", hint="give a SIF file, a sandbox directory, a definition file or docker://NAME"
    )


def _require(path: Path, name: str) -> None:
    if not path.exists():
        raise ImageError(f"image {name} does not exist", hint=f"ls -l {path.parent}")


def _of_path(path: Path, name: str) -> Source:
    _require(path, name)
    if path.is_dir():
        if not (path / ".singularity.d").is_dir():
            raise ImageError(
                f"{name} is a directory but not an image: it has no .singularity.d",
                hint=f"run `apptainer build --sandbox NEW {path}`, and use NEW as the image",
            )
        return Source("ready", str(path), path)
    try:
        with path.open("rb") as file:
            head = file.read(_SIF_AT + len(_SIF))
    except OSError as error:
        raise ImageError(f"image {name} cannot be read: {error.strerror}", hint=f"ls -l {path}") from error
    if head[_SIF_AT:] == _SIF or head.startswith(_SQUASHFS):
        return Source("ready", str(path), path)
    if re.match(rb"(?is)(?:\s|#[^\n]*\n)*bootstrap\s*:", head) or path.suffix == ".def":
        return Source("definition", str(path), path)
    raise ImageError(
        f"{name} is neither a SIF nor a definition file: it begins with {head[:16]!r}",
        hint="build it again: `apptainer build NEW.sif SOURCE`",
    )


def _digest_of_archive(path: Path) -> str:
    if path.is_dir():
        return hashlib.sha256("\n".join(_states(path)).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of_definition(path: Path) -> str:
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    copied = [state for name in _copy_sources(text) for state in _states(path.parent / name)]
    whole = "\n".join([str(path.parent), text, *copied])
    return hashlib.sha256(whole.encode(errors="surrogateescape")).hexdigest()


def _copy_sources(text: str) -> Iterator[str]:
    """Yield the paths that the section %files copies from this machine."""
    inside = False
    for line in text.splitlines():
        words = line.split()
        if line.startswith("%"):
            # `%files from STAGE` copies within the build.
            inside = words == ["%files"]
        elif inside and words and not words[0].startswith("#"):
            yield words[0]


def _states(path: Path) -> list[str]:
    """Return the state of a file, or of all files in a directory, without reading them."""
    inside = sorted(Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    states = []
    for entry in [path, *inside]:
        try:
            found = entry.lstat()
        except OSError:
            states.append(f"{entry} absent")
        else:
            states.append(f"{entry} {found.st_mode} {found.st_size} {found.st_mtime_ns}")
    return states


class _OverSocket(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("docker", timeout=20)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _daemon_id(name: str, docker_host: str | None) -> str:
    address = docker_host or "unix:///var/run/docker.sock"
    kind, _, place = address.partition("://")
    try:
        connection = _OverSocket(place) if kind == "unix" else http.client.HTTPConnection(place, timeout=20)
    except http.client.InvalidURL as error:
        raise ImageError(
            f"expected the address of a Docker engine in DOCKER_HOST, got {address!r}: {error}",
            hint="for example unix:///var/run/docker.sock",
        ) from error
    try:
        connection.request("GET", f"/images/{urllib.parse.quote(name, safe=':/@')}/json")
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise ImageError(
            f"image docker-daemon:{name} is not available: no Docker engine at {address} ({error})",
            hint="`docker info` shows why; or save the image to a file and use docker-archive:FILE",
        ) from error
    finally:
        connection.close()
    if answer.status == 404:
        raise ImageError(f"image {name} is not on the Docker engine at {address}", hint=f"docker pull {name}")
    try:
        return str(json.loads(body)["Id"])
    except (ValueError, KeyError) as error:
        shown = f"{answer.status} {body[:200]!r}"
        raise ImageError(f"the Docker engine at {address} returned no id of image {name}: {shown}") from error
