"""Files of a sandbox without Python. Small scripts run as the commands' user, so that no link gives more access."""

from __future__ import annotations

import errno
import heapq
import os
import posixpath
import secrets
import stat
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Literal

from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import FileStat
from hermes_sandbox.posix_shell.client import Ran
from hermes_sandbox.posix_shell.scripts import encode, quote
from hermes_sandbox.protocol.turns import in_turns

Kind = Literal["file", "directory", "symlink", "other"]
Run = Callable[[bytes, bytes], Awaitable[Ran]]
PIECE: Final = 1 << 20
"""Bytes of a file in one request."""
READ_AT_ONCE: Final = 256 << 20
"""Maximum bytes that are read of a file if the caller passes no length."""
_RUN: Final = 1000
"""Directory entries that are sorted in one step."""
_ERRNOS: Final = tuple(
    getattr(errno, name)
    for name in [
        "ENOENT",
        "EISDIR",
        "ENOTDIR",
        "EACCES",
        "EPERM",
        "ENOSPC",
        "EFBIG",
        "EROFS",
        "ELOOP",
        "ENAMETOOLONG",
        "EDQUOT",
        "EBUSY",
        "EEXIST",
    ]
)
_BY_STATUS: Final = {101: errno.ENOENT, 102: errno.EISDIR, 103: errno.ENOTDIR, 104: errno.EACCES, 105: errno.EINVAL}
_HEAD: Final = b"export LC_ALL=C; umask 022; f=%s\n"
# The type of the file is checked before it is opened, because opening a pipe would wait for a writer.
_REGULAR: Final = b"""\
if [ -d "$f" ]; then exit 102; fi
if [ ! -e "$f" ]; then cat "$f"; exit 101; fi
[ -f "$f" ] || exit 105
[ -r "$f" ] || exit 104
"""
_STAT: Final = b"stat -L -c '%f %s %Y' -- \"$f\" || exit 1\n"
# Each name ends with a slash, which no name contains.
_LIST: Final = b"""\
if [ ! -d "$f" ]; then [ -e "$f" ] && exit 103; cat "$f"; exit 101; fi
cd -- "$f" || exit 104
[ -r . ] || exit 104
set --
for n in * .[!.]* ..?*; do
if [ -e "$n" ] || [ -L "$n" ]; then set -- "$@" "$n"; fi
if [ $# -ge 200 ]; then stat -c '%f %s %Y %n/' -- "$@"; set --; fi
done
[ $# = 0 ] || stat -c '%f %s %Y %n/' -- "$@"
exit 0
"""
_REMOVE: Final = b"""\
if [ ! -e "$f" ] && [ ! -L "$f" ]; then ls -d -- "$f"; exit 101; fi
rm -rf -- "$f"
"""
# A write follows a link. The new content is written beside the file, so that the move stays within one file system.
_BESIDE: Final = b"""\
if [ -L "$f" ]; then f=$(readlink -f -- "$f"; echo x); f=${f%%??}; fi
t=${f%%/*}/.hermes-%s
"""
_OPEN: Final = b"""\
if [ -d "$f" ]; then exit 102; fi
if [ -e "$f" ]; then [ -f "$f" ] || exit 105; [ -w "$f" ] || exit 104; fi
d=${f%/*}/
if [ -e "${f%/*}" ] && [ ! -d "$d" ]; then exit 103; fi
mkdir -p -- "$d" || exit 1
(umask 077; set -C; : >"$t") || exit 104
"""
_ADD: Final = b'cat >>"$t"\n'
_DROP: Final = b'rm -f -- "$t"\n'
_CLOSE: Final = b"""\
[ "$(wc -c <"$t")" -eq %d ] || { echo 'No space left on device' >&2; exit 1; }
%s
mv -f -- "$t" "$f"
"""
_KEEP_MODE: Final = b"""\
if [ -e "$f" ]; then m=$(stat -L -c %a -- "$f") || exit 1; chmod "$m" "$t"; else chmod 644 "$t"; fi"""


class PlainFiles:
    """File operations by cat, dd, mkdir, mv, rm, stat and wc.

    Args:
        run: Runs a script as the commands' user.
        workspace: Directory for relative paths.
    """

    def __init__(self, run: Run, workspace: str) -> None:
        self._run = run
        self._workspace = workspace

    def place(self, path: str) -> str:
        """Return the absolute path for a path."""
        return posixpath.join(self._workspace, path)

    async def _do(self, path: str, text: bytes, stdin: bytes = b"") -> bytes:
        ran = await self._run(_HEAD % quote(encode(self.place(path))) + text, stdin)
        if ran.code != 0:
            raise _error(ran, path)
        if ran.out.omitted:
            raise BackendError(f"{path}: the answer has {ran.out.total} bytes, which is too long")
        return ran.out.head + ran.out.tail

    async def read(self, path: str, offset: int, length: int | None) -> bytes:
        """Return a range of a file."""
        most = READ_AT_ONCE if length is None else length
        pieces: list[bytes] = []
        while True:
            want = min(most, PIECE)
            piece = await self._do(path, _REGULAR + _range(offset, want))
            pieces.append(piece)
            offset, most = offset + len(piece), most - len(piece)
            if len(piece) < want or not most:
                break
            if length is None and len(pieces) == 1:
                await self._require_small(path, offset + most)
        return b"".join(pieces)

    async def _require_small(self, path: str, most: int) -> None:
        if (await self.stat(path)).size > most:
            raise OSError(errno.EFBIG, "File too large; read it in ranges with offset and length", path)

    async def write(self, path: str, data: bytes, mode: int | None) -> None:
        """Replace a file's content atomically."""
        beside = _BESIDE % secrets.token_hex(8).encode()
        try:
            await self._do(path, beside + _OPEN + _ADD, data[:PIECE])
            for start in range(PIECE, len(data), PIECE):
                await self._do(path, beside + _ADD, data[start : start + PIECE])
            set_mode = _KEEP_MODE if mode is None else b'chmod %o "$t"' % mode
            await self._do(path, beside + _CLOSE % (len(data), set_mode))
        except OSError:
            await self._do(path, beside + _DROP)
            raise

    async def stat(self, path: str) -> FileStat:
        """Describe the file at a path."""
        found = (await self._do(path, _STAT)).split()
        return _describe(path, found)

    async def list_dir(self, path: str) -> list[FileStat]:
        """Describe the entries of a directory, sorted by name."""
        entries = await in_turns(_entry, _records(await self._do(path, _LIST)))
        # In steps: root in the sandbox can replace its shell, which then sends names in any order.
        starts = range(0, len(entries), _RUN)
        runs = await in_turns(lambda at: sorted(entries[at : at + _RUN], key=_name), starts, at_once=1)
        return await in_turns(lambda entry: entry, heapq.merge(*runs, key=_name))

    async def remove(self, path: str) -> None:
        """Delete a file, a symlink or a whole directory."""
        await self._do(path, _REMOVE)


def _range(offset: int, count: int) -> bytes:
    # dd seeks only to whole blocks.
    blocks, rest = divmod(offset, PIECE)
    return b'dd if="$f" bs=%d skip=%d count=2 2>/dev/null | tail -c +%d | head -c %d\n' % (
        PIECE,
        blocks,
        rest + 1,
        count,
    )


def _records(said: bytes) -> Iterator[bytes]:
    start = 0
    while (end := said.find(b"/\n", start)) >= 0:
        yield said[start:end]
        start = end + 2


def _entry(record: bytes) -> FileStat:
    *numbers, name = record.split(b" ", 3)
    return _describe(name.decode(errors="surrogateescape"), numbers)


def _name(entry: FileStat) -> bytes:
    return encode(entry.path)


def _describe(path: str, numbers: list[bytes]) -> FileStat:
    raw = int(numbers[0], 16)
    return FileStat(
        path=path, kind=_kind(raw), size=int(numbers[1]), mode=stat.S_IMODE(raw), mtime=float(int(numbers[2]))
    )


def _kind(raw: int) -> Kind:
    if stat.S_ISREG(raw):
        return "file"
    if stat.S_ISDIR(raw):
        return "directory"
    return "symlink" if stat.S_ISLNK(raw) else "other"


def _error(ran: Ran, path: str) -> Exception:
    said = (ran.err.head + ran.err.tail).decode(errors="replace").strip()
    for number in _ERRNOS:
        if os.strerror(number).lower() in said.lower():
            return OSError(number, os.strerror(number), path)
    known = _BY_STATUS.get(ran.code)
    if known is not None:
        return OSError(known, os.strerror(known), path)
    if "not found" in said:
        return BackendError(f"{path}: a program is missing: {said}", hint="install it or python3 in the image")
    return OSError(errno.EIO, said or f"exit code {ran.code}", path)
