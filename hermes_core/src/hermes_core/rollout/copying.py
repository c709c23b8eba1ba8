"""Carrying what a rollout made into the sandbox it is judged in, by way of a private directory of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import shlex
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterable
from pathlib import Path
from typing import TypeVar

from hermes_core.contracts.errors import BackendError, HermesError, JudgeLostError, WorkspaceError
from hermes_core.contracts.sandbox import Sandbox
from hermes_core.rollout.runtime import to_completion

T = TypeVar("T")
COPIED = "copied"
MISSING = "missing"
LEADS_OUT = "leads out of the workspace"


async def answered(asked: Awaitable[T], limit: float) -> T:
    """Await what asks a rollout's sandbox, whose agent a model that was root may have replaced: late, or with nonsense.

    Raises:
        BackendError: What was answered makes no sense.
        WorkspaceError: It took more than `limit` seconds, or a call for a file failed.
    """
    try:
        async with asyncio.timeout(limit) as timer:
            return await asked
    except HermesError:
        raise
    except OSError as error:  # also one whose number is made up
        if isinstance(error, TimeoutError) and timer.expired():
            raise WorkspaceError(f"looking at what the rollout left took more than {limit:g} s") from error
        raise WorkspaceError(f"looking at what the rollout left: {error}") from error
    except Exception as error:  # whatever a made-up answer leads to
        raise BackendError(f"the rollout's sandbox answers what no sandbox can: {error!r}") from error


async def copy_workspace(source: Sandbox, target: Sandbox) -> None:
    """Make the target's workspace hold what the source's holds, and nothing else."""
    for entry in await target.list_dir("."):
        await target.remove(entry.path)
    await copy_tree(source, target, source.workspace, target.workspace)


async def copy_tree(source: Sandbox, target: Sandbox, path: str, to: str | None = None) -> int:
    """Copy a file, or a directory into the one that is there, symlinks as they are; return how much was left out."""
    async with _private_directory() as folder:
        copied = await source.download(path, folder / "tree")
        await target.upload(folder / "tree", to or path)
    return len(copied.omitted)


async def copy_artifacts(source: Sandbox, target: Sandbox, paths: Iterable[str]) -> dict[str, str]:
    """Carry the named paths over, in the place of what the task put there; say for each what became of it.

    A symlink that leads out of the workspace is not followed, whether it is the artifact, on the way to it or in it.
    """
    return {path: await _copy_artifact(source, target, path) for path in paths if not path.startswith("/")}


async def _copy_artifact(source: Sandbox, target: Sandbox, path: str) -> str:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        await target.remove(path)
    real = await _real_path(source, path)
    if real is None:
        return MISSING
    if real == "":
        return LEADS_OUT
    try:
        kind = (await source.stat(real)).kind
    except OSError:
        return MISSING
    if kind not in {"file", "directory"}:
        return f"is a {kind}, which is not copied"
    async with _private_directory() as folder:
        copied = await source.download(real, folder / "artifact")
        dropped = await asyncio.to_thread(_drop_links_that_lead_out, folder / "artifact")
        await target.upload(folder / "artifact", path)
    left_out = [
        f"{count} {what}"
        for count, what in (
            (dropped, "symlinks that lead out of it"),
            (len(copied.omitted), "entries that cannot be copied"),
        )
        if count
    ]
    return f"{COPIED} without {' and '.join(left_out)}" if left_out else COPIED


async def _real_path(sandbox: Sandbox, path: str) -> str | None:
    """Return where a path leads in the workspace, "" where it leads out of it, None where nothing can be there.

    The sandbox's own readlink may lie where the model was root; what it names is then read as that same user, and
    holds nothing that the model could not have put into the artifact itself.
    """
    wanted = [sandbox.workspace, posixpath.join(sandbox.workspace, path)]
    quoted = " ".join(shlex.quote(name) for name in wanted)
    done = await sandbox.exec(f"command -p readlink -f -- {quoted}", timeout=30, cwd="/")
    lines = done.stdout.decode("utf-8", "surrogateescape").splitlines()
    if done.exit_code != 0 or len(lines) != len(wanted):
        return None
    workspace, real = lines
    return real if real.startswith(workspace.rstrip("/") + "/") else ""


def _drop_links_that_lead_out(root: Path) -> int:
    base, dropped = os.path.realpath(root), 0
    waiting = [root] if root.is_dir() and not root.is_symlink() else []
    while waiting:  # os.walk calls itself for each level, and a tree may be deeper than that works
        for path in waiting.pop().iterdir():
            if not path.is_symlink():
                waiting += [path] if path.is_dir() else []
            elif path.readlink().is_absolute() or not _is_below(os.path.realpath(path), base):
                path.unlink()
                dropped += 1
    return dropped


def _is_below(path: str, base: str) -> bool:
    return path == base or path.startswith(base + os.sep)


@contextlib.asynccontextmanager
async def _private_directory() -> AsyncIterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hermes-judged-"))
    try:
        yield folder
    except OSError as error:
        # An error of a sandbox names a path in it; one that names none, or one of here, is this machine's own.
        if error.filename is None or str(error.filename).startswith(str(folder)):
            raise JudgeLostError(f"this machine cannot hold what is to be judged: {error}") from error
        raise
    finally:
        await to_completion(asyncio.to_thread(_delete_tree, folder))


def _delete_tree(root: Path) -> None:
    # What a model made may be write-protected; and rm, because Python's own deletion gives up on a very deep tree.
    for prepare in ([], ["chmod", "-R", "u+rwX", "--", str(root)]):
        if prepare:
            subprocess.run(prepare, capture_output=True, check=False)
        done = subprocess.run(["rm", "-rf", "--", str(root)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
    raise BackendError(f"{root} cannot be deleted: {done.stderr.strip()}")
