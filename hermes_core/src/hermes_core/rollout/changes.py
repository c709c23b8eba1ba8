"""What a rollout changed outside its workspace, carried into a new place as data: programs stay those of the image."""

from __future__ import annotations

import posixpath
import shlex
from pathlib import PurePosixPath
from typing import Final

from hermes_core.contracts.errors import SandboxRefusedError, WorkspaceError
from hermes_core.contracts.sandbox import FileStat, Sandbox
from hermes_core.rollout.copying import COPIED, MISSING, copy_tree, copy_workspace, remove_if_there

OWN_PLACES: Final = ("container", "gvisor")
"""Levels of isolation at which a sandbox shares its file system with nobody."""
SYSTEM_FOLDERS: Final = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc", "/run", "/sbin", "/sys"),
    *("/usr", "/var/cache", "/var/lib", "/var/run", "/var/spool"),
)
"""Where programs, their libraries, state and settings lie, by the Filesystem Hierarchy Standard 3.0."""
_MANY, _MOST = 200, 5_000
"""Changes in one folder above which it is copied as a whole, and above which one that cannot be is an error."""


def require_own_place(level: object, path: str) -> None:
    """Refuse an absolute artifact of a sandbox that shares its file system with others, or with a machine."""
    if level not in OWN_PLACES:
        raise SandboxRefusedError(
            f"artifact {path!r} lies outside the workspace, where isolation {level!r} shares with others",
            hint=f"--isolation {' or '.join(OWN_PLACES)}, or name artifacts in the workspace",
        )


async def copy_outside(source: Sandbox, target: Sandbox, path: str) -> str:
    """Carry an absolute path over, `/` for all that the rollout changed; say what became of it."""
    require_own_place(source.provenance.get("isolation"), path)
    carrier = _Carrier(source, target)
    if path == "/":
        return await carrier.carry_all()
    entry = (await _listed(source, posixpath.dirname(path))).get(path)
    await carrier.carry(path, entry)
    return MISSING if entry is None else COPIED


class _Carrier:
    """Makes paths of the target what they are in the source."""

    def __init__(self, source: Sandbox, target: Sandbox) -> None:
        self._source, self._target = source, target
        self._kept, self._above = set(SYSTEM_FOLDERS), set[str]()

    async def carry_all(self) -> str:
        """Carry the workspace, and what differs outside the folders of programs; say what that leaves out."""
        workspace = self._target.workspace
        self._kept = (self._kept | await self._searched_folders()) - {workspace}
        if not any(PurePosixPath(folder).is_relative_to(workspace) for folder in self._kept):
            await copy_workspace(self._source, self._target)
            self._kept.add(workspace)
        self._above = {str(folder) for path in self._kept for folder in PurePosixPath(path).parents}
        await _run(self._target, f"mkdir -p -- {shlex.join(self._above)}")
        await self._compare("/")
        return f"{COPIED}: the workspace and what changed, but in {', '.join(sorted(self._kept - {workspace}))}"

    async def carry(self, path: str, entry: FileStat | None) -> None:
        """Replace one path by what the source has there: `entry`, of which only the kind is used."""
        await remove_if_there(self._target, path)
        if entry is not None and entry.kind == "symlink":
            link = (await _run(self._source, f"command -p readlink -- {shlex.quote(path)}")).removesuffix("\n")
            await _run(self._target, f"ln -s -- {shlex.quote(link)} {shlex.quote(path)}")
        elif entry is not None and entry.kind != "other":
            await copy_tree(self._source, self._target, path)

    async def _searched_folders(self) -> set[str]:
        """Return what holds the folders of the image's PATH, such as a virtual environment; not the workspace."""
        home, *paths = map(posixpath.normpath, (await _run(self._target, 'printf %s "$HOME:$PATH"')).split(":"))
        whole = {"/", home, self._target.workspace}
        holders = {path if (above := posixpath.dirname(path)) in whole else above for path in paths if path[:1] == "/"}
        return {path for path in holders - whole if not PurePosixPath(path).is_relative_to(self._target.workspace)}

    async def _compare(self, folder: str) -> None:
        before, after = await _listed(self._target, folder), await _listed(self._source, folder)
        both = {path for path in before if before[path].kind == "directory" and path in after} - self._kept
        folders = {path for path in both if after[path].kind == "directory"}
        others = {*before, *after} - self._kept - self._above - folders
        changed = [path for path in sorted(others) if before.get(path) != after.get(path)]
        if len(changed) > _MANY and folder not in self._above:
            for path in before:
                await remove_if_there(self._target, path)
            await copy_tree(self._source, self._target, folder)
            return
        if len(changed) > _MOST:
            raise WorkspaceError(f"the rollout left {len(changed)} changes in {folder}, where {_MOST} can be copied")
        for path in changed:
            await self.carry(path, after.get(path))
        for path in sorted(folders):
            if before[path].mode != after[path].mode:
                await _run(self._target, f"chmod {after[path].mode:o} {shlex.quote(path)}")
            await self._compare(path)


async def _run(sandbox: Sandbox, command: str) -> str:
    done = await sandbox.exec(command, timeout=30, cwd="/")
    if done.exit_code != 0:
        raise WorkspaceError(f"{command} exited {done.exit_code}: {done.output.strip()[-300:]}")
    return done.stdout.decode("utf-8", "surrogateescape")


async def _listed(sandbox: Sandbox, folder: str) -> dict[str, FileStat]:
    """Return what is in a folder, by path; a model that was root may have made up the names."""
    try:
        entries = await sandbox.list_dir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return {posixpath.join(folder, e.path): e for e in entries if "/" not in e.path and e.path not in {"", ".", ".."}}
