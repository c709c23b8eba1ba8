"""Bring this machine's own Python, in a volume of the engine, to containers of images without one."""

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
"""The read-only mount point of the volume, outside of any task's folders."""
_HINT: Final = "use an image that has python3 or bash, or set the backend's option python to its path inside"
_READY: Final = "ready"
"""A link in the volume to the folder with the complete copy."""
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
"""Its arguments are the path of bash and a script that needs bash 4.4."""


@dataclass(frozen=True, slots=True)
class CarriedPython:
    """The volume and the Python that containers use."""

    version: str
    volume: str
    program: str

    def fit(self, options: DockerOptions) -> DockerOptions:
        """Return the options with this Python instead of the image's."""
        # The engine must never fill the volume with the image's files.
        volumes = [*options.volumes, f"{self.volume}:{MOUNT}:ro,nocopy"]
        return options.model_copy(update={"python": self.program, "volumes": volumes})


class CarriedPythons:
    """Chooses the Python for containers of images without one.

    A process that finds the volume empty fills a separate folder in it, and points the link to the folder when it is
    complete. So no container runs an incomplete Python or one that is being replaced.
    """

    def __init__(self, engine: Engine, options: DockerOptions) -> None:
        self._engine = engine
        self._options = options
        self._known: dict[str, CarriedPython | str] = {}
        self._carried: CarriedPython | None = None
        self._filling = asyncio.Lock()
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def of(self, image: Image) -> CarriedPython | None:
        """Return the Python that containers of the image use instead of its own, or None if its own is still tried."""
        known = self._known.get(image.id)
        return None if isinstance(known, str) else known

    def lack(self, image: Image) -> str | None:
        """Return why no Python runs in containers of the image, or None if one may."""
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
        """Return another Python after the error showed that the tried one is missing.

        Containers created meanwhile are named `name`; `config` describes one that starts a Python.

        Raises:
            NoPythonError: No Python would run there.
            BackendError: It cannot be determined now, because of the engine or this machine.
        """
        async with self._turns[image.id]:
            known = self._known.get(image.id)
            # Another caller may have done the same. The volume may have been removed since it was filled.
            if known is None or known == tried:
                try:
                    known = await self._bring(tried, image, name, config)
                except NotPortableError as problem:
                    known = f"{error.message}; this machine's Python cannot be brought there: {problem}"
                except EngineError as problem:
                    problem.hint = problem.hint or "set the backend's option carry_python: false to skip this"
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
            raise NotPortableError("the backend's options forbid it")
        if taken := [path for path in self._options.targets if f"{MOUNT}/".startswith(f"{path}/")]:
            raise NotPortableError(f"the option volumes already uses {taken[0] or '/'}")
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
                # The volume was removed after it was filled for another image.
                tried = carried
            else:
                return carried
        raise NotPortableError("it is missing after the copy")

    async def _find_or_fill(
        self, python: PortablePython, image: Image, name: str, config: Callable[[CarriedPython], Mapping[str, Any]]
    ) -> CarriedPython:
        volume = f"hermes-python-{python.digest}"
        labels = config(CarriedPython(python.version, volume, ""))["Labels"]
        nothing = {"Image": image.id, "Labels": labels, "Entrypoint": ["none"], "Cmd": []}
        # The engine must not fill the volume with the image's files.
        mounted = {"HostConfig": {"Binds": [f"{volume}:{MOUNT}:nocopy"]}}
        async with self._engine.container(name, {**nothing, **mounted}) as container:
            folder = await self._folder(container, python) or await self._fill(container, python)
        return CarriedPython(python.version, volume, f"{MOUNT}/{folder}/{python.program}")

    async def _try(
        self, carried: CarriedPython, name: str, config: Callable[[CarriedPython], Mapping[str, Any]]
    ) -> None:
        """Try it, and through it the image's bash, in a container like those of the sandboxes.

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
        """Return the path of the complete copy in the volume, or None."""
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
