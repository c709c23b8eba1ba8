"""What another sandbox of the same image holds outside its workspace, taken over as data: programs stay the image's."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import shlex
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from hermes_core.contracts.errors import BackendError, VerifierError, WorkspaceError
from hermes_core.contracts.sandbox import FileStat, Sandbox
from hermes_core.rollout.copying import copy_tree

SYSTEM_FOLDERS: Final = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc", "/run", "/sbin", "/sys"),
    *("/usr", "/var/cache", "/var/lib", "/var/run", "/var/spool", "/nix", "/gnu", "/snap"),
)
"""Where programs, their libraries, state and settings lie: the Filesystem Hierarchy Standard 3.0, Nix, Guix, Snap."""
_OF_THE_CONTAINER: Final = ("/.dockerenv", "/.dockerinit", "/.singularity.d", "/run/.containerenv")
"""Made anew for each container."""
_MANY, _MOST = 50, 5_000
"""Changes in one folder above which it is copied as a whole, and above which one that cannot be is an error."""

# What the image's programs are: `P` its folders of PATH, folders called bin that links in these lead to, and the
# libraries beside all of them; `V` what its variables make programs load, and other files that such links lead to.
_SEARCHED: Final = r"""
IFS=:
seen=:
installed() {
  case $seen in *:"$1":*) return ;; esac
  seen=$seen$1:
  printf 'P %s\n' "$1"
  up=${1%/*}
  for mark in "$up"/lib*/python* "$up"/lib*/node_modules "$up"/lib*/*.so* "$up/pyvenv.cfg" "$up/conda-meta"; do
    [ -e "$mark" ] || continue
    for part in "$up"/lib* "$up/share" "$up/pyvenv.cfg" "$up/conda-meta"; do
      [ ! -e "$part" ] || printf 'P %s\n' "$part"
    done
    return
  done
}
for path in $PATH; do
  case $path in /?*) ;; *) continue ;; esac
  installed "${path%/}"
  real=$(readlink -f -- "$path") && installed "$real"
  for file in "$path"/*; do
    [ -L "$file" ] && real=$(readlink -f -- "$file") || continue
    case $real in */bin/* | */sbin/*) installed "${real%/*}" ;; esac
    case $real in /usr/* | /bin/* | /sbin/* | /lib* | /etc/* | /opt/*) ;; *) printf 'V %s\n' "$real" ;; esac
  done
done
for path in $PYTHONPATH $PYTHONHOME $LD_LIBRARY_PATH $LD_PRELOAD $BASH_ENV $ENV $NODE_PATH $PERL5LIB $RUBYLIB; do
  case $path in /?*) printf 'V %s\n' "$path" && real=$(readlink -f -- "$path") && printf 'V %s\n' "$real" ;; esac
done
:"""


async def take_changes(target: Sandbox, source: Sandbox, path: str) -> str:
    """Make an absolute path of the target what it is in the source; `/` is the workspace and all that differs.

    Folders of programs stay those of the target, also within a folder that is named; a file in one of them is taken
    where it is named itself. Returns what became of the path.

    Raises:
        BackendError: The target cannot take it.
        VerifierError: The path is a folder of programs.
        WorkspaceError: The source holds what cannot be copied.
    """
    programs, others = await _searched(target)
    if path == "/":
        left_out = {*SYSTEM_FOLDERS, *programs, *others}
        changes = _Changes(source, target, {*left_out, *_OF_THE_CONTAINER})
        await _run(target, f"mkdir -p -- {shlex.join(sorted(changes.above))} 2>/dev/null || :")
        for root in (target.workspace, "/"):
            await changes.take_folder(root)
        return f"copied: all changes but those in {', '.join(sorted(left_out))}{changes.omitted()}"
    # The folder that a link of the image leads to is what is meant, not the link.
    quoted = shlex.quote(path)
    path = (await _run(target, f"[ -d {quoted} ] && readlink -f -- {quoted} || echo {quoted}")).removesuffix("\n")
    changes = _Changes(source, target, programs)
    if path in programs:
        raise VerifierError(
            f"artifact {path!r} is a folder of the image's programs, which judge",
            hint="name the files or folders in it that the task asks for",
        )
    entry = (await _listed(source, posixpath.dirname(path))).get(path)
    if entry is None or entry.kind != "directory":
        if entry is not None and path in changes.above:
            raise WorkspaceError(f"{path} holds programs of the image, and the rollout put something else in its place")
        await changes.take(path, entry)
    else:
        await _run(target, f"[ -d {shlex.quote(path)} ] || mkdir -p -- {shlex.quote(path)}")
        await changes.take_folder(path)
    return f"copied{changes.omitted()}" if entry else "missing"


class _Changes:
    """Takes paths over; `kept` ones, and what lies in them, stay the target's.

    Attributes:
        above: What holds something that is kept: never replaced as a whole.
    """

    def __init__(self, source: Sandbox, target: Sandbox, kept: Iterable[str]) -> None:
        self._source, self._target = source, target
        self._kept = set(kept)
        self.above = {str(folder) for path in self._kept for folder in PurePosixPath(path).parents}
        self._omitted = 0

    def omitted(self) -> str:
        """Say how much could not be taken."""
        return f", without {self._omitted} entries that cannot be copied" if self._omitted else ""

    async def take(self, path: str, entry: FileStat | None) -> None:
        """Replace one path by what the source has there: `entry`, of which only the kind is used."""
        await _remove(self._target, path)
        if entry is None:
            return
        if entry.kind == "other":
            self._omitted += 1
        elif entry.kind == "symlink":
            read = await self._source.exec(f"command -p readlink -- {shlex.quote(path)}", timeout=30, cwd="/")
            link = read.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")
            if read.exit_code != 0 or not link or "\0" in link:
                raise WorkspaceError(f"the link {path} cannot be read: {read.output.strip()[-300:]}")
            folder = shlex.quote(posixpath.dirname(path))
            await _run(self._target, f"mkdir -p -- {folder} && ln -s -- {shlex.quote(link)} {shlex.quote(path)}")
        else:
            self._omitted += await copy_tree(self._source, self._target, path)

    async def take_folder(self, folder: str) -> None:
        """Make a folder that both have the same, but for what is kept in it."""
        before, after = await asyncio.gather(_listed(self._target, folder), _listed(self._source, folder))
        both = {path for path in before if before[path].kind == "directory" and path in after} - self._kept
        folders = {path for path in both if after[path].kind == "directory"}
        others = {*before, *after} - self._kept - self.above - folders
        changed = [path for path in sorted(others) if before.get(path) != after.get(path)]
        if len(changed) > _MANY and folder not in self.above:
            for path in before:
                await _remove(self._target, path)
            self._omitted += await copy_tree(self._source, self._target, folder)
            return
        if len(changed) > _MOST:
            raise WorkspaceError(f"the rollout left {len(changed)} changes in {folder}, where {_MOST} can be copied")
        for path in changed:
            await self.take(path, after.get(path))
        for path in sorted(folders):
            if before[path].mode != after[path].mode:
                await _run(self._target, f"chmod {after[path].mode & 0o7777:o} {shlex.quote(path)}")
            await self.take_folder(path)


async def _searched(target: Sandbox) -> tuple[set[str], set[str]]:
    """Return where the image's programs and their libraries lie, and what else its variables make them load."""
    found: dict[str, set[str]] = {"P": set(), "V": set()}
    for line in (await _run(target, f"({_SEARCHED}) 2>/dev/null")).splitlines():
        path = posixpath.normpath(line[2:])
        if path != "/":
            found[line[:1]].add(path)
    return found["P"], found["V"]


async def _run(target: Sandbox, command: str) -> str:
    done = await target.exec(command, timeout=60, cwd="/")
    if done.exit_code != 0:
        raise BackendError(f"{command[:200]} exited {done.exit_code}: {done.output.strip()[-300:]}")
    return done.stdout.decode("utf-8", "surrogateescape")


async def _remove(target: Sandbox, path: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        await target.remove(path)


async def _listed(sandbox: Sandbox, folder: str) -> dict[str, FileStat]:
    """Return what is in a folder, by path; a model that was root may have made up what its agent says."""
    try:
        entries = await sandbox.list_dir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    if wrong := [e.path for e in entries if e.path in {"", ".", ".."} or {"/", "\0"} & set(e.path)]:
        raise WorkspaceError(f"{wrong[0][:200]!r} in {folder} is no name of a file")
    return {posixpath.join(folder, e.path): e for e in entries}
