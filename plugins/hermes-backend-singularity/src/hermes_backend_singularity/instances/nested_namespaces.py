"""Runs inside an instance before the agent: creates separate namespaces and drops all privileges it no longer needs.

The agent becomes the first process of a PID namespace, so that no process it starts can signal it, whatever its user.
If the caller is root, the command line has given this program the necessary capabilities; otherwise it creates a user
namespace, in which it has all of them. It drops them in both cases. Standard library only, Python 3.8.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import struct
import sys
from pathlib import Path
from typing import Any

_NEWNS, _NEWUSER, _NEWPID = 0x20000, 0x10000000, 0x20000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND = 1, 2, 4, 8, 32, 4096
_PRIVATE = 0x4000 | (1 << 18)
_PDEATHSIG, _CAPBSET_DROP, _NO_NEW_PRIVS, _CAP_AMBIENT, _CLEAR_ALL = 1, 24, 38, 47, 4
_CAP_VERSION = 0x20080522
_LIBC = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> None:
    """Call a function of the C library that returns 0 on success; raise `OSError` otherwise."""
    if getattr(_LIBC, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Mount a file system."""
    call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode() or None)


def separate() -> None:
    """Leave the instance's namespaces; processes started from now on are in a new PID namespace."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        call("unshare", _NEWNS | _NEWPID)
        return
    call("unshare", _NEWUSER | _NEWNS | _NEWPID)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path(f"/proc/self/{name}").write_text(text, encoding="ascii")
    # Forbid further user namespaces, in which commands would have all capabilities.
    with contextlib.suppress(OSError):
        Path("/proc/sys/user/max_user_namespaces").write_text("0", encoding="ascii")


def arrange(settings: dict[str, Any]) -> None:
    """Mount the file systems of the agent's own namespaces, and prepare the workspace."""
    mount("none", "/", "", _PRIVATE)
    mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    mount("hermes", "/dev/shm", "tmpfs", _NOSUID | _NODEV, f"mode=1777,size={settings['shm_mb']}m")  # noqa: S108 - inside
    uid, gid = settings["identity"]
    owner = f",uid={uid},gid={gid}" if uid and os.geteuid() == 0 else ""
    # Separate from /tmp, so that a rollout that fills /tmp keeps its session.
    mount("hermes", settings["state"], "tmpfs", _NOSUID | _NODEV | _NOEXEC, f"mode=0700,size=64m{owner}")
    workspace = settings["workspace"]
    Path(workspace).mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        if settings["give"]:
            own(workspace, uid, gid, settings["kept"])
    elif not os.access(workspace, os.W_OK):
        raise PermissionError(13, "the workspace in the image is not writable by this user", workspace)
    if settings["frozen"]:
        mount(workspace, workspace, "", _BIND)
        mount("none", workspace, "", _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)


def own(top: str, uid: int, gid: int, kept: list[str]) -> None:
    """Make a user the owner of a directory and its content, except for bind mounts from outside."""
    if top in kept or Path(top).is_symlink():
        return
    give(top, uid, gid)
    for folder, names, files in os.walk(top):
        names[:] = [name for name in names if f"{folder}/{name}" not in kept]
        for path in [f"{folder}/{name}" for name in names + files]:
            if path not in kept:
                give(path, uid, gid)


def give(path: str, uid: int, gid: int) -> None:
    """Change the owner of a file if necessary; every change copies the file from the image into the overlay."""
    if os.lstat(path).st_uid != uid:
        os.lchown(path, uid, gid)


def drop(kept: list[int]) -> None:
    """Permanently drop all capabilities except those in `kept`."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text(encoding="ascii"))
    for number in set(range(last + 1)).difference(kept):
        call("prctl", _CAPBSET_DROP, number, 0, 0, 0)
    call("prctl", _CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    call("prctl", _NO_NEW_PRIVS, 1, 0, 0, 0)
    mask = sum(1 << number for number in kept)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    call("capset", struct.pack("=Ii", _CAP_VERSION, 0), struct.pack("=6I", low, low, 0, high, high, 0))


def wait_for(child: int) -> None:
    """Wait for the agent from outside its namespace, then end the instance, so that a dead caller leaves none."""
    for number in (0, 1):
        os.close(number)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        os.kill(1, signal.SIGINT)
    os._exit(0 if status == 0 else 1)


def enter(settings: dict[str, Any]) -> None:
    """Do all steps, and report to the caller; only the process that becomes the agent returns."""
    parent = os.getpid()
    separate()
    child = os.fork()
    if child:
        wait_for(child)
    try:
        _LIBC.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        arrange(settings)
        drop(settings["capabilities"])
        if settings["address_space"] is not None:
            resource.setrlimit(resource.RLIMIT_AS, (settings["address_space"],) * 2)
        report: dict[str, Any] = {"environment": dict(os.environ), "python": sys.version_info[:3], "outer": parent}
    except OSError as error:
        report = {"error": f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")}
    text = json.dumps(report).encode()
    os.write(1, b"%08x" % len(text) + text)
    if "error" in report:
        os._exit(3)
