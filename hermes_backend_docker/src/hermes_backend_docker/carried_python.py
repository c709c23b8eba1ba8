"""This machine's own Python in a volume of the engine, for containers whose image has none."""

from __future__ import annotations

import asyncio
import io
import secrets
import tarfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from hermes_backend_docker.engine import Engine
from hermes_backend_docker.failures import EngineError, EngineTimeoutError, ProgramMissingError
from hermes_backend_docker.images import Image
from hermes_backend_docker.options import DockerOptions
from hermes_core.contracts.errors import NoPythonError
from hermes_sandbox import PYTHON_FLAGS, NotPortableError, PortablePython, portable_python

MOUNT: Final = "/.hermes-python"
"""Where the volume is, inside, read-only; not where a task has its work."""
_READY: Final = "ready"
"""A link in the volume to the folder that holds all of it."""
_PROCESSES: Final = 16
_BASH_4_4: Final = "mapfile -d '' x </dev/null && : \"${x@Q}\""
_TRIAL: Final = """
import os, sys
argv = [sys.argv[1], "-c", sys.argv[2]]
_, status = os.waitpid(os.posix_spawn(argv[0], argv, {}), 0)
sys.exit(status != 0)
"""


@dataclass(frozen=True, slots=True)
class CarriedPython:
    """What containers mount and start."""

    version: str
    volume: str
    program: str

    def fit(self, options: DockerOptions) -> DockerOptions:
        """Return the options with this Python in place of the image's."""
        # Never filled by the engine itself, with what the image has there.
        volumes = [*options.volumes, f"{self.volume}:{MOUNT}:ro,nocopy"]
        return options.model_copy(update={"python": self.program, "volumes": volumes})


class CarriedPythons:
    """Which Python the containers of an image start, where the image itself has none.

    A process that finds the volume empty fills a folder of its own in it, and leads the link to that when there is all
    of it. So nobody runs a Python of which a part is missing, or one that is being replaced.
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
                except (NotPortableError, EngineError) as problem:
                    # What the engine refuses for good; one that is full or away may do it the next time.
                    if type(problem) not in {NotPortableError, EngineError, ProgramMissingError}:
                        raise
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
        if taken := [path for path in self._options.targets if f"{MOUNT}/".startswith(f"{path}/")]:
            raise NotPortableError(f"the option volumes has {taken[0] or '/'}, where it would be")
        volume = f"hermes-python-{python.digest}"
        nothing = {"Entrypoint": ["none"], "HostConfig": {"Binds": [f"{volume}:{MOUNT}:nocopy"]}}
        async with self._container(image, name, labels, nothing) as container:
            folder = await self._folder(container, python) or await self._fill(container, python)
        carried = CarriedPython(python.version, volume, f"{MOUNT}/{folder}/{python.program}")
        await self._try(carried, image, name, labels)
        return carried

    @asynccontextmanager
    async def _container(
        self, image: Image, name: str, labels: Mapping[str, str], config: Mapping[str, Any]
    ) -> AsyncIterator[str]:
        """Create a container for as long as the block lasts; it does not run."""
        container = await self._engine.create(name, {"Image": image.id, "Labels": dict(labels), "Cmd": [], **config})
        try:
            yield container
        finally:
            await self._engine.remove(container)

    async def _try(self, carried: CarriedPython, image: Image, name: str, labels: Mapping[str, str]) -> None:
        """Start it in a container of the image, and the bash of the image by it; raises `NotPortableError`."""
        bash = self._options.bash
        config = {
            "Entrypoint": [carried.program, *PYTHON_FLAGS[:-2], "-c", _TRIAL, bash, _BASH_4_4],
            "User": "0:0",
            "HostConfig": {
                "Binds": carried.fit(DockerOptions()).volumes,
                "NetworkMode": "none",
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges"],
                "PidsLimit": _PROCESSES,
            },
        }
        async with self._container(image, name, labels, config) as container:
            try:
                code = await self._engine.run_to_end(container, seconds=self._options.setup_timeout)
            except EngineTimeoutError as error:
                raise NotPortableError(f"a trial of it with {bash} of the image does not end") from error
        if code != 0:
            raise NotPortableError(f"the image has no {bash} of version 4.4 or newer that it can start")

    async def _folder(self, container: str, python: PortablePython) -> str | None:
        """Return where in the volume all of it is; None where it is not."""
        link = await self._engine.stat_file(container, f"{MOUNT}/{_READY}")
        folder = "" if link is None else str(link["linkTarget"]).rpartition("/")[2]
        program = await self._engine.stat_file(container, f"{MOUNT}/{folder}/{python.program}") if folder else None
        return None if program is None else folder

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
