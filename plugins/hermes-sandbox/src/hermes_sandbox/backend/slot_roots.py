"""Roots for slots, each with a /tmp, /var/tmp and /dev/shm of its own, made in a container from outside.

Nobody inside has the right to mount, nor gets it: root of the machine on which the container runs goes into its mount
namespace, before anything runs there but the waiting agent. The agent, and it alone, then needs the right to chroot.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Final

ROOTS: Final = "/run/hermes-roots"
"""Where they are, inside: directories 0, 1, ….."""
_PRIVATE: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - inside
_SOURCE: Final = ".hermes-roots"
_SECONDS: Final = 30.0
_PROGRAM: Final = r"""
import ctypes, os, sys
pid, mark, number, top, source, private = sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:6], sys.argv[6:]
libc = ctypes.CDLL(None, use_errno=True)
REMOUNT, BIND, RECURSIVE, UNBINDABLE = 32, 4096, 16384, 1 << 17
def check(result, what):
    if result != 0:
        sys.exit("%s: %s" % (what, os.strerror(ctypes.get_errno())))
def mount(what, where, kind, flags, options=None):
    encoded = [None if word is None else os.fsencode(word) for word in (what, where, kind, options)]
    check(libc.mount(*encoded[:3], flags, encoded[3]), where)
space = os.open("/proc/" + pid + "/ns/mnt", os.O_RDONLY)
with open("/proc/" + pid + "/cgroup") as file:
    if mark not in file.read():
        sys.exit("process %s is not the container's" % pid)
check(libc.setns(space, 1 << 17), "setns")
private = [path for path in private if os.path.isdir(path)]
for path in private + [os.path.dirname(top)]:
    if os.path.realpath(path) != path:
        sys.exit(path + " is a link")
os.umask(0)
for path in private:
    os.mkdir(path + "/" + source, 0o700)
os.mkdir(top, 0o700)
mount("hermes", top, "tmpfs", 0, "mode=711,size=1m")
mount(None, top, None, UNBINDABLE)
for each in map(str, range(number)):
    root = top + "/" + each
    os.mkdir(root, 0o755)
    mount("/", root, None, BIND | RECURSIVE)
    for path in private:
        own = path + "/" + source + "/" + each
        os.mkdir(own, 0o1777)
        mount(own, root + path, None, BIND)
"""


def own_places(number: int) -> list[str]:
    """Return where the private directories of that many roots lie for the agent."""
    return [f"{path}/{_SOURCE}/{each}" for path in _PRIVATE for each in range(number)]


async def make_roots(pid: int, mark: str, number: int) -> str | None:
    """Make roots in the container of a process whose control groups name `mark`; returns why that cannot be.

    What had been made by then goes with the container.
    """
    words = [str(pid), mark, str(number), ROOTS, _SOURCE, *_PRIVATE]
    argv = [sys.executable, "-I", "-S", "-c", _PROGRAM, *words]
    try:
        process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.PIPE)
    except OSError as error:
        return f"no process can be started for it: {error.strerror}"
    try:
        async with asyncio.timeout(_SECONDS):
            _, said = await process.communicate()
    except TimeoutError:
        return f"it took more than {_SECONDS:g} seconds"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return said.decode(errors="replace").strip()[-300:] or "it ended early" if process.returncode else None


LACKS: Final[Mapping[str, str]] = {
    "private_ipc": "slots of one place share System V IPC and POSIX queues; a key is taken until its slot closes"
}
"""What slots with such roots still share."""
