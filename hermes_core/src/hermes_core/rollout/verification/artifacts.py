"""Copy what a rollout made into the sandbox where it is judged, through a private directory of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import shlex
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TypeVar

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError, HermesError, JudgeLostError, WorkspaceError
from hermes_core.contracts.sandbox import Sandbox

T = TypeVar("T")
COPIED = "copied"
MISSING = "missing"
_MOST_STEPS = 1_000_000
_MOST_BYTES = 16 << 30
"""Bytes of this machine's disk that one copy may use while it passes through."""
_LONGEST_PATH = 4096


async def await_answer(asked: Awaitable[T], limit: float) -> T:
    """Await a question to a rollout's sandbox, whose agent may have been replaced and answer late or with nonsense.

    Raises:
        BackendError: The answer makes no sense.
        WorkspaceError: It took more than `limit` seconds, or a file call failed.
    """
    try:
        async with asyncio.timeout(limit) as timer:
            return await asked
    except HermesError:
        raise
    except OSError as error:  # also one with a forged number
        if isinstance(error, TimeoutError) and timer.expired():
            raise WorkspaceError(f"looking at what the rollout left took more than {limit:g} s") from error
        raise WorkspaceError(f"looking at what the rollout left: {error}") from error
    except Exception as error:  # whatever a forged answer leads to
        raise BackendError(f"the rollout's sandbox gave an impossible answer: {error!r}") from error


async def copy_workspace(source: Sandbox, target: Sandbox) -> None:
    """Make the target's workspace an exact copy of the source's."""
    for entry in await target.list_dir("."):
        await target.remove(entry.path)
    await copy_tree(source, target, source.workspace, target.workspace)


async def copy_tree(source: Sandbox, target: Sandbox, path: str, to: str | None = None) -> int:
    """Copy a file, or merge a directory into an existing one, symlinks unchanged; return how much was left out."""
    async with _private_directory() as folder:
        copied = await source.download(path, folder / "tree", max_bytes=_MOST_BYTES)
        await target.upload(folder / "tree", to or path)
    return len(copied.omitted)


async def copy_artifacts(source: Sandbox, target: Sandbox, paths: Iterable[str]) -> dict[str, str]:
    """Copy named paths of the workspace, replacing the task's own files there; return what happened to each.

    A symlink that leads out of the workspace is not followed, be it the artifact, on the way to it or inside it.
    """
    return {path: await _copy_artifact(source, target, path) for path in paths if not path.startswith("/")}


async def _copy_artifact(source: Sandbox, target: Sandbox, path: str) -> str:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        await target.remove(path)
    real = await _real_path(source, path)
    if not real:
        return MISSING if real is None else "leads out of the workspace"
    try:
        kind = (await source.stat(real)).kind
    except OSError:
        return MISSING
    if kind not in {"file", "directory"}:
        return f"is a {kind}, which is not copied"
    async with _private_directory() as folder:
        copied = await source.download(real, folder / "artifact", max_bytes=_MOST_BYTES)
        dropped = await asyncio.to_thread(_drop_links_that_lead_out, folder / "artifact")
        await target.upload(folder / "artifact", path)
    counts = ((dropped, "symlinks that lead out of it"), (len(copied.omitted), "entries that cannot be copied"))
    left_out = " and ".join(f"{count} {what}" for count, what in counts if count)
    return f"{COPIED} without {left_out}" if left_out else COPIED


async def _real_path(sandbox: Sandbox, path: str) -> str | None:
    """Return where a path leads in the workspace, "" if it leads out of it, None if nothing can be there.

    The sandbox's readlink may lie if the model was root; the path it names is then read as that same user, and
    holds nothing that the model could not have put into the artifact directly.
    """
    wanted = shlex.join([sandbox.workspace, posixpath.join(sandbox.workspace, path)])
    done = await sandbox.exec(f"command -p readlink -f -- {wanted}", timeout=30, cwd="/")
    lines = done.stdout.decode("utf-8", "surrogateescape").splitlines()
    if done.exit_code != 0 or len(lines) != 2:
        return None
    workspace, real = lines
    return real if real.startswith(workspace.rstrip("/") + "/") else ""


def _drop_links_that_lead_out(root: Path) -> int:
    links, folders = dict[str, str](), [""] if root.is_dir() and not root.is_symlink() else []
    while folders:  # os.walk recurses for each level, and a tree may be too deep for that
        folder = folders.pop()
        if len(os.fsencode(root / folder)) >= _LONGEST_PATH:
            raise WorkspaceError(f"a folder of an artifact has a path of more than {_LONGEST_PATH} bytes")
        for entry in os.scandir(root / folder):
            if entry.is_symlink():
                links[posixpath.join(folder, entry.name)] = str(Path(entry).readlink())
            elif entry.is_dir():
                folders.append(posixpath.join(folder, entry.name))
    if sum(target.count("/") for target in links.values()) > _MOST_STEPS:
        raise WorkspaceError("the symlinks of an artifact lead through more folders than can be looked at")
    ends = dict[str, str]()
    following = [_follow(link, links, ends) for link in links]
    while following:  # a call for each link of a chain would be too many, and each link is followed at most twice
        if (first := next(following[-1], None)) is None:
            following.pop()
        else:
            following.append(_follow(first, links, ends))
    out = [link for link, end in ends.items() if f"{end}/".startswith(("/", "../"))]
    for link in out:
        (root / link).unlink()
    return len(out)


def _follow(link: str, links: Mapping[str, str], ends: dict[str, str]) -> Iterator[str]:
    """Add where a link ends, as a path from the root; yield links to follow before. A loop has no end."""
    ends[link], end = link, posixpath.dirname(link) or "."
    for name in PurePosixPath(links[link]).parts:
        end = posixpath.normpath(posixpath.join(end, name))
        if end in links and end not in ends:
            yield end
        end = end if name == ".." else ends.get(end, end)
        if len(end) > _LONGEST_PATH:  # no tree is so deep; each link of a chain could add to it
            end = ".."
            break
    ends[link] = end


@contextlib.asynccontextmanager
async def _private_directory() -> AsyncIterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hermes-judged-"))
    try:
        yield folder
    except OSError as error:
        # An error of a sandbox names a path in it; one without a path, or with a path of here, is this machine's.
        if error.filename is None or str(error.filename).startswith(str(folder)):
            raise JudgeLostError(f"this machine cannot hold the files to be judged: {error}") from error
        raise
    finally:
        await run_uncancelled(asyncio.to_thread(_delete_tree, folder))


def _delete_tree(root: Path) -> None:
    # The model's files may be write-protected; rm, because Python's own deletion gives up on a very deep tree.
    delete = 'rm -rf -- "$0" 2>/dev/null || { chmod -R u+rwX -- "$0"; rm -rf -- "$0"; }'
    done = subprocess.run(["sh", "-c", delete, str(root)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BackendError(f"{root} cannot be deleted: {done.stderr.strip()}")
