"""Read the model's files safely: symlinks out of the workspace, pipes and huge files are refused."""

from __future__ import annotations

import posixpath
import shlex
from dataclasses import dataclass
from typing import Final

from hermes_core.contracts.sandbox import Sandbox

MAX_BYTES: Final = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Found:
    """A file's bytes, or why it cannot be read."""

    data: bytes | None
    problem: str = ""
    is_absent: bool = False


async def read_untrusted(sandbox: Sandbox, path: str, *, max_bytes: int = MAX_BYTES) -> Found:
    """Read a regular file; a relative path that leads out of the workspace is a problem."""
    resolved = await _resolve(sandbox, path)
    if resolved is None:
        return Found(None, f"{path} leads out of the workspace", is_absent=False)
    try:
        stat = await sandbox.stat(resolved)
        if stat.kind != "file":
            return Found(None, f"{path} is a {stat.kind}, not a file")
        if stat.size > max_bytes:
            return Found(None, f"{path} has {stat.size} bytes, more than {max_bytes}")
        # A file that grows meanwhile, or has a false size, is read no further.
        data = await sandbox.read_file(resolved, length=max_bytes + 1)
        too_long = f"{path} has more than {max_bytes} bytes"
        return Found(data) if len(data) <= max_bytes else Found(None, too_long)
    except (FileNotFoundError, NotADirectoryError):
        return Found(None, f"{path} does not exist", is_absent=not await _is_link(sandbox, path))
    except OSError as error:
        return Found(None, f"{path} cannot be read: {error}")


async def _resolve(sandbox: Sandbox, path: str) -> str | None:
    """Return where a path leads, None if that is neither in the workspace nor a path that the task named."""
    workspace, target = sandbox.workspace, posixpath.join(sandbox.workspace, path)
    where = await _follow(sandbox, [workspace, target])
    if where is None:
        return target
    real_workspace, real_target = where
    inside = real_target == real_workspace or real_target.startswith(real_workspace.rstrip("/") + "/")
    is_as_named = posixpath.isabs(path) and real_target == posixpath.normpath(path)
    return real_target if inside or is_as_named else None


async def _follow(sandbox: Sandbox, paths: list[str]) -> list[str] | None:
    """Resolve symlinks; None if a path cannot be resolved because a directory on the way is missing."""
    quoted = " ".join(shlex.quote(path) for path in paths)
    done = await sandbox.exec(f"command -p readlink -f -- {quoted}", timeout=30, cwd="/")
    lines = done.stdout.decode("utf-8", "surrogateescape").splitlines()
    return lines if done.exit_code == 0 and len(lines) == len(paths) else None


async def _is_link(sandbox: Sandbox, path: str) -> bool:
    """Tell whether a path without a target is a dangling symlink."""
    done = await sandbox.exec(f"[ -L {shlex.quote(posixpath.join(sandbox.workspace, path))} ]", timeout=30, cwd="/")
    return done.exit_code == 0
