"""Find, pull or build images, once for all rollouts that need them at the same time."""

from __future__ import annotations

import asyncio
import io
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Literal

from aiodocker import Docker

from hermes_backend_docker.engine.client import Engine
from hermes_backend_docker.engine.failures import EngineError, ImageMissingError
from hermes_backend_docker.images.build_context import read_context

Pull = Literal["never", "missing", "always"]
_DOCKERFILE: Final = "dockerfile:"
_SHOWN: Final = 2000
"""How many characters at the end of a failed build's output go into the message."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image on the engine."""

    name: str
    id: str
    environment: Mapping[str, str]
    user: str = ""
    """Its USER, a name or a number; empty for root."""
    folder: str = "/"
    """Its WORKDIR."""
    architecture: str = ""
    """The engine's name for it: `amd64`, `arm64`."""


class Images:
    """The images of one engine.

    Args:
        engine: The engine.
        pull: When to pull from the registry.
        pull_timeout: Timeout of a pull in seconds.
        build_timeout: Timeout of a build in seconds.
    """

    def __init__(self, engine: Engine, *, pull: Pull, pull_timeout: float, build_timeout: float) -> None:
        self._engine = engine
        self._pull = pull
        self._pull_timeout = pull_timeout
        self._build_timeout = build_timeout
        self._work: dict[str, asyncio.Task[Image]] = {}
        self._ready: dict[str, Image] = {}
        self._last_known: dict[str, Image] = {}

    async def ready(self, name: str, context: Path | None = None) -> Image:
        """Return an image by its name, or the one that `dockerfile:PATH` describes, built in `context`.

        Raises:
            ImageMissingError: It is missing and cannot be pulled.
            EngineError: It cannot be built.
        """
        if name in self._ready and not name.startswith(_DOCKERFILE):
            return self._ready[name]
        task = self._work.get(name)
        if task is None:
            task = self._work[name] = asyncio.ensure_future(self._bring(name, context))
            task.add_done_callback(lambda _: self._work.pop(name, None))
        # A cancelled caller leaves the work to the other waiters.
        image = self._last_known[name] = await asyncio.shield(task)
        return image

    def last_known(self, name: str) -> Image | None:
        """Return an image as last seen, or None if it was not requested yet."""
        return self._last_known.get(name)

    def forget(self, name: str) -> None:
        """Forget an image that was removed, so that the next request looks for it again."""
        self._ready.pop(name, None)

    async def _bring(self, name: str, context: Path | None) -> Image:
        if name.startswith(_DOCKERFILE):
            return await self._find_or_build(Path(name.removeprefix(_DOCKERFILE)), context)
        if self._pull == "always":
            await self._fetch(name)
        try:
            image = await self._inspect(name)
        except ImageMissingError as error:
            if self._pull != "missing":
                raise ImageMissingError(f"image {name} is not on the engine", hint=f"docker pull {name}") from error
            await self._fetch(name)
            image = await self._inspect(name)
        self._ready[name] = image
        return image

    async def _inspect(self, name: str) -> Image:
        found = await self._engine.ask(f"image {name} cannot be inspected", lambda docker: docker.images.inspect(name))
        config = found.get("Config") or {}
        pairs = (entry.partition("=") for entry in config.get("Env") or ())
        environment = {key: value for key, _, value in pairs}
        folder = posixpath.normpath(posixpath.join("/", config.get("WorkingDir") or "/"))
        user, architecture = config.get("User") or "", found.get("Architecture") or ""
        return Image(name, found["Id"], environment, user, folder, architecture)

    async def _fetch(self, name: str) -> None:
        try:
            await self._engine.ask(
                f"image {name} cannot be pulled", lambda docker: docker.images.pull(name), seconds=self._pull_timeout
            )
        except EngineError as error:
            raise ImageMissingError(
                f"image {name} is not available: {error.message}", hint=f"docker pull {name}, or set another image"
            ) from error

    async def _find_or_build(self, dockerfile: Path, context: Path | None) -> Image:
        digest, archive = await asyncio.to_thread(read_context, dockerfile, context)
        name = f"hermes-built:{digest[:32]}"
        try:
            return await self._inspect(name)
        except ImageMissingError:
            await self._build(name, dockerfile, archive)
        return await self._inspect(name)

    async def _build(self, name: str, dockerfile: Path, archive: Callable[[], IO[bytes]]) -> None:
        said = io.StringIO()

        async def build(docker: Docker) -> None:
            with await asyncio.to_thread(archive) as packed:
                steps = docker.images.build(
                    fileobj=packed,
                    encoding="identity",
                    path_dockerfile="Dockerfile",
                    tag=name,
                    forcerm=True,
                    pull=self._pull == "always",
                    labels={"hermes.built": "1"},
                    stream=True,
                )
                async for step in steps:
                    said.write(step.get("stream", ""))

        what = f"{dockerfile} cannot be built"
        try:
            await self._engine.ask(what, build, seconds=self._build_timeout)
        except EngineError as error:
            raise _build_error(said.getvalue(), error) from error


def _build_error(said: str, error: EngineError) -> EngineError:
    shown = said.strip()[-_SHOWN:]
    return EngineError(
        f"{error.message}\n{shown}", hint=error.hint or "fix the Dockerfile; docker build shows the same error"
    )
