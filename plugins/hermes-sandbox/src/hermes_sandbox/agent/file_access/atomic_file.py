"""A file that becomes visible only when it is complete."""

from __future__ import annotations

import errno
import os

from hermes_sandbox.agent.basics.stdlib import suppress

_NAMED = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NAMELESS = os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC
# Errors of file systems and kernels without nameless files.
_UNKNOWN = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})


class Partial:
    """A new file in an open directory, without a name if `nameless` and if the file system can do that.

    A nameless file disappears with the process, however that ends. It costs more than a temporary name.
    """

    def __init__(self, parent: int, *, nameless: bool, mode: int = 0o600) -> None:
        self._parent = parent
        self._name = ""
        self.fd = _open_nameless(parent, mode) if nameless else -1
        if self.fd < 0:
            name = beside()
            self.fd = os.open(name, _NAMED, mode, dir_fd=parent)
            self._name = name

    def settle(self, name: str) -> None:
        """Give it its name, atomically replacing another file of that name."""
        if not self._name:
            unused = beside()
            os.link(f"/proc/self/fd/{self.fd}", unused, dst_dir_fd=self._parent, follow_symlinks=True)
            self._name = unused
        fd, self.fd = self.fd, -1
        os.close(fd)
        os.replace(self._name, name, src_dir_fd=self._parent, dst_dir_fd=self._parent)
        self._name = ""

    def drop(self) -> None:
        """Delete it, unless it has got its name."""
        if self._name:
            with suppress(OSError):
                os.unlink(self._name, dir_fd=self._parent)
            self._name = ""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _open_nameless(parent: int, mode: int) -> int:
    try:
        fd = os.open(".", _NAMELESS, mode, dir_fd=parent)
    except OSError as error:
        if error.errno in _UNKNOWN:
            return -1
        raise
    # It is named through /proc, which may be missing.
    if os.access(f"/proc/self/fd/{fd}", os.F_OK):
        return fd
    os.close(fd)
    return -1


def beside() -> str:
    """Return an unused name."""
    return f".hermes-{os.urandom(8).hex()}"
