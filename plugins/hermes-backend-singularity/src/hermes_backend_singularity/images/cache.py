"""Cache of built images on disk, shared by all processes that use the same directory.

Layout: `images/KEY/` holds the image and `entry.json`, `building/KEY.*` an image that is being built. `locks/KEY` is
locked exclusively by the process that builds the image, and shared by the processes that use it; a locked image is not
removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hermes_backend_singularity.runtime.failures import ImageError, ImageTimeoutError, NoSpaceError

Build = Callable[[Path], None]
"""Builds an image at a path that does not exist yet; raises an error if it cannot."""
_ENTRY: Final = "entry.json"
_TICK: Final = 0.05


@dataclass(frozen=True, slots=True)
class Cached:
    """An image in the cache; it is not removed while `hold` is open."""

    path: Path
    key: str
    hold: int

    def release(self) -> None:
        """Release the lock, so that the image can be removed."""
        os.close(self.hold)


def key_of(*parts: str) -> str:
    """Return the cache key of an image that depends on all of these parts."""
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:32]


class ImageCache:
    """A directory of built images. Every method blocks.

    Args:
        directory: The cache's directory, which is created on first use.
        max_mb: Size above which unused images are removed after a build; None for never.
    """

    def __init__(self, directory: Path, max_mb: int | None) -> None:
        self._directory = directory
        self._max_mb = max_mb

    def find(self, key: str) -> Cached | None:
        """Return an image if it is in the cache, and lock it; None if it is not."""
        self._make()
        hold = self._open_lock(key)
        try:
            # A lock that is not free means that the image is being built or removed, so it is not in the cache.
            fcntl.flock(hold, fcntl.LOCK_SH | fcntl.LOCK_NB)
            path = self._image(key)
            if path is not None:
                os.utime(path.parent / _ENTRY)
                return Cached(path, key, hold)
        except BlockingIOError:
            pass
        except BaseException:
            os.close(hold)
            raise
        os.close(hold)
        return None

    def bring(self, key: str, source: str, name: str, build: Build, *, seconds: float, anew: bool = False) -> Cached:
        """Return an image and lock it; the first process that asks for the image builds it.

        Args:
            key: The key in the cache.
            source: A description for readers of the directory.
            name: Name of the image's file or directory.
            build: Builds the image.
            seconds: How long to wait for another process that builds it.
            anew: Whether to build the image even if it is in the cache.
        """
        self._make()
        hold = self._open_lock(key)
        try:
            found = self._await_turn(hold, key, source, seconds, anew=anew)
            if found is None:
                found = self._build(key, source, name, build)
                fcntl.flock(hold, fcntl.LOCK_SH)
                self._shrink(keep=key)
        except BaseException:
            os.close(hold)
            raise
        return Cached(found, key, hold)

    def _make(self) -> None:
        try:
            for name in ("images", "building", "locks"):
                (self._directory / name).mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise ImageError(
                f"the image cache {self._directory} cannot be created: {error.strerror}",
                hint="set the backend's option cache_dir to a writable directory",
            ) from error

    def _open_lock(self, key: str) -> int:
        return os.open(self._directory / "locks" / key, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _await_turn(self, hold: int, key: str, source: str, seconds: float, *, anew: bool) -> Path | None:
        """Wait until another process has built the image, and return it; return None if this process must build it."""
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(BlockingIOError):
                if not anew:
                    fcntl.flock(hold, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    if (found := self._image(key)) is not None:
                        os.utime(found.parent / _ENTRY)
                        return found
                fcntl.flock(hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Another process may have built it between the two locks.
                return None if anew else self._image(key)
            if time.monotonic() >= end:
                raise ImageTimeoutError(
                    f"another process has been building image {source}, or using the old one, for over {seconds:g} s",
                    hint="wait for that, or raise the backend's option pull_timeout",
                )
            time.sleep(_TICK)

    def _image(self, key: str) -> Path | None:
        folder = self._directory / "images" / key
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            path = folder / str(json.loads((folder / _ENTRY).read_bytes())["name"])
            return path if path.exists() else None
        return None

    def _build(self, key: str, source: str, name: str, build: Build) -> Path:
        # We hold the lock, so files here were left by a killed process.
        for left in (self._directory / "building").glob(f"{key}.*"):
            _remove(left)
        work = self._directory / "building" / f"{key}.{os.getpid()}"
        target = self._directory / "images" / key
        try:
            (work / "temporary").mkdir(parents=True)
            build(work / name)
            _remove(work / "temporary")
            entry = {"source": source, "name": name, "built": time.time(), "bytes": _size(work)}
            (work / _ENTRY).write_text(json.dumps(entry), encoding="utf-8")
            _remove(target)
            work.replace(target)
        except OSError as error:
            raise NoSpaceError(
                f"image {source} cannot be written to the cache {self._directory}: {error}",
                hint="free some space, set cache_max_mb, or set the backend's option cache_dir to another disk",
            ) from error
        finally:
            _remove(work)
        return target / name

    def _shrink(self, *, keep: str) -> None:
        if self._max_mb is None:
            return
        entries = sorted(self._entries(), key=lambda entry: entry[1])
        total = sum(size for _, _, size in entries)
        for key, _, size in entries:
            if total <= self._max_mb << 20:
                return
            if key != keep and self._discard(key):
                total -= size

    def _entries(self) -> Iterator[tuple[str, float, int]]:
        for folder in (self._directory / "images").iterdir():
            with contextlib.suppress(OSError, ValueError, KeyError):
                file = folder / _ENTRY
                yield folder.name, file.stat().st_mtime, int(json.loads(file.read_bytes())["bytes"])

    def _discard(self, key: str) -> bool:
        hold = self._open_lock(key)
        try:
            fcntl.flock(hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            _remove(self._directory / "images" / key)
            return True
        finally:
            os.close(hold)


def _size(top: Path) -> int:
    total = 0
    for folder, _, names in os.walk(top):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512  # noqa: PTH118 - hot path
    return total


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        _open_up(path)
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _open_up(top: Path) -> None:
    # Images contain directories that not even their owner can write to.
    for folder, _, _ in os.walk(top):
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)  # noqa: PTH101 - hot path
