"""Resolve images, build each once for all rollouts and processes, and lock them while in use."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass
from pathlib import Path

from hermes_backend_singularity.images.cache import Cached, ImageCache, key_of
from hermes_backend_singularity.images.sources import Source, understand
from hermes_backend_singularity.options import SingularityOptions
from hermes_backend_singularity.runtime.failures import ImageError, ImageTimeoutError, NoSpaceError, explain, last_words
from hermes_backend_singularity.runtime.program import Program
from hermes_backend_singularity.runtime.spython_calls import build_image


@dataclass(frozen=True, slots=True)
class Image:
    """An image that instances can be started from: a SIF file or a sandbox directory."""

    name: str
    path: Path
    digest: str
    """Digest of its source; empty if unknown."""


class Images:
    """The images that one backend object uses."""

    def __init__(self, options: SingularityOptions) -> None:
        self._options = options
        self._cache = ImageCache(options.cache_dir, options.cache_max_mb)
        self._work: dict[str, asyncio.Task[Image]] = {}
        self._ready: dict[str, Image] = {}
        self._held: dict[str, Cached] = {}
        self._digests: dict[tuple[str, int, int, int], str] = {}

    async def ready(self, name: str, program: Program) -> Image:
        """Return an image by its name; build it if it is not in the cache.

        Raises:
            ImageError: The image is missing and cannot be built.
        """
        known = self._ready.get(name)
        if known is not None and known.path.exists():
            return known
        task = self._work.get(name)
        if task is None:
            task = self._work[name] = asyncio.ensure_future(self._bring(name, program))
            task.add_done_callback(lambda _: self._work.pop(name, None))
        # A cancelled caller leaves the work to the other waiters.
        return await asyncio.shield(task)

    async def _bring(self, name: str, program: Program) -> Image:
        source = await asyncio.to_thread(understand, name)
        if source.kind == "ready":
            assert source.path is not None
            return Image(name, source.path, "")
        digest = await asyncio.to_thread(self._digest, source, program)
        key = key_of(source.text, digest, self._options.cache_format, *self._options.build_options)
        cached = await asyncio.to_thread(self._bring_image, source, key, program)
        replaced, self._held[key] = self._held.get(key), cached
        if replaced is not None:
            replaced.release()
        # Local sources can change, so they are checked again for each sandbox; a registry's image is not.
        found = Image(name, cached.path, digest or key)
        if source.kind == "registry":
            self._ready[name] = found
        return found

    def _digest(self, source: Source, program: Program) -> str:
        if source.kind != "archive" or source.path is None or not source.path.is_file():
            return source.digest(program.for_builds.get("DOCKER_HOST"))
        # Remembered, so that a large file is not read again for every sandbox.
        found = source.path.stat()
        state = (source.text, found.st_ino, found.st_size, found.st_mtime_ns)
        if state not in self._digests:
            self._digests[state] = source.digest()
        return self._digests[state]

    def _bring_image(self, source: Source, key: str, program: Program) -> Cached:
        options = self._options
        seconds = options.build_timeout if source.kind == "definition" else options.pull_timeout
        anew = options.pull == "always" and source.kind == "registry"
        if options.pull == "never" and source.kind == "registry":
            found = self._cache.find(key)
            if found is None:
                raise ImageError(
                    f"image {source.text} is not in the cache {options.cache_dir}",
                    hint="set the option pull to missing",
                )
            return found
        return self._cache.bring(
            key,
            source.text,
            "image.sif" if options.cache_format == "sif" else "image",
            lambda target: _build(source, target, program, options, seconds),
            seconds=seconds,
            anew=anew and key not in self._held,
        )

    def release(self) -> None:
        """Release the images, so that any process can remove them to free space."""
        held, self._held = self._held, {}
        for cached in held.values():
            cached.release()


def _build(source: Source, target: Path, program: Program, options: SingularityOptions, seconds: float) -> None:
    temporary = str(target.parent / "temporary")
    # Temporary files go into the build's folder, so that a killed build leaves nothing elsewhere.
    variables = {"APPTAINER_TMPDIR": temporary, "SINGULARITY_TMPDIR": temporary}
    ran = build_image(
        dataclasses.replace(program, environment={**program.environment, **program.for_builds, **variables}),
        source.text,
        target,
        form=options.cache_format,
        options=options.build_options,
        seconds=seconds,
        directory=source.path.parent if source.kind == "definition" and source.path else None,
    )
    if ran.timed_out:
        option = "build_timeout" if source.kind == "definition" else "pull_timeout"
        raise ImageTimeoutError(
            f"image {source.text} was not built within {seconds:g} s: {last_words(ran.said)}",
            hint=f"raise the backend's option {option}, or build it once: `{_command(source)}`",
        )
    if ran.code:
        error = explain(f"image {source.text} cannot be built", ran.said)
        if isinstance(error, NoSpaceError):
            raise error
        raise ImageError(error.message, hint=f"`{_command(source)}` shows the same error") from error


def _command(source: Source) -> str:
    return f"apptainer build --sandbox DIR {source.text}"
