"""The build context of a Dockerfile: its content hash and its archive."""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

from hermes_core.contracts.errors import TaskError

_IN_MEMORY: Final = 16 << 20
_PIECE: Final = 1 << 20


def read_context(dockerfile: Path, folder: Path | None) -> tuple[str, Callable[[], IO[bytes]]]:
    """Return the hash of a build context and the function that packs it. Blocks.

    The hash covers names, contents, links and permissions, but not owners and times, so that a copy builds the same
    image.

    Raises:
        TaskError: The Dockerfile or something in its folder cannot be read, or a .dockerignore would change the build.
    """
    root = folder or dockerfile.parent
    try:
        entries = list(_entries(root))
        digest = hashlib.sha256()
        for name, path in [("Dockerfile", dockerfile), *entries]:
            _add(digest, name, path)
    except OSError as error:
        raise TaskError(f"the build of {dockerfile} cannot be prepared: {error}") from error
    if any(name == ".dockerignore" for name, _ in entries):
        hint = f"delete it, or build by hand: docker build -t NAME {root}, and use that image"
        raise TaskError(f"{root / '.dockerignore'} is not supported", hint=hint)
    return digest.hexdigest(), lambda: _pack(dockerfile, entries)


def _entries(root: Path) -> Iterator[tuple[str, Path]]:
    for folder, names, files in os.walk(root):
        names.sort()
        for name in sorted([*names, *files]):
            path = Path(folder, name)
            yield path.relative_to(root).as_posix(), path


def _add(digest: hashlib._Hash, name: str, path: Path) -> None:
    mode = path.lstat().st_mode
    digest.update(f"{len(name)}:{name}:{mode:o}:".encode())
    if stat.S_ISLNK(mode):
        digest.update(str(path.readlink()).encode())
    elif stat.S_ISREG(mode):
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)


def _pack(dockerfile: Path, entries: list[tuple[str, Path]]) -> IO[bytes]:
    packed: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - the caller closes it
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(dockerfile, "Dockerfile", filter=_as_root)
        for name, path in entries:
            if name != "Dockerfile":
                archive.add(path, name, recursive=False, filter=_as_root)
    packed.seek(0)
    return packed


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
