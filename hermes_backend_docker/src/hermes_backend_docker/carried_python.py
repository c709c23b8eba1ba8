"""This machine's own Python in a volume of the engine, for containers whose image has none."""

from __future__ import annotations

import asyncio
import io
import secrets
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hermes_backend_docker.engine import Engine
from hermes_backend_docker.failures import ProgramMissingError
from hermes_backend_docker.images import Image
from hermes_backend_docker.options import DockerOptions
from hermes_core.contracts.errors import NoPythonError
from hermes_sandbox import NotPortableError, PortablePython, portable_python

MOUNT: Final = "/opt/hermes-python"
"""Where the volume is, inside, read-only."""
_READY: Final = "ready"
"""A link in the volume to the folder that holds all of it."""
_LABEL: Final = "hermes.python"


@dataclass(frozen=True, slots=True)
class CarriedPython:
    """What containers mount and start."""

    version: str
    volume: str
    program: str

    def fit(self, options: DockerOptions) -> DockerOptions:
        """Return the options with this Python in place of the image's."""
        volumes = [*options.volumes, f"{self.volume}:{MOUNT}:ro"]
        return options.model_copy(update={"python": self.program, "volumes": volumes})


class CarriedPythons:
    """Which Python the containers of an image start, where the image itself has none.

    The volume is filled once for an engine, however many processes ask at the same time: each fills a folder of its
    own, and leads the link to it only when there is all of it. So nobody runs a Python of which a part is missing, or
    one that is being replaced.
    """

    def __init__(self, engine: Engine, options: DockerOptions) -> None:
        self._engine = engine
        self._options = options
        self._found: dict[str, CarriedPython | str] = {}
        self._turn = asyncio.Lock()

    def of(self, image: Image) -> CarriedPython | None:
        """Return what containers of the image start in place of its own; None as long as that is tried."""
        found = self._found.get(image.id)
        return None if isinstance(found, str) else found

    def lack(self, image: Image) -> str | None:
        """Return why no Python at all runs in containers of the image; None if one may."""
        found = self._found.get(image.id)
        return found if isinstance(found, str) else None

    async def replace(
        self,
        tried: CarriedPython | None,
        image: Image,
        error: ProgramMissingError,
        *,
        name: str,
        labels: Mapping[str, str],
    ) -> CarriedPython:
        """Return another Python than the one that was tried, which is not there, as the error says.

        `name` and `labels` are those of the container that is made meanwhile.

        Raises:
            NoPythonError: There is none that would run.
            EngineError: The engine refused or failed.
        """
        async with self._turn:
            found = self._found.get(image.id)
            # Somebody else may have asked for the same. A volume can have been removed since it was filled.
            if found is None or found == tried:
                try:
                    found = await self._bring(image, name, labels)
                except NotPortableError as problem:
                    found = f"{error.message}; this machine's Python cannot be brought there: {problem}"
                self._found[image.id] = found
        if isinstance(found, str):
            raise NoPythonError(found, hint=error.hint) from error
        return found

    async def _bring(self, image: Image, name: str, labels: Mapping[str, str]) -> CarriedPython:
        if not self._options.carries_python:
            raise NotPortableError("the backend's options do not let it")
        python = await asyncio.to_thread(portable_python)
        if image.architecture != python.architecture:
            raise NotPortableError(f"the image is for {image.architecture}, that is for {python.architecture}")
        volume = f"hermes-python-{python.digest}"
        await self._engine.create_volume(volume, {_LABEL: python.version})
        nothing = {"Image": image.id, "Labels": dict(labels), "Entrypoint": ["none"], "Cmd": []}
        container = await self._engine.create(name, {**nothing, "HostConfig": {"Binds": [f"{volume}:{MOUNT}"]}})
        try:
            for needed in ("/bin/sh", self._options.bash):
                if await self._engine.stat_file(container, needed) is None:
                    raise NotPortableError(f"the image has no {needed} either")
            folder = await self._folder(container) or await self._fill(container, python)
        finally:
            await self._engine.remove(container)
        return CarriedPython(python.version, volume, f"{MOUNT}/{folder}/{python.program}")

    async def _folder(self, container: str) -> str | None:
        found = await self._engine.stat_file(container, f"{MOUNT}/{_READY}")
        return None if found is None else str(found["linkTarget"]).rpartition("/")[2]

    async def _fill(self, container: str, python: PortablePython) -> str:
        folder = secrets.token_hex(8)
        packed = await asyncio.to_thread(python.pack, folder)
        await self._engine.unpack(container, MOUNT, packed, seconds=self._options.pull_timeout)
        await self._engine.unpack(container, MOUNT, _link_to(folder), seconds=self._options.engine_timeout)
        return folder


def _link_to(folder: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        link = tarfile.TarInfo(_READY)
        link.type, link.linkname = tarfile.SYMTYPE, folder
        archive.addfile(link)
    return buffer.getvalue()
