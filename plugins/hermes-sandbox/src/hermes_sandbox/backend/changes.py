"""Copies the changes of another sandbox of the same image, also outside its workspace, but not changes of programs."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import PurePosixPath
from typing import Final

from hermes_core.contracts.errors import VerifierError, WorkspaceError
from hermes_core.contracts.sandbox import FileStat, Sandbox
from hermes_core.rollout import copy_tree
from hermes_sandbox.protocol.turns import in_turns

SYSTEM_FOLDERS: Final = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc", "/run", "/sbin", "/sys"),
    *("/usr", "/var/cache", "/var/lib", "/var/run", "/var/spool", "/nix", "/gnu", "/snap"),
)
"""Folders of programs, libraries, state and settings, by the Filesystem Hierarchy Standard 3.0, Nix, Guix and Snap."""
_OF_THE_CONTAINER: Final = ("/.dockerenv", "/.dockerinit", "/.singularity.d", "/run/.containerenv")
"""Paths that are created for each container."""
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
"""An escaped character in a path of /proc/self/mountinfo."""
_MANY, _MOST = 50, 5_000
"""Number of changes in a folder above which it is copied as a whole, and above which a folder that cannot be is an
error."""

# Prints paths, each after a letter. `P`: always kept from the image. These are its folders on PATH; for a Python, a
# Node or a folder that begins with a dot (~/.pyenv, ~/.cargo) also the folders beside them; and the folders to which
# links in them lead. `V`: possibly the model's work. These are other targets of links in these folders, shared
# libraries beside them, and paths from which variables make programs load code. `M`: mount points.
_SEARCHED: Final = r"""
IFS=:
seen=:
real_of() { command -p readlink -f -- "$1" || readlink -f -- "$1"; }
installed() {
  case $seen in *:"$1$2":*) return ;; esac
  seen=$seen$1$2: kind=$1 up=${2%/*}
  for mark in "$up"/lib/python* "$up"/lib64/python* "$up/lib/node_modules" "$up/pyvenv.cfg" "$up/conda-meta"; do
    [ -e "$mark" ] || continue
    kind=P
    printf 'P %s\n' "$up/lib" "$up/lib64" "$up/share" "$up/conda-meta"
    break
  done
  for mark in "$up"/lib/*.so* "$up"/lib64/*.so*; do
    [ -e "$mark" ] || continue
    printf 'V %s\n' "$up/lib" "$up/lib64"
    break
  done
  case ${up##*/} in .local | .venv | .env) ;; .?*) printf '%s %s\n' "$1" "$up" ;; esac
  printf '%s %s\n' "$kind" "$2" "$kind" "$up/pyvenv.cfg"
  for file in "$2"/*; do
    [ -L "$file" ] && real=$(real_of "$file") || continue
    case $real in /usr/* | /bin/* | /sbin/* | /lib* | /etc/* | /opt/*) ;; *) printf 'V %s\n' "$real" ;; esac
    case $real in */bin/* | */sbin/*) case :$PATH: in *:"${real%/*}":*) ;; *) installed V "${real%/*}" ;; esac ;; esac
  done
}
for path in $PATH; do
  case $path in /?*) ;; *) continue ;; esac
  installed P "${path%/}"
  real=$(real_of "$path") && installed P "$real"
done
for path in $PYTHONPATH $PYTHONHOME $LD_LIBRARY_PATH $LD_PRELOAD $BASH_ENV $ENV $NODE_PATH $PERL5LIB $RUBYLIB \
  $CLASSPATH $GEM_HOME $GEM_PATH $R_LIBS; do
  case $path in /?*) printf 'V %s\n' "$path" && real=$(real_of "$path") && printf 'V %s\n' "$real" ;; esac
done
while IFS=' ' read -r _ _ _ _ path _; do printf 'M %s\n' "$path"; done </proc/self/mountinfo
:"""


async def take_changes(target: Sandbox, source: Sandbox, path: str, *, kept: Iterable[str] = ()) -> str:
    """Make an absolute path of the target equal to that of the source. `/` means the workspace and all other changes.

    Folders of programs are not copied, even inside the given path; a single file in one of them is copied if it is the
    given path. Nothing in the paths `kept` is copied. Returns a text that says what was copied.

    Raises:
        VerifierError: The path is a folder of programs, or the image has too many of these to search.
        WorkspaceError: The source has files that cannot be copied, or the target cannot store them.
    """
    found = await _search(target)
    left_out: set[str] = set()
    if path == "/":
        left_out = {*SYSTEM_FOLDERS, *found["P"], *found["V"]}
        folders, stays = [*dict.fromkeys((target.workspace, "/"))], {*left_out, *_OF_THE_CONTAINER, *kept}
    else:
        # If the path is a link in the image, it means the folder to which the link leads.
        quoted = shlex.quote(path)
        real = await _run(target, f"if [ -d {quoted} ]; then readlink -f -- {quoted}; else echo {quoted}; fi")
        path = real.removesuffix("\n")
        folders, stays = [path], {*found["P"], *kept}
    try:
        entry = None if path == "/" else await _entry(source, path)
    except PermissionError:
        return "unchanged: the rollout's user has no access to it"
    changes = _Changes(source, target, stays, found["M"])
    if path == "/":
        await _run(target, f"mkdir -p -- {shlex.join(sorted(changes.above))} 2>/dev/null || :")
    elif path in found["P"]:
        raise VerifierError(
            f"artifact {path!r} is a folder of the image's programs, which the verifier uses",
            hint="name the files or folders in it that the task requires",
        )
    elif entry is None or entry.kind != "directory":
        if path in found["M"]:
            return "mounted in both"
        if path in changes.above:
            raise WorkspaceError(f"expected a folder at {path}, because it contains files that are kept from the image")
        await changes.take(path, entry)
        return f"copied{changes.omission_note()}" if entry else "missing"
    else:
        await _run(target, f"[ -d {shlex.quote(path)} ] || mkdir -p -- {shlex.quote(path)}")
    for folder in folders:
        await changes.take_folder(folder)
        changes.keep(folder)
    but = f": all changes but those in {', '.join(sorted(left_out))}" if left_out else ""
    return f"copied{but}{changes.omission_note()}"


class _Changes:
    """Copies paths, except `kept` ones and their contents.

    Attributes:
        above: Mount points, and the folders above them and above kept paths: never replaced as a whole.
    """

    def __init__(self, source: Sandbox, target: Sandbox, kept: Iterable[str], mounted: Iterable[str]) -> None:
        self._source, self._target = source, target
        self._kept = {*kept}
        self.above = {*mounted} | {str(folder) for path in (*kept, *mounted) for folder in PurePosixPath(path).parents}
        self._omitted = 0
        owner = source.provenance.get("uid"), source.provenance.get("gid")
        # The copies belong to the same user unless that is root, because a test can run as that user.
        self._owner = f"{owner[0]}:{owner[1]}" if isinstance(owner[0], int) and owner[0] > 0 else None

    async def _give(self, path: str) -> None:
        if self._owner is not None:
            await _run(self._target, f"chown -hR {self._owner} -- {shlex.quote(path)} 2>/dev/null || :")

    def keep(self, path: str) -> None:
        """Keep a path unchanged from now on."""
        self._kept.add(path)
        self.above |= {str(folder) for folder in PurePosixPath(path).parents}

    def omission_note(self) -> str:
        """Return a note with the number of entries that could not be copied."""
        return f", without {self._omitted} entries that cannot be copied" if self._omitted else ""

    async def take(self, path: str, entry: FileStat | None) -> None:
        """Replace one path by that of the source. `entry` describes it there; only its kind is used."""
        if self._owner is not None and entry is not None and entry.kind in {"file", "directory"}:
            await _open_up(self._source, path)
        if entry is not None and not await _is_readable(self._source, path, entry.kind):
            self._omitted += 1
            return
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
        await self._give(path)

    async def take_folder(self, folder: str) -> None:
        """Make a folder equal to that of the source, except for kept paths in it."""
        before, after = await asyncio.gather(_list_folder(self._target, folder), _list_if_open(self._source, folder))
        if after is None:
            return
        changed, folders = await self._compare(before, after)
        if len(changed) > _MANY and folder not in self.above:
            if self._owner is not None:
                await _open_up(self._source, folder)
            for path in before:
                await _remove(self._target, path)
            self._omitted += await copy_tree(self._source, self._target, folder)
            await self._give(folder)
            return
        if len(changed) > _MOST:
            raise WorkspaceError(f"expected at most {_MOST} changes in {folder}, got {len(changed)}")
        for path in sorted(changed):
            await self.take(path, after.get(path))
        for path in sorted(folders):
            if before[path].mode != after[path].mode:
                await _run(self._target, f"chmod {after[path].mode & 0o7777:o} {shlex.quote(path)}")
            await self.take_folder(path)

    async def _compare(
        self, before: Mapping[str, FileStat], after: Mapping[str, FileStat]
    ) -> tuple[list[str], list[str]]:
        """Return the paths that differ and can be replaced, and those that are folders in both."""
        changed: list[str] = []
        folders: list[str] = []

        def compare(path: str) -> None:
            old, new = before.get(path), after.get(path)
            if path in self._kept:
                return
            if old is not None and new is not None and old.kind == new.kind == "directory":
                folders.append(path)
            elif old != new and path not in self.above:
                changed.append(path)

        await in_turns(compare, chain(before, (path for path in after if path not in before)))
        return changed, folders


async def _search(target: Sandbox) -> dict[str, set[str]]:
    """Return the paths that `_SEARCHED` prints by their letter."""
    found: dict[str, set[str]] = {"P": set(), "V": set(), "M": set()}
    for line in (await _run(target, f"({_SEARCHED}) 2>/dev/null | sort -u")).splitlines():
        path = posixpath.normpath(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), line[2:]))
        if path != "/":
            found[line[:1]].add(path)
    return found


async def _run(target: Sandbox, command: str) -> str:
    done = await target.exec(command, timeout=60, cwd="/")
    if done.exit_code != 0:
        raise WorkspaceError(f"{command[:200]} exited {done.exit_code}: {done.output.strip()[-300:]}")
    if done.truncated:
        raise VerifierError("the image has too many links on its PATH to search them, so nothing can be copied to it")
    return done.stdout.decode("utf-8", "surrogateescape")


async def _remove(target: Sandbox, path: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        await target.remove(path)


async def _entry(source: Sandbox, path: str) -> FileStat | None:
    """Describe one path. A link is described as a link if the commands' user can list its folder."""
    listed = await _list_if_open(source, posixpath.dirname(path))
    if listed is not None:
        return listed.get(path)
    try:
        return await source.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


async def _open_up(source: Sandbox, path: str) -> None:
    """Give the commands' user read access to its own files at a path, recursively. A command can have removed it."""
    await source.exec(f"command -p chmod -R u+rX -- {shlex.quote(path)} 2>/dev/null || :", timeout=60, cwd="/")


async def _is_readable(source: Sandbox, path: str, kind: str) -> bool:
    """Return whether the commands' user, which need not be root, can read a file or list a folder."""
    try:
        if kind == "directory":
            await source.list_dir(path)
        elif kind == "file":
            await source.read_file(path, length=1)
    except PermissionError:
        return False
    return True


async def _list_if_open(source: Sandbox, folder: str) -> dict[str, FileStat] | None:
    """Return the entries of a folder, or None if the commands' user has no access and cannot get it."""
    try:
        return await _list_folder(source, folder)
    except PermissionError:
        await _open_up(source, folder)
    try:
        return await _list_folder(source, folder)
    except PermissionError:
        return None


async def _list_folder(sandbox: Sandbox, folder: str) -> dict[str, FileStat]:
    """Return the entries of a folder by path. Their names are checked: a model as root can fake its agent's answers."""
    try:
        entries = await sandbox.list_dir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found: dict[str, FileStat] = {}

    def add(entry: FileStat) -> None:
        if entry.path in {"", ".", ".."} or "/" in entry.path or "\0" in entry.path:
            raise WorkspaceError(f"expected a file name in {folder}, got {entry.path[:200]!r}")
        found[posixpath.join(folder, entry.path)] = entry

    await in_turns(add, entries)
    return found
