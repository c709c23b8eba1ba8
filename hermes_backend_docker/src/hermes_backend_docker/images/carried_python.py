"""This machine's own Python in a volume of the engine, for containers whose image has none."""

from __future__ import annotations

import asyncio
import io
import secrets
import tarfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hermes_backend_docker.engine.client import Engine
from hermes_backend_docker.engine.failures import EngineError, ProgramMissingError
from hermes_backend_docker.images.images import Image
from hermes_backend_docker.options import DockerOptions
from hermes_core.contracts.errors import NoPythonError
from hermes_sandbox.backends import PYTHON_FLAGS, NotPortableError, PortablePython, portable_python

MOUNT: Final = "/.hermes-python"
"""Where the volume is, inside, read-only; not where a task has its work."""
_HINT: Final = "use an image that has python3 or bash, or set the backend's option python to its path inside"
_READY: Final = "ready"
"""A link in the volume to the folder that holds all of it."""
_BASH_4_4: Final = "mapfile -d '' x </dev/null && : \"${x@Q}\""
_NO_BASH: Final = 3
_KILLED: Final = 128
_TRIAL: Final = f"""
import os, sys
try:
    status = os.waitpid(os.posix_spawn(sys.argv[1], sys.argv[1:2] + ["-c", sys.argv[2]], {{}}), 0)[1]
except OSError:
    status = 1
sys.exit({_NO_BASH} if status else 0)
"""
"""Its arguments are a bash, and what one of version 4.4 can do."""


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
        self._known: dict[str, CarriedPython | str] = {}
        self._carried: CarriedPython | None = None
        self._filling = asyncio.Lock()
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def of(self, image: Image) -> CarriedPython | None:
        """Return what containers of the image start in place of its own; None as long as that is tried."""
        known = self._known.get(image.id)
        return None if isinstance(known, str) else known

    def lack(self, image: Image) -> str | None:
        """Return why no Python at all runs in containers of the image; None if one may."""
        known = self._known.get(image.id)
        return known if isinstance(known, str) else None

    async def replace(
        self,
        tried: CarriedPython | None,
        image: Image,
        error: ProgramMissingError,
        *,
        name: str,
        config: Callable[[CarriedPython], Mapping[str, Any]],
    ) -> CarriedPython:
        """Return another Python than the one that was tried, which is not there, as the error says.

        Containers that are made meanwhile are called `name`; `config` describes one that starts a Python.

        Raises:
            NoPythonError: There is none that would run.
            BackendError: It cannot be found out now, by the engine's fault or this machine's.
        """
        async with self._turns[image.id]:
            known = self._known.get(image.id)
            # Somebody else may have asked for the same. A volume can have been removed since it was filled.
            if known is None or known == tried:
                try:
                    known = await self._bring(tried, image, name, config)
                except NotPortableError as problem:
                    known = f"{error.message}; this machine's Python cannot be brought there: {problem}"
                except EngineError as problem:
                    problem.hint = problem.hint or "the backend's option carry_python: false does without"
                    raise
                self._known[image.id] = known
        if isinstance(known, str):
            raise NoPythonError(known, hint=_HINT) from error
        return known

    async def _bring(
        self,
        tried: CarriedPython | None,
        image: Image,
        name: str,
        config: Callable[[CarriedPython], Mapping[str, Any]],
    ) -> CarriedPython:
        if not self._options.carries_python:
            raise NotPortableError("the backend's options do not let it")
        if taken := [path for path in self._options.targets if f"{MOUNT}/".startswith(f"{path}/")]:
            raise NotPortableError(f"the option volumes has {taken[0] or '/'}, where it would be")
        python = await asyncio.to_thread(portable_python)
        if image.architecture != python.architecture:
            raise NotPortableError(f"the image is for {image.architecture}, that is for {python.architecture}")
        for _ in range(2):
            async with self._filling:
                if self._carried is None or self._carried == tried:
                    self._carried = await self._find_or_fill(python, image, name, config)
                carried = self._carried
            try:
                await self._try(carried, name, config)
            except ProgramMissingError:
                # The volume has been removed since it was filled for another image.
                tried = carried
            else:
                return carried
        raise NotPortableError("it is not there once it has been brought")

    async def _find_or_fill(
        self, python: PortablePython, image: Image, name: str, config: Callable[[CarriedPython], Mapping[str, Any]]
    ) -> CarriedPython:
        volume = f"hermes-python-{python.digest}"
        labels = config(CarriedPython(python.version, volume, ""))["Labels"]
        nothing = {"Image": image.id, "Labels": labels, "Entrypoint": ["none"], "Cmd": []}
        # The engine must not fill it with what the image has there.
        mounted = {"HostConfig": {"Binds": [f"{volume}:{MOUNT}:nocopy"]}}
        async with self._engine.container(name, {**nothing, **mounted}) as container:
            folder = await self._folder(container, python) or await self._fill(container, python)
        return CarriedPython(python.version, volume, f"{MOUNT}/{folder}/{python.program}")

    async def _try(
        self, carried: CarriedPython, name: str, config: Callable[[CarriedPython], Mapping[str, Any]]
    ) -> None:
        """Start it in a container like those of the sandboxes, and the bash of the image by it.

        Raises:
            NotPortableError: The image has no bash that works, or no /bin/sh.
        """
        bash = self._options.bash
        like = config(carried)
        trial = {
            **like,
            "Entrypoint": [carried.program, *PYTHON_FLAGS[:-2], "-c", _TRIAL, bash, _BASH_4_4],
            **dict.fromkeys(("AttachStdin", "OpenStdin", "StdinOnce"), False),
            "HostConfig": {**like["HostConfig"], "NetworkMode": "none", "AutoRemove": False},
        }
        async with self._engine.container(name, trial) as container:
            if await self._engine.stat_file(container, "/bin/sh") is None:
                raise NotPortableError("the image has no /bin/sh")
            seconds = self._options.engine_timeout + self._options.setup_timeout
            code = await self._engine.run_to_end(container, seconds=seconds)
        if code == _NO_BASH:
            raise NotPortableError(f"the image has no {bash} of version 4.4 or newer that works")
        if code > _KILLED:
            raise EngineError(f"a trial of this machine's Python in a container was killed ({code - _KILLED})")
        if code != 0:
            raise NotPortableError(f"a trial of it in a container of the image exited with {code}")

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
